"""`voice-app ask --pack qwen3-omni` as a person runs it: real processes, and the answer of `generate`."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from omni_reference import Expected
from omni_requests import assistant, greedy, picture, sound, system, text, user
from PIL import Image

from voice_app import messages as m

TIMEOUT_S = 300
"""A wait that has an end; nothing is measured."""


def _ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "voice_app", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ask") / "model"
    made = _ask("make-tiny-checkpoint", str(folder), "--seed", "3")
    assert made.returncode == 0, made.stderr
    assert made.stdout.strip() == str(folder)
    return folder


def _parts(tmp_path: Path) -> tuple[m.TurnRequest, list[str]]:
    """One request as a message and as arguments."""
    recorded, shot = sound(90, 1.4), picture(91)
    soundfile.write(tmp_path / "q.wav", recorded.samples, 16000, subtype="FLOAT")
    (tmp_path / "p.png").write_bytes(shot.data)
    history = [{"role": "user", "content": "Good morning."}, {"role": "assistant", "content": "Hello you."}]
    (tmp_path / "h.json").write_text(json.dumps(history))
    request = greedy(
        "asked",
        system("Be brief."),
        user(text("Good morning.")),
        assistant("Hello you."),
        user(recorded, shot, text("What is it?")),
        voice="chelsie",
    )
    arguments = [
        *("--system", "Be brief.", "--history", str(tmp_path / "h.json")),
        *("--audio", str(tmp_path / "q.wav"), "--image", str(tmp_path / "p.png"), "--text", "What is it?"),
        *("--speaker", "chelsie", "--max-tokens", "10", "--max-frames", "14", "--greedy", "--json"),
    ]
    return request, arguments


@pytest.mark.parametrize("layout", ["single", "cpu"])
def test_the_answer_is_generates(
    layout: str, folder: Path, tmp_path: Path, expected: Callable[[Path, m.TurnRequest], Expected]
) -> None:
    request, arguments = _parts(tmp_path)
    out = tmp_path / "answer.wav"
    pack = ("--pack", "qwen3-omni", "--model", str(folder), "--layout", layout)
    done = _ask("ask", *pack, "--out", str(out), *arguments)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    wanted = expected(folder, request)
    assert answer["token_ids"] == wanted.token_ids
    assert answer["codes"] == wanted.codes.tolist()
    assert answer["sample_rate"] == 24000
    assert answer["samples"] == len(wanted.wave)
    assert answer["finish_reason"] == "length"
    # Which of them comes first is not asserted: text and voice reach the client by different stages.
    assert answer["first_text_ms"] > 0
    assert answer["first_audio_ms"] > 0
    samples, rate = soundfile.read(out, dtype="float32")
    assert rate == 24000
    # The file has 16 bits a sample.
    assert np.abs(samples - np.clip(wanted.wave, -1, 1)).max() <= 1e-4 + 1 / 32768


def test_text_only(folder: Path) -> None:
    pack = ("--pack", "qwen3-omni", "--model", str(folder), "--layout", "single")
    done = _ask("ask", *pack, "--text", "Hello", "--max-tokens", "5", "--text-only", "--greedy", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert len(answer["token_ids"]) == 5
    assert (answer["samples"], answer["codes"]) == (0, [])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "{tmp}/nowhere"], "nowhere"),
        (["--model", "{tmp}"], "config.json: missing"),
        (["--model", "{folder}", "--speaker", "Bob"], "aiden, chelsie, ethan"),
        (["--model", "{folder}", "--dtype", "int4"], "float32, bfloat16, float16"),
        (["--model", "{folder}", "--image", "{tmp}/h.json"], "not a readable JPEG, PNG or WebP picture"),
        (["--model", "{folder}", "--image", "{tmp}/thin.png"], "thin.png: absolute aspect ratio"),
        (
            ["--model", "{folder}", "--audio", "{tmp}/q.wav", "{tmp}/short.wav"],
            "short.wav: 3 ms is too short",
        ),
        (["--model", "{folder}", "--kv-bytes", "10"], "--kv-bytes 10: one page"),
        (["--model", "{folder}", "--layout", "one-gpu"], "CUDA devices"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    arguments: list[str], says: str, folder: Path, tmp_path: Path
) -> None:
    _parts(tmp_path)
    soundfile.write(tmp_path / "short.wav", np.zeros(50), 16000)
    Image.new("L", (2000, 1)).save(tmp_path / "thin.png")
    (tmp_path / "config").mkdir()
    given = [
        a.format(tmp=tmp_path / "config" if a == "{tmp}" else tmp_path, folder=folder) for a in arguments
    ]
    layout = [] if "--layout" in given else ["--layout", "single"]
    done = _ask("ask", "--pack", "qwen3-omni", "--text", "Hello", *layout, *given)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr
