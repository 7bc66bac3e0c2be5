"""`voice-app ask` with files that cannot be used: one line, exit code 2, before any model is loaded."""

import errno
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from voice_app import cli
from voice_app.cli import ask
from voice_app.models import registry


@pytest.fixture
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "bring", lambda *_: None)
    monkeypatch.setattr(ask, "PipelineClient", lambda *_, **__: pytest.fail("the workers were to start"))


def _write(name: str, samples: np.ndarray, rate: int = 16000, **options) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        soundfile.write(folder / name, samples, rate, **options)
        return folder / name

    return make


def _bytes(name: str, data: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return make


def _cut_header(folder: Path) -> Path:
    whole = _write("whole.wav", np.zeros(16000, np.float32))(folder).read_bytes()
    (folder / "cut.wav").write_bytes(b"RIFF" + whole[8:30])
    return folder / "cut.wav"


_NAN = np.full(16000, np.nan, np.float32)
_ELEVEN_MINUTES = np.zeros(8000 * 660, np.float32)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda folder: folder / "nowhere.wav", "No such file"),
        (lambda folder: folder, "directory"),
        (_write("empty.wav", np.zeros(0, np.float32)), "no samples"),
        (_write("nan.wav", _NAN, subtype="FLOAT"), "NaN"),
        (_write("long.wav", _ELEVEN_MINUTES, 8000), "minutes"),
        (_cut_header, "not a sound file"),
        (_bytes("noise.wav", bytes(range(256)) * 40), "not a sound file"),
        (_bytes("zero.wav", b""), "not a sound file"),
    ],
)
def test_a_sound_that_cannot_be_used(capsys, tmp_path, make, named):
    path = make(tmp_path)
    assert cli.main(["ask", str(path)]) == 2
    error = capsys.readouterr().err
    assert path.name in error
    assert named in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda folder: folder, "is a folder"),
        (lambda folder: folder / "missing" / "x.wav", "no folder"),
        (lambda folder: folder / "x.doc", "ends in"),
        (lambda folder: folder / "x", "ends in"),
    ],
)
def test_an_answer_that_could_not_be_written(capsys, no_workers, tmp_path, make, named):
    assert cli.main(["ask", "--text", "x", "--out", str(make(tmp_path))]) == 2
    error = capsys.readouterr().err
    assert f"--out {make(tmp_path)}" in error
    assert named in error
    assert error.count("\n") == 1


def test_an_answer_that_may_not_be_written(capsys, monkeypatch, no_workers, tmp_path):
    def refuse(**_) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    # Not by the folder's mode: who runs tests as root may write everywhere.
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    assert cli.main(["ask", "--text", "x", "--out", str(tmp_path / "x.wav")]) == 2
    assert "Permission denied" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="has no /proc")
def test_an_answer_where_nobody_can_write(capsys, no_workers):
    assert cli.main(["ask", "--text", "x", "--out", "/proc/x.wav"]) == 2
    assert "--out /proc/x.wav: cannot be written" in capsys.readouterr().err


def _picture(name: str, size: tuple[int, int], cut: int | None = None) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        Image.new("L", size).save(folder / name)
        (folder / name).write_bytes((folder / name).read_bytes()[:cut])
        return folder / name

    return make


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (_bytes("words.png", b"these are words"), "not a readable JPEG, PNG or WebP"),
        (_bytes("zero.jpg", b""), "not a readable JPEG, PNG or WebP"),
        (_picture("picture.gif", (8, 8)), "not a readable JPEG, PNG or WebP"),
        (_picture("cut.png", (3000, 3000), 60), "not a readable"),
        (_picture("cut.jpg", (3000, 3000), 2000), "truncated"),
        (_picture("large.png", (8000, 8000)), "8000 x 8000 pixels; make it smaller"),
        (_picture("bomb.png", (15000, 15000)), "too large"),
    ],
)
def test_a_picture_that_cannot_be_used(capsys, no_workers, tmp_path, make, named):
    path = make(tmp_path)
    assert cli.main(["ask", "--image", str(path)]) == 2
    error = capsys.readouterr().err
    assert path.name in error
    assert named in error
    assert "object at" not in error
    assert error.count("\n") == 1
