"""The packaged brain's converted files: made once from the GGUF, then opened in well under a second.

They lie in `<home>/local/smollm2-<hash>-v<version>/`: `tokenizer.json`, `embedding.npy` (float16
[vocab, width], mapped into memory so that processes share it), and the ONNX graphs. The folder appears whole
or not at all.
"""

import fcntl
import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np

from voice_app.config import home
from voice_app.errors import ModelFileError
from voice_app.models.base import Report
from voice_app.models.local.brain_graphs import between_graph, first_graph, head_graph
from voice_app.models.local.brain_weights import BrainShape, GgufBrain

_VERSION = 1
"""Raise it when the conversion changes, so that old files are made anew."""


class BrainFiles:
    """Where the parts of the converted brain are."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelFileError if the folder is damaged."""
        self.folder = folder
        try:
            self.shape = BrainShape(**json.loads((folder / "shape.json").read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise self._damaged() from error
        self.tokenizer = folder / "tokenizer.json"
        self.head = folder / "head.onnx"
        self.first = folder / "first.onnx"

    def between(self, layer: int) -> Path:
        return self.folder / f"between-{layer:02}.onnx"

    def embedding(self) -> np.ndarray:
        """float16 [vocab, width], read-only, mapped from the file. Raises ModelFileError."""
        try:
            return np.load(self.folder / "embedding.npy", mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise self._damaged() from error

    def _damaged(self) -> ModelFileError:
        return ModelFileError(f"{self.folder}: damaged; delete it, and it is made anew at the next start")


def converted(gguf: Path, sha256: str, report: Report) -> BrainFiles:
    """The files made from `gguf`, whose hash is `sha256`; converts where that is still to be done.

    Raises ModelFileError if the file is foreign or the result cannot be stored."""
    folder = home() / "local" / f"smollm2-{sha256[:12]}-v{_VERSION}"
    if not folder.exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with (folder.parent / ".smollm2.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Another process may have done it while this one waited.
                if not folder.exists():
                    _convert(gguf, folder, report)
        except OSError as error:
            raise ModelFileError(
                f"{folder}: cannot be written ({error.strerror}); free 220 MB there or set VOICE_APP_HOME"
            ) from error
    return BrainFiles(folder)


def _convert(gguf: Path, folder: Path, report: Report) -> None:
    brain = GgufBrain(gguf)
    for left in folder.parent.glob(".part-*"):
        shutil.rmtree(left, ignore_errors=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".part-"))
    (part / "shape.json").write_text(json.dumps(asdict(brain.shape)))
    brain.tokenizer().save(str(part / "tokenizer.json"))
    np.save(part / "embedding.npy", brain.tensor("token_embd.weight").astype(np.float16))
    files = BrainFiles(part)
    files.head.write_bytes(head_graph(brain).SerializeToString())
    files.first.write_bytes(first_graph(brain).SerializeToString())
    layers = brain.shape.layers
    for layer in range(layers):
        files.between(layer).write_bytes(between_graph(brain, layer).SerializeToString())
        report(f"converting the thinker's weights: {100 * (layer + 1) // layers} %")
    os.replace(part, folder)
