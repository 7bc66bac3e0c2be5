"""Logging: one line an event, as text or JSON, each with its session and turn where there is one.

`bind(session=…, turn=…)` sets what the lines of the current task or thread carry. Call `set_up` once
in each process.
"""

import contextvars
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from voice_app.errors import ConfigError

LEVELS = ("debug", "info", "warning", "error", "critical")
FORMATS = ("text", "json")

_FIELDS: contextvars.ContextVar[dict[str, str] | None] = contextvars.ContextVar("log_fields", default=None)


@contextmanager
def bind(**fields: str) -> Iterator[None]:
    """Lines logged inside carry `fields`, in addition to those bound outside."""
    token = _FIELDS.set((_FIELDS.get() or {}) | fields)
    try:
        yield
    finally:
        _FIELDS.reset(token)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {k}={v}" for k, v in (_FIELDS.get() or {}).items())
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower():7} {record.name}{fields}: "
        line += record.getMessage()
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **(_FIELDS.get() or {}),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def set_up(default: str = "info") -> None:
    """Log to stderr at VOICE_APP_LOG's level, else `default`; VOICE_APP_LOG_FORMAT=json for JSON.

    Raises ConfigError that names the variable."""
    least = level(default)
    form = _chosen("VOICE_APP_LOG_FORMAT", FORMATS, "text")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    root = logging.getLogger("voice_app")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(least)


def level(default: str = "info") -> int:
    """What VOICE_APP_LOG asks for, else `default`, as `logging` counts. Raises ConfigError."""
    return logging.getLevelNamesMapping()[_chosen("VOICE_APP_LOG", LEVELS, default).upper()]


def _chosen(variable: str, choices: tuple[str, ...], default: str) -> str:
    chosen = (os.environ.get(variable) or default).lower()
    if chosen not in choices:
        raise ConfigError(f"{variable}={chosen}: choose one of {', '.join(choices)}", param=variable)
    return chosen
