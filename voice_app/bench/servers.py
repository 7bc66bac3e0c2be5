"""Servers in processes of their own, on a free port, ready when they are given and ended afterwards."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from voice_app.errors import PipelineError

START_S = 120.0
STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a server is started in. `environment` is added to ours; `log`: a file for what it prints (None:
    one that is thrown away); `niceness` above 0 lets other processes go first."""

    environment: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    niceness: int = 0


@contextlib.contextmanager
def free_server(
    surroundings: Surroundings | None = None, options: Sequence[str] = ()
) -> Iterator[tuple[int, psutil.Process]]:
    """The server over a pipeline that costs nothing. Gives its port and its process. Raises PipelineError if
    it does not get ready."""
    module = ["-m", "voice_app.bench.free_server"]
    with _server(lambda port: [*module, str(port), *options], surroundings) as started:
        yield started


@contextlib.contextmanager
def pack_server(
    options: Sequence[str] = (), surroundings: Surroundings | None = None
) -> Iterator[tuple[int, psutil.Process]]:
    """`voice-app serve` with the local pack and `options`. Gives its port and its process. Raises
    PipelineError if it does not get ready."""
    with tempfile.TemporaryDirectory() as data:
        arguments = ["-m", "voice_app", "serve", "--data", data, *options]
        with _server(lambda port: [*arguments, "--port", str(port)], surroundings) as started:
            yield started


@contextlib.contextmanager
def _server(
    arguments: Callable[[int], Sequence[str]], surroundings: Surroundings | None
) -> Iterator[tuple[int, psutil.Process]]:
    surroundings = surroundings or Surroundings()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, *arguments(port)]
    if surroundings.niceness:
        command = ["nice", "-n", str(surroundings.niceness), *command]
    with tempfile.TemporaryDirectory() as folder:
        log = surroundings.log or Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env={**os.environ, **surroundings.environment}
            )
        try:
            _wait_ready(port, process, log)
            yield port, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(STOP_S)


def _wait_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=2),
        ):
            return
        time.sleep(0.1)
    ended = (
        f"ended with exit code {process.returncode}" if process.poll() is not None else "did not get ready"
    )
    *_, last = ["", *log.read_text(errors="replace").splitlines()]
    raise PipelineError(f"the server {ended}: {last}" if last else f"the server {ended}")
