"""`voice-app ask` as a person runs it: real workers, real models, real sound files."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile
import soxr

from voice_app.pipeline.layout import LAYOUTS

pytestmark = pytest.mark.models

DATA = Path(__file__).parents[1] / "data"
ASK = [sys.executable, "-m", "voice_app", "ask"]
DEADLINE_S = 300
WORKERS = {place.worker for places in LAYOUTS["cpu"].values() for place in places}


def ask(*options: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [*ASK, *map(str, options)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, env={**os.environ, **(env or {})}
    )


def shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def workers(asking: subprocess.Popen[str]) -> list[psutil.Process]:
    """Its worker processes, while it runs."""
    found = psutil.Process(asking.pid).children(recursive=True)
    assert len(found) == len(WORKERS)
    return found


def still_there(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that do not end within seconds."""
    return psutil.wait_procs(processes, timeout=5)[1]


def test_a_spoken_question_in_an_odd_format(tmp_path):
    samples, rate = soundfile.read(DATA / "spoken" / "sum-1-1.flac", dtype="float32")
    wide = soxr.resample(samples, rate, 96000)
    question = tmp_path / "question.aiff"
    soundfile.write(question, np.stack([wide, np.zeros_like(wide)], axis=1), 96000, subtype="PCM_24")
    before = shared_memory()

    done = ask(question, "--json", "--out", tmp_path / "answer.wav")

    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    answer = json.loads(line)
    assert "84" in answer["text"]
    assert "twelve times seven" in answer["transcript"].lower().replace("12", "twelve").replace("7", "seven")
    assert answer["finish_reason"] == "stop"
    assert 0 < answer["first_text_ms"] < answer["first_audio_ms"] < answer["end_to_end_ms"]
    stages = ("preprocessing", "audio_encoder", "thinker", "decode", "talker_ar", "code2wav")
    assert set(stages) <= set(answer["stage_ms"])
    sound, sample_rate = soundfile.read(tmp_path / "answer.wav")
    assert (len(sound), sample_rate) == (answer["samples"], answer["sample_rate"])
    assert 0.01 < np.sqrt(np.mean(sound**2)) < 0.5
    assert np.abs(sound).max() < 0.999
    assert shared_memory() <= before


def test_words_are_printed_and_silence_is_said_to_be_silence(tmp_path):
    silence = tmp_path / "silence.wav"
    soundfile.write(silence, np.zeros(32000, np.int16), 16000, subtype="PCM_U8")
    done = ask(silence)
    assert done.returncode == 2
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert "no speech" in last
    assert "silence.wav" in last
    assert "Traceback" not in done.stderr


def test_an_unreadable_picture_is_one_line(tmp_path):
    picture = tmp_path / "picture.jpg"
    picture.write_bytes(b"\xff\xd8\xff" + b"no picture at all" * 20)
    done = ask("--image", picture, "--text", "What is this?", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "picture.jpg" in line


def test_a_model_file_with_a_wrong_hash_is_named(tmp_path):
    from voice_app.config import home

    damaged = tmp_path / "home"
    for source in (home() / "models").rglob("*"):
        if source.is_file() and not source.name.startswith("."):
            target = damaged / "models" / source.relative_to(home() / "models")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)
    (voice,) = damaged.glob("models/voice-*/*.onnx.json")
    voice.unlink()
    voice.write_text("{}")
    done = ask("--text", "Hello", "--json", env={"VOICE_APP_HOME": str(damaged)})
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert voice.name in line
    assert "sha256" in line


def test_a_worker_killed_in_mid_answer(tmp_path):
    before = shared_memory()
    question = DATA / "spoken" / "fact-1-1.flac"
    process = subprocess.Popen(
        [*ASK, str(question)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    unready = {f"{name}: ready" for name in WORKERS}
    for line in process.stderr:
        unready = {ready for ready in unready if not line.strip().endswith(ready)}
        if not unready:
            break
    there = workers(process)
    (victim,) = [worker for worker in there if worker.cmdline()[-1].startswith("text")]
    os.kill(victim.pid, signal.SIGKILL)
    _, rest = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "text" in rest.splitlines()[-1]
    assert "Traceback" not in rest
    assert not still_there(there)
    assert shared_memory() <= before


def test_an_interrupted_question_leaves_no_process():
    process = subprocess.Popen([*ASK, "--text", "Hello"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "loading" in line:
            break
    there = workers(process)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert not still_there(there)
