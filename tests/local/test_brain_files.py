"""Converting the packaged brain: once, whole, by one process, with clear errors."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from voice_app.errors import ModelFileError
from voice_app.models.local.assets import ensure
from voice_app.models.local.brain_files import BrainFiles, converted
from voice_app.models.local.brain_matrices import quantised
from voice_app.models.local.brain_weights import GgufBrain
from voice_app.models.local.catalogue import MODELS

SHA256 = MODELS["smollm2"].files[0].sha256


CONVERT = (
    "import sys, pathlib; from voice_app.models.local.brain_files import converted; "
    "converted(pathlib.Path(sys.argv[1]), sys.argv[2], lambda line: None)"
)


def test_a_file_that_is_no_brain(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"GGUF but no more")
    with pytest.raises(ModelFileError, match=r"wrong\.gguf"):
        GgufBrain(wrong)


@pytest.mark.models
def test_two_processes_convert_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf = ensure("smollm2")
    environment = {**os.environ, "VOICE_APP_HOME": str(tmp_path)}
    (tmp_path / "local" / "smollm2-b179c9523d0e-v1").mkdir(parents=True)  # An older version's.
    command = [sys.executable, "-c", CONVERT, str(gguf), SHA256]
    both = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [process.wait(300) for process in both] == [0, 0]
    folders = [path.name for path in (tmp_path / "local").iterdir() if path.is_dir() and path.name != "numba"]
    assert len(folders) == 1
    monkeypatch.setenv("VOICE_APP_HOME", str(tmp_path))
    told: list[str] = []
    files = converted(gguf, SHA256, told.append)
    assert told == []
    brain = GgufBrain(gguf)
    expected = brain.tensor("token_embd.weight")[:100]
    np.testing.assert_allclose(files.embedding()[:100], expected, rtol=1e-3, atol=1e-6)
    (files.folder / "factors.npz").write_bytes(b"PK")
    with pytest.raises(ModelFileError, match="delete it"):
        files.factors()
    (files.folder / "embedding.npy").write_bytes(b"")
    with pytest.raises(ModelFileError, match="delete it"):
        files.embedding()
    (files.folder / "shape.json").write_text("{}")
    with pytest.raises(ModelFileError, match="delete it"):
        BrainFiles(files.folder)


@pytest.mark.models
def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf = ensure("smollm2")
    (tmp_path / "local").write_text("a file where a folder should be")
    monkeypatch.setenv("VOICE_APP_HOME", str(tmp_path))
    with pytest.raises(ModelFileError, match="cannot be written"):
        converted(gguf, SHA256, lambda _: None)


def test_eight_bits_are_within_half_a_step() -> None:
    weight = np.random.default_rng(0).standard_normal((7, 100)).astype(np.float32)
    weight[3] = 0
    matrix = quantised("some", weight)
    back = (matrix.weight * matrix.columns).T
    assert (np.abs(back - weight) <= matrix.columns[:, None] / 2 + 1e-6).all()
    assert (back[3] == 0).all()
