"""pipecat's OpenAI realtime service, pinned and unmodified, against the local pack: spoken turns and an
interruption; tools, a picture, cancelling and a reconnection."""

import asyncio
import fcntl
import json
import subprocess
import sys
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from needs import missing
from real_talk import recording
from running_server import server

from voice_app import messages as m
from voice_app.config import PipelineConfig, home
from voice_app.pipeline.client import PipelineClient, PipelineStatus
from voice_app.server.pipeline import TurnEvents

pytestmark = [pytest.mark.models, pytest.mark.asyncio(loop_scope="module")]

REQUIREMENTS = ("pipecat-ai[openai]==1.14.0", "websockets==15.0.1")
SCRIPTS = Path(__file__).parent / "clients"


@pytest.fixture(scope="module")
def python() -> Path:
    """An interpreter with pipecat, in an environment of its own: its pins are not ours. It is kept."""
    folder = home() / "tests" / "pipecat-1.14.0"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").is_file():
            subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
            pip = [folder / "venv" / "bin" / "pip", "install", "-q", *REQUIREMENTS]
            done = subprocess.run(pip, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0:
                missing("pipecat", f"a reachable package index ({done.stderr.strip()[-200:]})")
            (folder / "complete").touch()
    return folder / "venv" / "bin" / "python"


class Watched:
    """A pipeline; what it is asked for is noted."""

    def __init__(self, pipeline: PipelineClient) -> None:
        self._pipeline = pipeline
        self.requests: list[m.TurnRequest] = []
        self.cancelled: list[m.TurnId] = []

    def submit(self, request: m.TurnRequest) -> TurnEvents:
        self.requests.append(request)
        return self._pipeline.submit(request)

    def cancel(self, turn: m.TurnId) -> None:
        self.cancelled.append(turn)
        self._pipeline.cancel(turn)

    def status(self) -> PipelineStatus:
        return self._pipeline.status()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline() -> AsyncIterator[PipelineClient]:
    async with PipelineClient(PipelineConfig()) as pipeline:
        yield pipeline


@pytest_asyncio.fixture(loop_scope="module")
async def watched(pipeline: PipelineClient) -> Watched:
    return Watched(pipeline)


@pytest_asyncio.fixture(loop_scope="module")
async def port(watched: Watched) -> AsyncIterator[int]:
    async with server(watched) as port:
        yield port


def wav(path: Path, name: str) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        file.writeframes(recording(name).tobytes())
    return path


async def run(python: Path, script: str, *arguments: str | Path) -> dict[str, Any]:
    """What the script says of itself."""
    process = await asyncio.create_subprocess_exec(
        python, SCRIPTS / script, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, errors = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode == 0, errors.decode()[-2000:]
    return json.loads(out)


async def test_it_greets_answers_and_is_interrupted(python: Path, port: int, tmp_path: Path):
    files = [wav(tmp_path / "first.wav", "fact-1-1"), wav(tmp_path / "second.wav", "sum-1-1")]
    told = await run(python, "pipecat_talk.py", str(port), *files)
    assert told["errors"] == [], "an error would end its session"
    assert told["greeting"]
    assert "84" in told["text"], "the question that was asked over the answer was answered"
    assert told["audio_s"] > 2
    assert told["interrupted"]
    assert told["late"] == 0, "nothing of the old answer came after the interruption"


async def test_tools_a_picture_cancelling_and_a_reconnection(
    python: Path, port: int, watched: Watched, tmp_path: Path
):
    question = wav(tmp_path / "question.wav", "fact-1-1")
    told = await run(python, "pipecat_errands.py", str(port), question)
    assert told["errors"] == []
    assert told["calls"] == [{"on": True}]
    assert told["done"] == "The light is on."
    assert told["seen"]
    assert "Paris" in told["told"]
    requests = watched.requests
    assert [tool.name for tool in requests[0].tools] == ["set_light"]
    results = [p for msg in requests[1].messages for p in msg.parts if isinstance(p, m.ToolResultPart)]
    assert "The light is on." in results[0].output
    assert any(isinstance(part, m.ImagePart) for msg in requests[2].messages for part in msg.parts)
    story, *begun_early = watched.cancelled
    assert story == requests[3].turn
    # Work that began on the spoken question before all of it had come; not the answer, which is the last.
    assert begun_early == [request.turn for request in requests[4:-1]]
    assert requests[-1].turn not in begun_early
    assert len({request.turn.session for request in requests}) == 2, "the last one is of another connection"
    assert isinstance(requests[-1].messages[-1].parts[-1], m.AudioPart)
