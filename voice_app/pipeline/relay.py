"""A worker's log lines on their way through its stderr to the server's log."""

import asyncio
import logging
import sys

from voice_app import log

_LEVELS = {name: value for name, value in logging.getLevelNamesMapping().items() if name != "NOTSET"}


def log_to_parent() -> None:
    """In a worker: log to stderr in the form that `relay` reads. Raises ConfigError (VOICE_APP_LOG)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s|%(name)s|%(message)s"))
    root = logging.getLogger("voice_app")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(log.level())


async def relay(worker: str, lines: asyncio.StreamReader) -> list[str]:
    """In the server: log what `worker` writes until it ends; returns its last lines.

    A line without level (a traceback, a library's own print) goes on at the level of the line before."""
    level, name = logging.INFO, "voice_app.worker"
    last: list[str] = []
    while line := await _line(lines):
        text = line.decode(errors="replace").rstrip()
        head, _, rest = text.partition("|")
        if head in _LEVELS and "|" in rest:
            level = _LEVELS[head]
            name, _, text = rest.partition("|")
        if text:
            logging.getLogger(name).log(level, "%s: %s", worker, text)
            last = [*last[-4:], text]
    return last


async def _line(lines: asyncio.StreamReader) -> bytes:
    try:
        return await lines.readline()
    except ValueError:
        # Longer than the reader's limit; what was dropped is not worth a worker.
        return b"(a line too long to show)\n"
