"""The packaged brain's converted files: made once from the GGUF, then opened in well under a second.

They lie in `<home>/local/smollm2-<hash>-v<version>/`: `tokenizer.json`, `embedding.npy` (float16
[vocab, width], mapped into memory so that processes share it), a graph for each matrix, and `factors.npz`
with all the small arrays. The folder appears whole or not at all.
"""

import fcntl
import json
import os
import shutil
import tempfile
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from voice_app.config import home
from voice_app.errors import ModelFileError
from voice_app.models.base import Report
from voice_app.models.local.brain_matrices import matrices
from voice_app.models.local.brain_weights import BrainShape, GgufBrain
from voice_app.models.local.integer_product import product_graph
from voice_app.models.local.prompt import EXAMPLES, SYSTEM

_VERSION = 2
"""Raise it when the conversion changes, so that old files are made anew."""
_FACTORS, _COLUMNS, _GAIN, _LAST_GAIN = "factors.npz", "columns.", "gain.", "last"
_WHO = ("user", "assistant")


@dataclass(frozen=True, slots=True)
class Factors:
    """By the name of a matrix: what its `columns` stand for, and the `gains` of its input where there are any
    (`Matrix`). `last_gain`: of the model's last norm."""

    columns: dict[str, np.ndarray]
    gains: dict[str, np.ndarray]
    last_gain: np.ndarray


class BrainFiles:
    """Where the parts of the converted brain are."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelFileError if the folder is damaged."""
        self.folder = folder
        try:
            self.shape = BrainShape(**json.loads((folder / "shape.json").read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise self.damaged() from error
        self.tokenizer = folder / "tokenizer.json"

    def matrix(self, name: str) -> Path:
        """The product with a matrix, as a graph."""
        return self.folder / f"{name}.onnx"

    def factors(self) -> Factors:
        """Raises ModelFileError."""
        try:
            with np.load(self.folder / _FACTORS) as arrays:
                found = dict(arrays)
            last_gain = found.pop(_LAST_GAIN)
        except (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise self.damaged() from error
        columns, gains = (
            {k[len(kind) :]: v for k, v in found.items() if k.startswith(kind)} for kind in (_COLUMNS, _GAIN)
        )
        return Factors(columns, gains, last_gain)

    def damaged(self) -> ModelFileError:
        """What is raised where a file does not hold what it should."""
        return ModelFileError(f"{self.folder}: damaged; delete it, and it is made anew at the next start")

    def embedding(self) -> np.ndarray:
        """float16 [vocab, width], read-only, mapped from the file. Raises ModelFileError."""
        try:
            return np.load(self.folder / "embedding.npy", mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise self.damaged() from error


def converted(gguf: Path, sha256: str, report: Report) -> BrainFiles:
    """The files made from `gguf`, whose hash is `sha256`; converts where that is still to be done.

    Raises ModelFileError if the file is foreign or the result cannot be stored."""
    folder = _folder(home() / "local", sha256, _VERSION)
    if not folder.exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with (folder.parent / ".smollm2.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Another process may have done it while this one waited.
                if not folder.exists():
                    _convert(gguf, sha256, folder, report)
        except OSError as error:
            raise ModelFileError(
                f"{folder}: cannot be written ({error.strerror}); free 220 MB there or set VOICE_APP_HOME"
            ) from error
    return BrainFiles(folder)


def _convert(gguf: Path, sha256: str, folder: Path, report: Report) -> None:
    brain = GgufBrain(gguf)
    for left in folder.parent.glob(".part-*"):
        shutil.rmtree(left, ignore_errors=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".part-"))
    (part / "shape.json").write_text(json.dumps(asdict(brain.shape)))
    brain.tokenizer().save(str(part / "tokenizer.json"))
    np.save(part / "embedding.npy", brain.tensor("token_embd.weight").astype(np.float16))
    files = BrainFiles(part)
    factors = {_LAST_GAIN: brain.tensor("output_norm.weight")}
    whole = 4 * brain.shape.layers + 1
    for number, matrix in enumerate(matrices(brain, brain.tokenizer().encode(_example()).ids)):
        files.matrix(matrix.name).write_bytes(product_graph(matrix.weight).SerializeToString())
        factors[_COLUMNS + matrix.name] = matrix.columns
        if matrix.gain is not None:
            factors[_GAIN + matrix.name] = matrix.gain
        report(f"converting the thinker's weights: {100 * (number + 1) // whole} %")
    np.savez(part / _FACTORS, allow_pickle=False, **factors)
    os.replace(part, folder)
    for version in range(1, _VERSION):
        shutil.rmtree(_folder(folder.parent, sha256, version), ignore_errors=True)


def _folder(home: Path, sha256: str, version: int) -> Path:
    return home / f"smollm2-{sha256[:12]}-v{version}"


def _example() -> str:
    """Turns as the brain will see them."""
    said = [
        ("system", SYSTEM),
        *((who, text) for turn in EXAMPLES for who, text in zip(_WHO, turn, strict=True)),
    ]
    return "".join(f"<|im_start|>{who}\n{text}<|im_end|>\n" for who, text in said)
