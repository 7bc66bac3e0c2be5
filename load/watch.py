"""What the server did meanwhile: CPU and memory of every process, talks, queues of the stages."""

import contextlib
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import Any

import msgspec
import psutil
from prometheus_client.parser import text_string_to_metric_families

HTTP_TIMEOUT_S = 2.0
CLIENT = "callers"
"""This process."""
_SUMS = ("voice_app_talks", "voice_app_talks_waiting", "voice_app_pipeline_turns")
_BY_STAGE = ("voice_app_stage_waiting", "voice_app_stage_running")


class ProcessSample(msgspec.Struct, frozen=True):
    """`cpu`: of one core, in percent, since the sample before; `memory_mb`: resident."""

    cpu: float
    memory_mb: float


class Sample(msgspec.Struct, frozen=True):
    """At `at`: every process by name, the server's sums by name, and per stage what waits and runs."""

    at: float
    processes: dict[str, ProcessSample]
    sums: dict[str, float]
    waiting: dict[str, float]
    running: dict[str, float]


class Watch:
    """`server`: its process, None if it runs elsewhere; `http`: its address, http://HOST:PORT."""

    def __init__(self, http: str, server: psutil.Process | None, clock: Callable[[], float]) -> None:
        self.samples: list[Sample] = []
        self._http = http
        self._server = server
        self._clock = clock
        self._processes: dict[str, psutil.Process] = {CLIENT: psutil.Process()}
        self._used: dict[int, tuple[float, float]] = {}

    def look(self) -> None:
        """Take one sample. A server that does not answer leaves gaps in it."""
        self._find_processes()
        processes: dict[str, ProcessSample] = {}
        for name, process in list(self._processes.items()):
            try:
                processes[name] = self._measure(process)
            except psutil.NoSuchProcess:
                del self._processes[name]
        metrics = self._metrics()
        self.samples.append(
            Sample(
                self._clock(),
                processes,
                {name: metrics[name, ""] for name in _SUMS if (name, "") in metrics},
                *({s: v for (name, s), v in metrics.items() if name == wanted} for wanted in _BY_STAGE),
            )
        )

    def _measure(self, process: psutil.Process) -> ProcessSample:
        with process.oneshot():
            used, now = sum(process.cpu_times()[:2]), time.perf_counter()
            memory_mb = process.memory_info().rss / 1e6
        before, at = self._used.get(process.pid, (used, now))
        self._used[process.pid] = used, now
        return ProcessSample(100 * (used - before) / (now - at) if now > at else 0.0, memory_mb)

    def _find_processes(self) -> None:
        """The server's and its children's, each child asked for its name once."""
        if self._server is None:
            return
        known = {process.pid for process in self._processes.values()}
        with contextlib.suppress(psutil.NoSuchProcess):
            found = [self._server, *self._server.children(recursive=True)]
            strangers = [process for process in found if process.pid not in known]
            if strangers:
                workers = self._workers()
                for process in strangers:
                    name = "server" if process.pid == self._server.pid else workers.get(process.pid, "")
                    self._processes[self._free(name or process.name())] = process

    def _free(self, name: str) -> str:
        names = (name, *(f"{name} {number}" for number in range(2, 100)))
        return next(name for name in names if name not in self._processes)

    def _workers(self) -> dict[int, str]:
        """pid → name of the worker."""
        rows: list[dict[str, Any]] = []
        with contextlib.suppress(OSError, HTTPException, msgspec.DecodeError):
            rows = msgspec.json.decode(self._get("/ready")).get("stages", [])
        return {row["pid"]: f"worker {row['worker']}" for row in rows if row.get("pid")}

    def _metrics(self) -> dict[tuple[str, str], float]:
        """(name, stage or "") → value."""
        found: dict[tuple[str, str], float] = {}
        with contextlib.suppress(OSError, HTTPException, ValueError):
            for family in text_string_to_metric_families(self._get("/metrics").decode()):
                if family.name in (*_SUMS, *_BY_STAGE):
                    for sample in family.samples:
                        found[sample.name, sample.labels.get("stage", "")] = sample.value
        return found

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self._http + path, timeout=HTTP_TIMEOUT_S) as answer:
            return answer.read()
