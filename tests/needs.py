"""What a test needs from the machine: skipped where it is missing, failed where CI=true."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest


def missing(what: str, how: str) -> NoReturn:
    """Skip with one line that says how to get `what`; fail under CI."""
    message = f"needs {what}: {how}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def command(name: str, package: str | None = None) -> str:
    """The path of a program."""
    path = shutil.which(name)
    if path is None:
        missing(name, f"apt-get install {package or name}")
    return path


def folder(path: str, package: str) -> Path:
    """A folder that a system package brings."""
    if not Path(path).is_dir():
        missing(path, f"apt-get install {package}")
    return Path(path)
