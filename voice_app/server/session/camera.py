"""The newest camera frames: a bounded ring without near-duplicates. What is in it when a turn ends belongs to
that turn."""

import io
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from PIL import Image, UnidentifiedImageError

from voice_app.server.protocol.errors import ProtocolError

FRAMES_KEPT = 4
MAX_FRAME_BYTES = 4 << 20
MAX_PIXELS = {"JPEG": 4096 * 4096, "PNG": 1920 * 1088, "WEBP": 1920 * 1088}
"""By format: every picture is looked at in the server's own loop, where others wait. A JPEG is decoded at an
eighth of its size for that (3 ms for 1080p); the others as a whole (some 30 ms)."""
PICTURES_PER_S, PICTURES_BURST = 5, 30
"""Of one talk."""
SAME_BITS = 3
"""Frames whose hashes differ in so few of 64 bits show the same: noise of a still camera stays below."""


@dataclass(frozen=True, slots=True)
class Frame:
    """`data`: the encoded file, of media type `media_type`; `hash`: 64 bits that say how it looks; `name`:
    the client's own."""

    data: bytes
    media_type: str
    hash: int
    name: str = ""


class Look(Protocol):
    """`look`, or one with limits before it."""

    def __call__(self, data: bytes, param: str, name: str = "") -> Frame: ...


def look(data: bytes, param: str, name: str = "") -> Frame:
    """Check and hash one encoded frame. Raises ProtocolError naming `param`."""
    if len(data) > MAX_FRAME_BYTES:
        raise _refused(param, f"larger than {MAX_FRAME_BYTES} bytes")
    try:
        with Image.open(io.BytesIO(data), formats=tuple(MAX_PIXELS)) as picture:
            form = picture.format or "JPEG"
            if picture.width * picture.height > MAX_PIXELS[form]:
                raise _refused(param, f"more than {MAX_PIXELS[form]} pixels ({form})")
            return Frame(data, Image.MIME[form], _difference_hash(picture), name)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _refused(param, "not a JPEG, PNG or WebP file that can be read") from error


def _refused(param: str, why: str) -> ProtocolError:
    return ProtocolError("invalid_value", f"Invalid value for '{param}': {why}.", param=param)


def _difference_hash(picture: Image.Image) -> int:
    """Of a 9 × 8 grey thumbnail: is each pixel brighter than its right neighbour? (Krawetz 2013, "dHash")"""
    picture.draft("L", (72, 64))  # A JPEG is then decoded at an eighth of its size.
    grey = np.asarray(picture.convert("L").resize((9, 8), Image.Resampling.BOX), np.int16)
    bits = (grey[:, :-1] > grey[:, 1:]).flatten()
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


class Camera:
    """The ring. `accepted` and `dropped` count frames."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque(maxlen=FRAMES_KEPT)
        self.accepted = 0
        self.dropped = 0

    def see(self, frame: Frame) -> bool:
        """Keep it, unless it looks like the one before."""
        if self._frames and (self._frames[-1].hash ^ frame.hash).bit_count() <= SAME_BITS:
            self.dropped += 1
            return False
        self._frames.append(frame)
        self.accepted += 1
        return True

    def frames(self) -> list[Frame]:
        """What a turn that ends now has seen, oldest first."""
        return list(self._frames)

    def clear(self) -> None:
        """The turn has taken them, or the client wants them forgotten."""
        self._frames.clear()
