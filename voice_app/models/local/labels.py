"""What a picture shows, in a word or two: EfficientNet-lite0 over ImageNet's classes."""

from importlib import resources

import numpy as np
import onnxruntime
from PIL import Image

from voice_app.models.local.efficientnet import SIDE

_SURE = 0.5
"""Probability from which a class is named by its own name."""
_LIKELY = 0.3
"""Probability from which it, or the wider name with the most probability, is shown at all; below, labels are
more often wrong than right, and there is no class for a person."""


class Labels:
    """Names the main thing in a picture."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._names, groups = _read_names()
        self._groups = sorted(set(groups))
        self._group_of = np.array([self._groups.index(group) for group in groups])

    def name(self, picture: np.ndarray) -> str:
        """[rows, columns, 3] float32 RGB in [0, 1] → a name, or "" where nothing is recognised."""
        return self.choose(self.scores(picture))

    def scores(self, picture: np.ndarray) -> np.ndarray:
        """[1000] float32: the probability of each class, over the whole picture (squeezed to a square, since
        what is held into a camera may be at its side)."""
        image = Image.fromarray((picture * 255.0).astype(np.uint8))
        small = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float32)
        pixels = ((small - 127.0) / 128.0).transpose(2, 0, 1)[None]
        return np.asarray(self._session.run(None, {"pixels": np.ascontiguousarray(pixels)})[0])[0]

    def choose(self, scores: np.ndarray) -> str:
        """A class that is sure by its own name; else the likeliest wider name (a cat of no sure breed)."""
        best = int(scores.argmax())
        if scores[best] >= _SURE:
            return self._names[best]
        wider = np.bincount(self._group_of, weights=scores, minlength=len(self._groups))
        group = int(wider.argmax())
        return self._groups[group] if wider[group] >= _LIKELY else ""


def _read_names() -> tuple[list[str], list[str]]:
    """Each class's own name and its wider one (the same where there is none)."""
    text = (resources.files("voice_app.models.local") / "data" / "imagenet_labels.txt").read_text("utf-8")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    return [row[0] for row in rows], [row[-1] for row in rows]
