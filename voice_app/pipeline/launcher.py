"""Starts the workers on their hosts, watches them, restarts those that die, ends them."""

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from voice_app.config import PipelineConfig
from voice_app.errors import (
    ConfigError,
    DeadlineExceeded,
    ErrorInfo,
    PipelineError,
    VoiceAppError,
    WorkerDied,
    from_info,
)
from voice_app.messages import Stage
from voice_app.pipeline.control import SERVER, WorkerConfig
from voice_app.pipeline.hosts.base import Ending, Host, WorkerProcess
from voice_app.pipeline.hosts.local import LocalHost
from voice_app.pipeline.layout import WorkerSpec
from voice_app.pipeline.links import SILENT_S
from voice_app.pipeline.network import Network, is_here
from voice_app.pipeline.restarts import Restarts

log = logging.getLogger(__name__)

LAST_WORDS_S = 2.0
"""How a worker that was ended did so is waited for so long."""


class WorkerState(StrEnum):
    """Where a worker is in its life."""

    STARTING = "starting"
    READY = "ready"
    UNREACHABLE = "unreachable"
    """It was ready when it was last heard of, on another host."""
    RESTARTING = "restarting"
    FAILED = "failed"
    """It cannot be started. One that was ready before is tried again now and then."""
    STOPPED = "stopped"


@dataclass(slots=True, eq=False)
class Worker:
    """One worker over all its incarnations."""

    spec: WorkerSpec
    state: WorkerState = WorkerState.STARTING
    incarnation: int = -1
    process: WorkerProcess | None = None
    ended: asyncio.Task[Ending] | None = None
    """Waits for the process."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    heard_at: float = 0.0
    """When it last said what it is doing; on the loop's clock."""
    refusal: VoiceAppError | None = None
    """Why this incarnation of it cannot start."""
    trouble: VoiceAppError | None = None
    """What its last incarnation ended of, until the next is ready."""

    @property
    def pid(self) -> int | None:
        """Its process on its host, if there is one."""
        return self.process.pid if self.process is not None else None


