"""Decodes pictures: JPEG, PNG or WebP bytes → upright RGB arrays of a bounded size."""

import io
import struct
import warnings

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from voice_app.errors import InputError

MAX_SIDE = 960
"""Longer side of a decoded picture in pixels: enough to read a sign, small enough to be quick."""

MAX_BYTES = 20_000_000
MAX_PIXELS = 50_000_000
_FORMATS = ("JPEG", "PNG", "WEBP")
_DAMAGE = (OSError, SyntaxError, ValueError, TypeError, LookupError, OverflowError, struct.error)
"""What Pillow raises for damaged files, by where the damage is."""
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What makes a picture upright, by its EXIF orientation (EXIF 2.3, 4.6.4)."""


def decode(data: bytes, name: str = "image", most_pixels: int = MAX_PIXELS) -> np.ndarray:
    """[rows, columns, 3] float32 RGB in [0, 1], turned upright, the longer side at most `MAX_SIDE`. `name` is
    what errors call it.

    Raises InputError: not a JPEG, PNG or WebP, damaged, or too large to be opened safely."""
    if len(data) > MAX_BYTES:
        raise InputError(f"{name}: {len(data) / 1e6:.0f} MB; at most {MAX_BYTES / 1e6:.0f} MB", param="image")
    try:
        with warnings.catch_warnings():
            # Pillow warns of what the check of the pixels below refuses.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=_FORMATS)
        width, height = image.size
        if width * height > most_pixels:
            raise InputError(
                f"{name}: {width} x {height} pixels; make it smaller, at most {most_pixels:,} in all",
                param="image",
            )
        # Lets a JPEG decode at a fraction of its size.
        image.draft("RGB", (MAX_SIDE, MAX_SIDE))
        return _pixels(image)
    except Image.DecompressionBombError as error:
        raise InputError(
            f"{name}: the picture is too large; make it smaller, at most {most_pixels:,} pixels in all",
            param="image",
        ) from error
    except _DAMAGE as error:
        # Pillow's words for what it does not know show the address of an object.
        reason = "" if isinstance(error, UnidentifiedImageError) else f" ({error})"
        raise InputError(
            f"{name}: not a readable JPEG, PNG or WebP picture{reason}; save it again", param="image"
        ) from error


def _pixels(image: Image.Image) -> np.ndarray:
    image.load()
    turn = _turn(image)
    upright = image if turn is None else image.transpose(turn)
    if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
        # What is transparent is usually shown on white.
        over = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", over.size, "white"), over)
    upright = upright.convert("RGB")
    upright.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.BILINEAR)
    return np.asarray(upright, np.float32) / 255.0


def _turn(image: Image.Image) -> Image.Transpose | None:
    """How to turn `image` upright; None: as it is, or its EXIF data can't be read."""
    try:
        return _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except _DAMAGE:
        return None
