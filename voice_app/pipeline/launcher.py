"""Starts the worker processes, watches them, restarts those that die, ends them."""

import asyncio
import functools
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from voice_app.config import PipelineConfig
from voice_app.errors import DeadlineExceeded, ErrorInfo, PipelineError, VoiceAppError, WorkerDied, from_info
from voice_app.messages import Stage
from voice_app.pipeline.control import SERVER, WorkerConfig
from voice_app.pipeline.layout import WorkerSpec
from voice_app.pipeline.relay import relay
from voice_app.pipeline.rundir import RunDir
from voice_app.pipeline.transport import shm

log = logging.getLogger(__name__)

MAX_LOAD_FAILURES = 3
"""Starts in a row that end before the worker is ready, until it is given up. One that dies at work is
started again for ever."""
FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 5.0
STEADY_S = 10.0
"""After so long at work the back-off begins anew."""
STOP_TIMEOUT_S = 5.0
"""After being told to end, a worker has so long; then it is killed."""
LAST_LINES_S = 0.5
"""What a worker that ended has logged is waited for so long."""


class WorkerState(StrEnum):
    """Where a worker is in its life."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(slots=True, eq=False)
class Worker:
    """One worker over all its incarnations."""

    spec: WorkerSpec
    state: WorkerState = WorkerState.STARTING
    incarnation: int = -1
    process: asyncio.subprocess.Process | None = None
    lines: asyncio.Task[list[str]] | None = None
    """Relays what it logs; ends with it."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    heard_at: float = 0.0
    """When it last said what it is doing; on the loop's clock."""
    refusal: VoiceAppError | None = None
    """Why it cannot start, or was given up."""

    @property
    def node(self) -> str:
        """The inbox's name of the current incarnation: a new one never gets old mail."""
        return f"{self.spec.name}.{self.incarnation}"

    @property
    def pid(self) -> int | None:
        """Its process, if there is one."""
        alive = self.process is not None and self.process.returncode is None
        return self.process.pid if self.process is not None and alive else None