class Launcher:
    """`far`: what starts workers on other hosts. `silence`: for how long a worker was not heard of.
    `up(worker, addresses)` is called before a worker starts, with its address for each node that may write to
    it, `down(worker, error)` after it ended."""

    def __init__(
        self,
        config: PipelineConfig,
        specs: list[WorkerSpec],
        run: str,
        network: Network,
        far: Host | None,
        silence: Callable[[str], float],
        up: Callable[[str, Mapping[str, str]], None],
        down: Callable[[str, WorkerDied], None],
    ) -> None:
        self._config = config
        self._run = run
        self._network = network
        self._here = LocalHost()
        self._far = far
        self._silence = silence
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
        for task, worker in zip(self._tasks, self.workers.values(), strict=True):
            task.add_done_callback(functools.partial(self._supervised, worker))
        await asyncio.gather(*self._settled.values())

    async def stop(self) -> None:
        """End all workers; none is left when this returns."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(w.process.end() for w in self.workers.values() if w.process is not None))
        endings = [worker.ended for worker in self.workers.values() if worker.ended is not None]
        if endings:
            await asyncio.wait(endings, timeout=LAST_WORDS_S)
        for worker in self.workers.values():
            worker.state = WorkerState.STOPPED

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

    def state(self, name: str) -> WorkerState:
        """Where the worker is now."""
        state = self.workers[name].state
        silent = state is WorkerState.READY and self._silence(name) > SILENT_S
        return WorkerState.UNREACHABLE if silent else state

    def is_ready(self, name: str) -> bool:
        """Whether the worker takes turns."""
        return self.state(name) is WorkerState.READY

    def unready(self, names: frozenset[str]) -> PipelineError | None:
        """Why the workers `names` cannot take a turn now; None: they can."""
        for name in sorted(names):
            if self.is_ready(name):
                continue
            state, trouble = self.state(name), self.workers[name].trouble
            reason = f": {trouble}" if state is WorkerState.FAILED else ", try again"
            return PipelineError(f"worker {name} is {state}{reason}")
        return None

    # ------------------------------------------------------------------------------- one worker's life

    async def _supervise(self, worker: Worker) -> None:
        restarts = Restarts()
        while True:
            lived_s, error = await self._live(worker)
            wait_s = restarts.ended(lived_s, refused=worker.refusal is not None)
            worker.trouble = worker.refusal or error
            if not restarts.failing:
                worker.state = WorkerState.RESTARTING
            else:
                if worker.refusal is None:
                    worker.trouble = WorkerDied(f"{error.message} ({restarts.failures} times in a row)")
                worker.state = WorkerState.FAILED
                if not self._settled[worker.spec.name].done():
                    # Whoever starts the pipeline is there to read it.
                    log.error("worker %s is given up: %s", worker.spec.name, worker.trouble)
                    self._settle(worker, worker.trouble)
                    return
            log.warning("%s; it starts again in %.1f s", worker.trouble, wait_s)
            await asyncio.sleep(wait_s)
            self._next_incarnation(worker)

    async def _live(self, worker: Worker) -> tuple[float, WorkerDied]:
        """One incarnation, from its start to its end; how long it was ready, and how it ended."""
        loop = asyncio.get_running_loop()
        name = worker.spec.name
        try:
            process = worker.process = await self._begin(worker)
        except VoiceAppError as error:
            worker.refusal = error if isinstance(error, ConfigError | DeadlineExceeded) else None
            died = WorkerDied(f"worker {name} could not be started: {error.message}")
            self._down(name, died)
            return 0.0, died
        worker.ended = ended = asyncio.create_task(process.ended())
        ready = asyncio.create_task(worker.ready.wait())
        since = loop.time()
        lived_s = 0.0
        try:
            await self._while_it_starts(worker, {ended, ready})
            if ready.done() and worker.refusal is None and not ended.done():
                worker.state = WorkerState.READY
                worker.trouble = None
                self._settle(worker, None)
                since = loop.time()
                await asyncio.wait({ended})
                lived_s = loop.time() - since
            elif not ready.done() and not ended.done():
                worker.refusal = DeadlineExceeded(
                    f"worker {worker.spec.name} was not ready and told of no progress for "
                    f"{self._config.start_timeout_s:g} s (start_timeout_s); give it more: --start-timeout"
                )
        finally:
            ready.cancel()
            if not self._stopping:
                await process.end()
        ending = await ended
        if ending.refusal is not None and not lived_s:
            worker.refusal = from_info(ending.refusal)
        error = WorkerDied(_obituary(worker.spec.name, ending, lived_s))
        self._down(worker.spec.name, error)
        return lived_s, error

    async def _begin(self, worker: Worker) -> WorkerProcess:
        """Start its process. The first time a host has a deadline; later one that is away is waited for: who
        asks is told that the worker is restarting."""
        limit_s = None if self._settled[worker.spec.name].done() else self._config.start_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._host(worker).start(self._worker_config(worker))
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"host {worker.spec.host} did not start it within {limit_s:g} s (start_timeout_s)"
            ) from error

    async def _while_it_starts(self, worker: Worker, either: set[asyncio.Task[Any]]) -> None:
        """Wait for one of `either`, as long as the worker goes on telling of progress."""
        loop = asyncio.get_running_loop()
        worker.heard_at = loop.time()
        done: set[asyncio.Task[Any]] = set()
        while not done and (left_s := worker.heard_at + self._config.start_timeout_s - loop.time()) > 0:
            done, _ = await asyncio.wait(either, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    def _next_incarnation(self, worker: Worker) -> None:
        worker.incarnation += 1
        worker.refusal = None
        worker.ready.clear()
        self._up(
            worker.spec.name, {viewer: self._address(worker, viewer) for viewer in (SERVER, *self.workers)}
        )

    def _address(self, worker: Worker, viewer: str) -> str:
        return self._network.address(worker.spec.name, worker.incarnation, seen_from=viewer)

    def _host(self, worker: Worker) -> Host:
        if is_here(worker.spec.host):
            return self._here
        assert self._far is not None
        return self._far

    def _worker_config(self, worker: Worker) -> WorkerConfig:
        name = worker.spec.name
        return WorkerConfig(
            name=name,
            incarnation=worker.incarnation,
            run=self._run,
            pack=worker.spec.pack(self._config.pack),
            places=self._places,
            host=self._network.host(name),
            inboxes=self._network.inboxes(name, worker.incarnation),
            addresses={SERVER: self._network.address(SERVER, 0, seen_from=name)}
            | {other.spec.name: self._address(other, name) for other in self.workers.values()},
            curve_keys=self._network.curve_keys,
        )

    def _supervised(self, worker: Worker, supervisor: asyncio.Task[None]) -> None:
        """A supervisor that broke must not leave `start` waiting, nor its worker for one that takes turns."""
        if supervisor.cancelled() or (error := supervisor.exception()) is None:
            return
        log.error("%s broke", supervisor.get_name(), exc_info=error)
        worker.state = WorkerState.FAILED
        worker.trouble = died = WorkerDied(f"worker {worker.spec.name} is not watched any more: {error!r}")
        self._down(worker.spec.name, died)
        self._settle(worker, died)

    def _settle(self, worker: Worker, error: VoiceAppError | None) -> None:
        future = self._settled[worker.spec.name]
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def _obituary(name: str, ending: Ending, lived_s: float) -> str:
    when = "" if lived_s else " while it loaded"
    why = f": {ending.reason}" if ending.reason else ""
    return f"worker {name} {ending.how}{when}{why}"
