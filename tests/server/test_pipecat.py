"""pipecat's OpenAI realtime service, pinned and unmodified, against the local pack."""

import asyncio
import fcntl
import json
import subprocess
import sys
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from needs import missing
from real_talk import recording
from running_server import server

from voice_app.config import PipelineConfig, home
from voice_app.pipeline.client import PipelineClient

pytestmark = [pytest.mark.models, pytest.mark.asyncio(loop_scope="module")]

REQUIREMENTS = ("pipecat-ai[openai]==1.14.0", "websockets==15.0.1")
SCRIPT = Path(__file__).parent / "clients" / "pipecat_talk.py"


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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port() -> AsyncIterator[int]:
    async with PipelineClient(PipelineConfig()) as pipeline, server(pipeline) as port:
        yield port


def wav(path: Path, name: str) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        file.writeframes(recording(name).tobytes())
    return path


async def test_it_greets_answers_and_is_interrupted(python: Path, port: int, tmp_path: Path):
    files = [wav(tmp_path / "first.wav", "fact-1-1"), wav(tmp_path / "second.wav", "sum-1-1")]
    process = await asyncio.create_subprocess_exec(
        python, SCRIPT, str(port), *files, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, errors.decode()[-2000:]
    told = json.loads(out)
    assert told["errors"] == [], "an error would end its session"
    assert told["greeting"]
    assert "84" in told["text"], "the question that was asked over the answer was answered"
    assert told["audio_s"] > 2
    assert told["interrupted"]
    assert told["late"] == 0, "nothing of the old answer came after the interruption"
