"""A worker's log lines on their way through its stderr to the server's log; and the one line by which it says
that it cannot begin, when it has no other way."""

import asyncio
import logging
import sys
from typing import NamedTuple

import msgspec

from voice_app import log
from voice_app.errors import ErrorInfo

_REFUSED = "REFUSED"
_LEVELS = {name: value for name, value in logging.getLevelNamesMapping().items() if name != "NOTSET"}


def log_to_parent() -> None:
    """In a worker: log to stderr in the form that `relay` reads. Raises ConfigError (VOICE_APP_LOG)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s|%(name)s|%(message)s"))
    root = logging.getLogger("voice_app")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(log.level())


def refuse(error: ErrorInfo) -> None:
    """In a worker that cannot begin: say why."""
    sys.stderr.write(f"{_REFUSED}|{msgspec.json.encode(error).decode()}\n")


class Said(NamedTuple):
    """What a worker said last."""

    last: str = ""
    """The last line of its log."""
    refusal: ErrorInfo | None = None


async def relay(worker: str, lines: asyncio.StreamReader) -> Said:
    """In the server: log what `worker` writes until it ends.

    A line without level (a traceback, a library's own print) goes on at the level of the line before."""
    level, name = logging.INFO, "voice_app.worker"
    said = Said()
    while line := await _line(lines):
        text = line.decode(errors="replace").rstrip()
        head, _, rest = text.partition("|")
        if head == _REFUSED:
            said = said._replace(refusal=_refusal(rest))
            continue
        if head in _LEVELS and "|" in rest:
            level = _LEVELS[head]
            name, _, text = rest.partition("|")
        if text:
            logging.getLogger(name).log(level, "%s: %s", worker, text)
            said = said._replace(last=text)
    return said


def _refusal(text: str) -> ErrorInfo | None:
    try:
        return msgspec.json.decode(text, type=ErrorInfo)
    except msgspec.DecodeError:
        return None  # It was not ours.


async def _line(lines: asyncio.StreamReader) -> bytes:
    try:
        return await lines.readline()
    except ValueError:
        # Longer than the reader's limit; what was dropped is not worth a worker.
        return b"(a line too long to show)\n"
