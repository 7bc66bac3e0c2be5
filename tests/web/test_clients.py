"""The clients of docs/clients.md, as they are there, against a real server."""

import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
import soxr
from needs import command

from voice_app.bench import heard_back

pytestmark = pytest.mark.models

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(scope="session")
def question(tmp_path_factory) -> Path:
    """ "What is twelve times seven?", as the JavaScript client wants its file."""
    samples, rate = soundfile.read(ROOT / "tests/data/spoken/sum-1-1.flac", dtype="float32")
    path = tmp_path_factory.mktemp("clients") / "question.wav"
    soundfile.write(path, soxr.resample(samples, rate, 24_000), 24_000, subtype="PCM_16")
    return path


def python(server: str) -> tuple[list[str], str]:
    return [sys.executable, str(EXAMPLES / "talk.py")], f"ws://{server}/v1"


def javascript(server: str) -> tuple[list[str], str]:
    node = command("node", "nodejs")
    return [node, "--experimental-websocket", str(EXAMPLES / "talk.mjs")], f"ws://{server}/v1/realtime"


@pytest.mark.parametrize("client", [python, javascript])
def test_client_asks_and_hears(server, question, tmp_path, client):
    program, url = client(f"127.0.0.1:{server.port}")
    answer = tmp_path / "answer.wav"
    asked = [*program, str(question), str(answer), url]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert "84" in done.stdout
    samples, rate = soundfile.read(answer, dtype="float32")
    heard = heard_back.hear([heard_back.Spoken("", samples, rate)])[0].lower()
    assert "84" in heard or "eighty" in heard


@pytest.mark.parametrize("name", ["talk.py", "talk.mjs"])
def test_client_is_short(name):
    lines = [line for line in (EXAMPLES / name).read_text().splitlines() if line.strip()]
    assert len(lines) <= 30
