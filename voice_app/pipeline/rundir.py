"""The private folder of one run: its sockets live there, under a path short enough for the kernel."""

import fcntl
import os
import secrets
import shutil
import tempfile
import time
from pathlib import Path

from voice_app.errors import ConfigError

_PREFIX = "voice-app-run-"
_LOCK = "lock"
_UNLOCKED_GRACE_S = 60.0
_MAX_SOCKET_PATH = 103
"""Longest path of a Unix socket in bytes on macOS; Linux takes 107."""
_LONGEST_NAME = 32
"""Room for the longest socket name: a worker's name (20), a dot and its incarnation."""


class RunDir:
    """Made with mode 0700 and held by a lock while this process lives; `run` is the run's id."""

    def __init__(self) -> None:
        base = _base()
        self.run = secrets.token_hex(4)
        self.path = base / f"{_PREFIX}{self.run}"
        try:
            base.mkdir(parents=True, exist_ok=True)
            self._lock = _make(self.path)
        except OSError as error:
            raise ConfigError(
                f"{self.path}: cannot be made: {error.strerror}; set VOICE_APP_RUN_DIR to a folder of yours",
                param="VOICE_APP_RUN_DIR",
            ) from error

    def address(self, node: str) -> str:
        """The address of `node`'s inbox."""
        return f"ipc://{self.path / node}"

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep() -> list[Path]:
    """Delete this user's run folders whose process is gone; returns them."""
    swept = []
    for path in _base().glob(f"{_PREFIX}*"):
        if _ownerless(path):
            shutil.rmtree(path, ignore_errors=True)
            swept.append(path)
    return swept


def _make(path: Path) -> int:
    """Make the folder and its held lock; gives the lock's descriptor. The lock gets its name only once it is
    held, so that no `sweep` ever finds it free. Raises OSError."""
    path.mkdir(mode=0o700)
    making = path / f"{_LOCK}.new"
    descriptor = os.open(making, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    making.rename(path / _LOCK)
    return descriptor


def _ownerless(path: Path) -> bool:
    try:
        if path.stat().st_uid != os.getuid():
            return False
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return _abandoned(path)
    except OSError:
        return False  # Not ours.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _abandoned(path: Path) -> bool:
    """Whether a folder without lock is not just being made or removed."""
    try:
        return time.time() - path.stat().st_mtime > _UNLOCKED_GRACE_S
    except OSError:
        return False


def _base() -> Path:
    chosen = os.environ.get("VOICE_APP_RUN_DIR")
    base = Path(chosen) if chosen else Path(tempfile.gettempdir())
    length = len(os.fsencode(base / f"{_PREFIX}{'x' * 8}")) + 1 + _LONGEST_NAME
    if length <= _MAX_SOCKET_PATH:
        return base
    if chosen:
        raise ConfigError(
            f"VOICE_APP_RUN_DIR {base}: too long for a socket's path, choose one of at most "
            f"{_MAX_SOCKET_PATH - (length - len(os.fsencode(base)))} bytes",
            param="VOICE_APP_RUN_DIR",
        )
    return Path("/tmp")