class Launcher:
    """`up(worker, address)` is called before a worker starts, `down(worker, error)` after it ended."""

    def __init__(
        self,
        config: PipelineConfig,
        specs: list[WorkerSpec],
        run_dir: RunDir,
        up: Callable[[str, str], None],
        down: Callable[[str, WorkerDied], None],
    ) -> None:
        self._config = config
        self._run_dir = run_dir
        self._up = up
        self._down = down
        self.workers = {spec.name: Worker(spec) for spec in specs}
        self._places = {
            stage: tuple(spec.stages[stage] for spec in specs if stage in spec.stages) for stage in Stage
        }
        self._tasks: list[asyncio.Task[None]] = []
        self._settled: dict[str, asyncio.Future[None]] = {}
        self._stopping = False

    async def start(self) -> None:
        """Start all workers and wait until they are ready. Raises what keeps one from it."""
        loop = asyncio.get_running_loop()
        self._settled = {name: loop.create_future() for name in self.workers}
        for worker in self.workers.values():
            self._next_incarnation(worker)
        self._tasks = [
            asyncio.create_task(self._supervise(worker), name=f"supervise-{name}")
            for name, worker in self.workers.items()
        ]
        for task, future in zip(self._tasks, self._settled.values(), strict=True):
            task.add_done_callback(functools.partial(_pass_on, future))
        await asyncio.gather(*self._settled.values())

    async def stop(self) -> None:
        """End all workers; none is left when this returns."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._end(worker) for worker in self.workers.values()))
        lines = [worker.lines for worker in self.workers.values() if worker.lines]
        if lines:
            await asyncio.wait(lines, timeout=LAST_LINES_S)
        for worker in self.workers.values():
            worker.state = WorkerState.STOPPED
            shm.remove(self._run_dir.run, worker.node)

    def worker_progress(self, name: str) -> None:
        """Its message came: it gets `start_timeout_s` anew."""
        self.workers[name].heard_at = asyncio.get_running_loop().time()

    def worker_ready(self, name: str, incarnation: int) -> None:
        """Its message came."""
        worker = self.workers[name]
        if worker.incarnation == incarnation:
            worker.ready.set()

    def worker_refused(self, name: str, incarnation: int, error: ErrorInfo) -> None:
        """Its message came: another start would not help."""
        worker = self.workers[name]
        if worker.incarnation == incarnation:
            worker.refusal = from_info(error)
            worker.ready.set()

    def is_ready(self, name: str) -> bool:
        """Whether the worker takes turns."""
        return self.workers[name].state is WorkerState.READY

    def unready(self, names: frozenset[str]) -> PipelineError | None:
        """Why the workers `names` cannot take a turn now; None: they can."""
        for name in sorted(names):
            worker = self.workers[name]
            if worker.state is WorkerState.READY:
                continue
            reason = f": {worker.refusal}" if worker.refusal else ", try again"
            return PipelineError(f"worker {name} is {worker.state}{reason}")
        return None

    # ------------------------------------------------------------------------------- one worker's life

    async def _supervise(self, worker: Worker) -> None:
        deaths = load_failures = 0
        while True:
            lived_s, error = await self._live(worker)
            worker.state = WorkerState.RESTARTING
            deaths = 1 if lived_s >= STEADY_S else deaths + 1
            load_failures = 0 if lived_s else load_failures + 1
            if worker.refusal is None and load_failures >= MAX_LOAD_FAILURES:
                worker.refusal = WorkerDied(f"{error.message} ({load_failures} times in a row)")
            if worker.refusal is not None:
                worker.state = WorkerState.FAILED
                log.error("worker %s is given up: %s", worker.spec.name, worker.refusal)
                self._settle(worker, worker.refusal)
                return
            backoff_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (deaths - 1))
            log.warning("%s; it starts again in %.1f s", error.message, backoff_s)
            await asyncio.sleep(backoff_s)
            self._next_incarnation(worker)

    async def _live(self, worker: Worker) -> tuple[float, WorkerDied]:
        """One incarnation, from its start to its end; how long it was ready, and how it ended."""
        loop = asyncio.get_running_loop()
        process = await self._spawn(worker)
        assert process.stdout is not None
        worker.lines = lines = asyncio.create_task(relay(worker.spec.name, process.stdout))
        exit_task = asyncio.create_task(process.wait())
        ready = asyncio.create_task(worker.ready.wait())
        since = loop.time()
        lived_s = 0.0
        try:
            await self._while_it_starts(worker, {exit_task, ready})
            if ready.done() and worker.refusal is None and not exit_task.done():
                worker.state = WorkerState.READY
                self._settle(worker, None)
                since = loop.time()
                await exit_task
                lived_s = loop.time() - since
            elif not ready.done() and not exit_task.done():
                worker.refusal = DeadlineExceeded(
                    f"worker {worker.spec.name} was not ready and told of no progress for "
                    f"{self._config.start_timeout_s:g} s (start_timeout_s); give it more: --start-timeout"
                )
        finally:
            ready.cancel()
            if not self._stopping:
                await self._end(worker)
                await exit_task
                # By name, not by lock: it may have died while it made one.
                shm.remove(self._run_dir.run, worker.node)
        # A process that the worker left behind may keep its output open.
        await asyncio.wait({lines}, timeout=LAST_LINES_S)
        last = lines.result() if lines.done() else []
        error = WorkerDied(_obituary(worker.spec.name, process.returncode, lived_s, last))
        self._down(worker.spec.name, error)
        return lived_s, error

    async def _while_it_starts(self, worker: Worker, either: set[asyncio.Task[Any]]) -> None:
        """Wait for one of `either`, as long as the worker goes on telling of progress."""
        loop = asyncio.get_running_loop()
        worker.heard_at = loop.time()
        done: set[asyncio.Task[Any]] = set()
        while not done and (left_s := worker.heard_at + self._config.start_timeout_s - loop.time()) > 0:
            done, _ = await asyncio.wait(either, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    def _next_incarnation(self, worker: Worker) -> None:
        worker.incarnation += 1
        worker.ready.clear()
        self._up(worker.spec.name, self._run_dir.address(worker.node))

    async def _spawn(self, worker: Worker) -> asyncio.subprocess.Process:
        spec = worker.spec
        threads = str(self._config.pack.threads)
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        # -P: a file in the folder that the user happens to stand in must not shadow a module.
        command = (sys.executable, "-P", "-m", "voice_app.pipeline.worker", spec.name)
        worker.process = process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ | dict.fromkeys(names, threads),
            # Ctrl-C and a closed terminal are for the server; a worker ends when its stdin closes.
            start_new_session=True,
        )
        config = WorkerConfig(
            name=spec.name,
            incarnation=worker.incarnation,
            run=self._run_dir.run,
            pack=spec.pack(self._config.pack),
            places=self._places,
            addresses={SERVER: self._run_dir.address(SERVER)}
            | {name: self._run_dir.address(other.node) for name, other in self.workers.items()},
        )
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(config) + b"\n")
        return process

    async def _end(self, worker: Worker) -> None:
        """Close its stdin, which ends it; then harder."""
        process = worker.process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            log.warning("worker %s does not end by itself and is killed", worker.spec.name)
            process.kill()
            await process.wait()

    def _settle(self, worker: Worker, error: VoiceAppError | None) -> None:
        future = self._settled[worker.spec.name]
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def _pass_on(settled: asyncio.Future[None], supervisor: asyncio.Task[None]) -> None:
    """A supervisor that failed by itself must not leave `start` waiting."""
    if not supervisor.cancelled() and (error := supervisor.exception()) and not settled.done():
        settled.set_exception(error)


def _obituary(name: str, code: int | None, lived_s: float, last_lines: list[str]) -> str:
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    when = "" if lived_s else " while it loaded"
    why = f": {last_lines[-1]}" if last_lines and code and code > 0 else ""
    return f"worker {name} {how}{when}{why}"
