"""What can be found out about paths and addresses before any model is loaded."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import soundfile

from voice_app.errors import ConfigError, InputError

MAX_PIXELS = 100_000_000
"""Of a picture for a pack whose own bound is not known here: more would take gigabytes."""


def check_out(path: Path) -> None:
    """Raise InputError if a spoken answer could not be written to `path`."""
    if path.is_dir():
        raise InputError(f"--out {path}: is a folder; name a file in it, such as answer.wav", param="out")
    if path.suffix[1:].upper() not in soundfile.available_formats():
        raise InputError(f"--out {path}: give a name that ends in .wav, .flac, .ogg or .mp3", param="out")
    if not path.parent.is_dir():
        raise InputError(f"--out {path}: there is no folder {path.parent}; make it first", param="out")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(
            f"--out {path}: permission denied; name a file that you may write, in a folder of yours",
            param="out",
        )


def check_picture(data: bytes, name: str, pack: str) -> None:
    """Raise InputError if `data` is no picture, or too large for the local pack; another pack has a bound of
    its own."""
    # Imported here: who sends no picture need not wait for it.
    from voice_app.models.local import pictures

    pictures.decode(data, name, pictures.MAX_PIXELS if pack == "local" else MAX_PIXELS)


def check_data(folder: Path) -> None:
    """Raise ConfigError if `folder` neither is nor can become a folder of this user."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise ConfigError(f"--data {folder}: {there} is a file; name a folder", param="data")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"--data {folder}: permission denied; name a folder of yours", param="data")


def check_redis(url: str) -> None:
    """Raise ConfigError if `url` is not a Redis URL."""
    # Imported here: only a server has a use for it.
    from redis.asyncio.connection import parse_url

    try:
        parse_url(url)
    except ValueError as error:
        raise ConfigError(
            f"--redis {url}: not a Redis URL; give one such as redis://localhost:6379/0", param="redis"
        ) from error


def check_origin(origin: str) -> None:
    """Raise ConfigError if `origin` is neither "*" nor what a browser sends (RFC 6454, 6.1)."""
    if origin == "*":
        return
    try:
        scheme, host, *rest = urlsplit(origin)
    except ValueError:
        scheme, host, rest = "", "", []
    if not (scheme and host) or any(rest):
        raise ConfigError(
            f'--origin "{origin}": give scheme and host of a page, such as https://example.org',
            param="origin",
        )
