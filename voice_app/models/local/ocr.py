"""Text in a picture: PP-OCRv6's detector and recogniser on ONNX Runtime.

Both take BGR values in [-1, 1]. The detector gives a map of where text is; each line is cut out of the full
picture, brought to 48 rows, and read by a CTC recogniser. Upright text only: up to 45° of slant.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from voice_app.models.local.onnx_session import onnx_session
from voice_app.models.local.text_regions import TextBox, text_boxes

_DETECT_SIDE = 480
"""Longer side of what the detector sees, in pixels: 35 ms; letters 12 high in a picture of 640 are read."""
_STRIDE = 32
_THRESHOLD, _SURE, _GROW = 0.3, 0.5, 1.6
"""The published post-processing of the detector."""
_ROWS, _MAX_COLUMNS = 48, 1280
_READABLE = 0.7
"""Mean probability of a line's characters below which it is not shown."""
MAX_LINES = 8
"""Only the largest lines are read; a page full of small print is not for a voice."""


class Ocr:
    """Reads text. `folder` holds the detector's and the recogniser's graph."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        self._detector = onnx_session(folder / "PP-OCRv6_det_small.onnx", threads)
        self._recogniser = onnx_session(folder / "PP-OCRv6_rec_small.onnx", threads)
        characters = self._recogniser.get_modelmeta().custom_metadata_map["character"].split("\n")
        # CTC: 0 is the blank; the space comes last.
        self._characters = ["", *characters, " "]

    def read(self, picture: np.ndarray) -> str:
        """[rows, columns, 3] float32 RGB in [0, 1] → the text in it in reading order, or ""."""
        image = Image.fromarray((picture * 255.0).astype(np.uint8))
        boxes = reading_order(self.find(image)[:MAX_LINES])
        text = " ".join(text for box in boxes if (text := self._line(_cut(image, box))))
        # A round thing often passes for one letter or digit.
        return text if sum(character.isalnum() for character in text) > 1 else ""

    def find(self, image: Image.Image) -> list[TextBox]:
        """The lines of text in `image`, largest first, in its pixels."""
        scale = min(1.0, _DETECT_SIDE / max(image.size))
        columns, rows = (max(_STRIDE, round(side * scale / _STRIDE) * _STRIDE) for side in image.size)
        small = image.resize((columns, rows), Image.Resampling.BILINEAR)
        probability = np.asarray(self._detector.run(None, {"x": _values(small)})[0])[0, 0]
        boxes = text_boxes(probability, _THRESHOLD, _SURE, _GROW)
        across, down = image.width / columns, image.height / rows
        return [
            TextBox(box.x * across, box.y * down, box.width * across, box.height * down, box.angle)
            for box in boxes
        ]

    def _line(self, image: Image.Image) -> str:
        scores = np.asarray(self._recogniser.run(None, {"x": _values(image)})[0])[0]
        best = scores.argmax(axis=1)
        # A character held over several steps counts once.
        kept = (best != 0) & np.append(True, best[1:] != best[:-1])
        if not kept.any() or float(scores.max(axis=1)[kept].mean()) < _READABLE:
            return ""
        return "".join(self._characters[i] for i in best[kept]).strip()


def reading_order(boxes: Sequence[TextBox]) -> list[TextBox]:
    """Lines from top to bottom; boxes whose middle is within half a height of a line's first are its words,
    from left to right."""
    lines: list[list[TextBox]] = []
    for box in sorted(boxes, key=lambda box: box.y):
        if lines and box.y - lines[-1][0].y < 0.5 * min(box.height, lines[-1][0].height):
            lines[-1].append(box)
        else:
            lines.append([box])
    return [box for line in lines for box in sorted(line, key=lambda box: box.x)]


def _cut(image: Image.Image, box: TextBox) -> Image.Image:
    """The box of `image`, turned level, 48 rows high."""
    scale = box.height / _ROWS
    columns = min(_MAX_COLUMNS, max(_ROWS, round(box.width / scale)))
    stretch = box.width / columns
    cosine, sine = math.cos(box.angle), math.sin(box.angle)
    x = box.x - cosine * box.width / 2 + sine * box.height / 2
    y = box.y - sine * box.width / 2 - cosine * box.height / 2
    matrix = (cosine * stretch, -sine * scale, x, sine * stretch, cosine * scale, y)
    return image.transform((columns, _ROWS), Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC)


def _values(image: Image.Image) -> np.ndarray:
    """[1, 3, rows, columns] float32 BGR in [-1, 1]."""
    bgr = np.asarray(image, np.float32)[:, :, ::-1]
    return np.ascontiguousarray((bgr / 127.5 - 1.0).transpose(2, 0, 1)[np.newaxis])
