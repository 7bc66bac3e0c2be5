"""The systems that are compared, as running processes: ours, pipecat as it comes, pipecat tuned."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from load.rivals.environment import Rival
from load.rivals.lines import Line, Pipecat, Realtime
from voice_app.bench.servers import START_S, Surroundings, pack_server
from voice_app.errors import PipelineError
from voice_app.models.local.brain import STYLE
from voice_app.models.local.prompt import EXAMPLES, SYSTEM

STOP_S = 20.0
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class System:
    """`processes`: the roots of all that serves it."""

    name: str
    line: Line
    port: int
    processes: tuple[psutil.Process, ...]

    def cpu_s(self) -> float:
        """CPU seconds of all its processes so far."""
        return sum(sum(p.cpu_times()[:2]) for p in self._all())

    def memory_gb(self) -> float:
        """Resident memory; pages that processes share count in each."""
        return sum(p.memory_info().rss for p in self._all()) / 1e9

    def _all(self) -> list[psutil.Process]:
        return [p for root in self.processes for p in (root, *root.children(recursive=True))]


@dataclass(frozen=True, slots=True)
class Tuning:
    """How pipecat and the llama.cpp beside it are set up. `threads`: OMP_NUM_THREADS and llama.cpp's; 0:
    their own choice."""

    name: str
    smart_turn: bool
    compute_type: str
    slots: int
    threads: int


DEFAULT = Tuning("pipecat", smart_turn=True, compute_type="default", slots=4, threads=0)
"""pipecat's defaults, and those of llama.cpp's server: four slots, a thread a core."""
TUNED = Tuning("pipecat tuned", smart_turn=False, compute_type="int8", slots=8, threads=1)


@contextlib.contextmanager
def ours() -> Iterator[System]:
    """`voice-app serve` with the local pack."""
    with pack_server(surroundings=Surroundings({"OMP_NUM_THREADS": "1"})) as (port, process):
        yield System("voice-app", Realtime(), port, (process,))


@contextlib.contextmanager
def pipecat(rival: Rival, tuning: Tuning, stop_s: float) -> Iterator[System]:
    """pipecat, with llama.cpp as its language model, over the local pack's weights and with its prompt."""
    port, brain_port = _free_port(), _free_port()
    settings = {
        "port": port,
        "brain_port": brain_port,
        "whisper": str(rival.whisper),
        "voice": str(rival.voice),
        "messages": _messages(),
        "max_tokens": STYLE.max_tokens,
        "stop_s": stop_s,
        "smart_turn": tuning.smart_turn,
        "compute_type": tuning.compute_type,
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as told, contextlib.ExitStack() as stack:
        json.dump(settings, told)
        told.flush()
        brain = stack.enter_context(
            _running(
                [
                    rival.python,
                    HERE / "llama_server.py",
                    brain_port,
                    rival.gguf,
                    tuning.slots,
                    tuning.threads,
                ],
                tuning.threads,
            )
        )
        _wait(f"http://127.0.0.1:{brain_port}/health", brain)
        _fill_slots(brain_port, tuning.slots)
        bot = stack.enter_context(
            _running([rival.python, HERE / "pipecat_server.py", told.name], tuning.threads)
        )
        _wait(f"http://127.0.0.1:{port}/ready", bot)
        yield System(
            tuning.name, Pipecat(rival.python), port, (psutil.Process(brain.pid), psutil.Process(bot.pid))
        )


def _fill_slots(port: int, slots: int) -> None:
    """Let each slot of llama.cpp read the example turns before somebody waits for it: seconds, once."""
    body = json.dumps({"messages": _messages(), "max_tokens": 1}).encode()

    def read_once(_: int) -> None:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/v1/chat/completions", body, timeout=START_S
        ) as answer:
            answer.read()

    with ThreadPoolExecutor(slots) as pool:
        list(pool.map(read_once, range(slots)))


def _messages() -> list[dict[str, str]]:
    """The example turns that our own brain has before every talk."""
    turns = [
        {"role": role, "content": said}
        for pair in EXAMPLES
        for role, said in zip(("user", "assistant"), pair, strict=True)
    ]
    return [{"role": "system", "content": SYSTEM}, *turns]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def _running(command: Sequence[object], threads: int) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            [*map(str, command)],
            env=_environment(os.environ, threads),
            stdout=subprocess.DEVNULL,
            stderr=told,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.returncode not in (0, -15):
                told.seek(0)
                sys.stderr.write(told.read().decode(errors="replace")[-2000:])


def _environment(own: Mapping[str, str], threads: int) -> dict[str, str]:
    """`own` with that many OpenMP threads; what `make` sets for our processes is no default of others."""
    kept = {name: value for name, value in own.items() if name != "OMP_NUM_THREADS"}
    return kept | ({"OMP_NUM_THREADS": str(threads)} if threads else {})


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.1)
    raise PipelineError(f"{url}: did not get ready")
