"""What can be found out about paths and addresses before any model is loaded."""

import argparse
import os
import tempfile
from datetime import datetime
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
    try:
        # Tried, not asked for: a mode tells nothing of a read-only disk, or to root.
        with path.open("ab") if path.exists() else tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(
            f"--out {path}: cannot be written ({error.strerror}); name a file in a folder of yours",
            param="out",
        ) from error


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


_FOREIGN = {"local": ("model",), "qwen3-omni": ("brain", "recogniser")}
"""Options that a pack has no use for."""


def check_models(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for an option that is another pack's, or names no file where only a file will do. A
    pack of the user's own may give the options a meaning of its own."""
    pack = arguments.pack
    for option in _FOREIGN.get(pack, ()):
        value = vars(arguments)[option]
        if value is not None:
            raise ConfigError(f"--{option} {value}: --pack {pack} has no use for it", param=option)
    if pack == "qwen3-omni":
        if not arguments.model:
            raise ConfigError("--pack qwen3-omni needs --model: a checkpoint folder or hub id", param="model")
        _check_path("model", arguments.model)
    if pack == "local":
        _check_path("brain", arguments.brain)
        _check_voice(arguments.voice)
        _check_recogniser(arguments.recogniser)


def _check_path(option: str, value: str | None) -> None:
    """What does not look like a path may be a hub id."""
    if value is None or Path(value).exists():
        return
    if not value or value.startswith(("/", ".", "~")) or value.endswith(".gguf"):
        raise ConfigError(f"--{option} {value}: there is no such file or folder", param=option)


def _check_voice(value: str | None) -> None:
    if value is not None and not Path(value).is_file():
        raise ConfigError(
            f"--voice {value}: there is no such file; give a Piper voice (.onnx, its .onnx.json beside it)",
            param="voice",
        )


def _check_recogniser(value: str | None) -> None:
    from voice_app.models.local.recognisers import RECOGNISERS

    if value is not None and value not in RECOGNISERS and not Path(value).expanduser().is_dir():
        raise ConfigError(
            f"--recogniser {value}: neither {' nor '.join(RECOGNISERS)} nor a folder", param="recogniser"
        )


def check_now(value: str) -> None:
    """Raise InputError if `value` is no ISO 8601 time."""
    try:
        datetime.fromisoformat(value)
    except ValueError as error:
        raise InputError(
            f"--now {value}: not an ISO 8601 time; give one such as 2026-11-29T21:05+01:00", param="now"
        ) from error
