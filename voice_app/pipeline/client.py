"""All of the pipeline that a server or a command imports. Never imports a model library."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from voice_app.config import PipelineConfig
from voice_app.errors import PipelineError, WorkerDied
from voice_app.messages import Stage, StageEvent, TurnId, TurnRequest
from voice_app.pipeline import layout, rundir
from voice_app.pipeline.control import (
    SERVER,
    Control,
    HandOffReport,
    HandOffStats,
    WorkerProgress,
    WorkerReady,
    WorkerRefused,
)
from voice_app.pipeline.coordinator import Coordinator
from voice_app.pipeline.hosts.base import Host
from voice_app.pipeline.launcher import Launcher, WorkerState
from voice_app.pipeline.network import Network, is_here
from voice_app.pipeline.stream import TurnStream
from voice_app.pipeline.transport import shm
from voice_app.pipeline.transport.base import Outgoing
from voice_app.pipeline.transport.router import LOCALHOST
from voice_app.pipeline.wire import Wire
from voice_app.schedulers.base import SchedulerLoad

__all__ = ["PipelineClient", "PipelineStatus", "TurnStream", "WorkerState", "WorkerStatus"]


class WorkerStatus(msgspec.Struct, frozen=True):
    """One worker now. `pid` is None while there is no process. `hand_off`: as it last told. `trouble`: what
    it last ended of, until it is ready again."""

    state: WorkerState
    pid: int | None
    restarts: int
    stages: tuple[Stage, ...]
    hand_off: HandOffStats = HandOffStats()
    trouble: str | None = None


class PipelineStatus(msgspec.Struct, frozen=True):
    """The pipeline now. `ready`: it takes turns, in one replica of each worker at least. `hand_off`: this
    process's own part."""

    ready: bool
    turns: int
    workers: dict[str, WorkerStatus]
    stages: dict[Stage, SchedulerLoad]
    hand_off: HandOffStats = HandOffStats()


class PipelineClient:
    """Starts the workers of a configuration and sends turns through them. For one event loop.

    `report` gets one short line for each thing that is being done while the workers start."""

    def __init__(self, config: PipelineConfig, *, report: Callable[[str], None] | None = None) -> None:
        self._config = config
        self._report = report or (lambda line: None)
        self._layout = layout.load(config.layout)
        layout.check(self._layout, ray=config.ray)
        self._plane = layout.control(config)
        self._plane.check({place.host for places in self._layout.values() for place in places})
        self._far: Host | None = None
        self._hand_off: dict[str, HandOffStats] = {}
        self._run_dir: rundir.RunDir | None = None
        self._wire: Wire | None = None
        self._outgoing: shm.SharedMemoryOut | None = None
        self._coordinator: Coordinator | None = None
        self._launcher: Launcher | None = None

    async def start(self) -> None:
        """Start the workers; returns when all are ready. Raises ConfigError, ModelFileError, WorkerDied,
        or DeadlineExceeded; nothing is left behind then."""
        if self._run_dir is not None:
            raise PipelineError("the pipeline is running already")
        shm.sweep()
        rundir.sweep()
        self._run_dir = rundir.RunDir()
        started = False
        try:
            await self._start(self._run_dir)
            started = True
        finally:
            if not started:
                await self.stop()

    async def _start(self, run_dir: rundir.RunDir) -> None:
        specs = layout.workers(self._layout)
        network = Network(self._plane, {spec.name: spec.host for spec in specs}, run_dir)
        others = {spec.name: spec.host for spec in specs if not is_here(spec.host)}
        if self._config.ray is not None and others:
            # Imported here: few have it.
            from voice_app.pipeline.hosts.ray_host import RayHost

            self._report(f"connecting with Ray at {self._config.ray}")
            self._far = await RayHost.connect(self._config.ray, others)
        self._wire = network.open(SERVER)
        self._outgoing = shm.SharedMemoryOut(run_dir.run, f"{SERVER}.0")
        self._coordinator = coordinator = Coordinator(
            self._wire,
            layout.nodes(self._layout),
            self._pool,
            shm.SharedMemoryIn(run_dir.run, StageEvent),
            max_turns=self._config.max_turns,
            turn_timeout_s=self._config.turn_timeout_s,
            other=self._heard,
        )
        self._launcher = Launcher(
            self._config,
            specs,
            run_dir.run,
            network,
            self._far,
            self._wire.silence,
            coordinator.worker_up,
            self._worker_down,
        )
        await self._launcher.start()

    async def stop(self) -> None:
        """End all turns and workers; no process, socket or shared memory is left. May be called again."""
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None
        if self._launcher is not None:
            await self._launcher.stop()
        if self._far is not None:
            await self._far.close()
            self._far = None
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        if self._outgoing is not None:
            self._outgoing.close()
            self._outgoing = None
        if self._run_dir is not None:
            self._run_dir.remove()
            self._run_dir = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def submit(self, request: TurnRequest) -> TurnStream:
        """Send a turn in. Raises Overloaded beyond `max_turns`, TurnCancelled if its generation is stale,
        TransferFailed if it is too large, PipelineError while a worker it needs is not ready."""
        if self._coordinator is None or self._launcher is None:
            raise PipelineError("the pipeline is not running")
        route = self._coordinator.route(request, self._launcher.is_ready)
        unready = self._launcher.unready(frozenset(route.values()))
        if unready is not None:
            raise unready
        return self._coordinator.submit(request, route)

    def cancel(self, turn: TurnId) -> None:
        """Raise the fence of `turn.key` above `turn.generation`. Never waits; a turn that is over, or
        was never there, is fine."""
        if self._coordinator is not None:
            self._coordinator.cancel(turn)

    def status(self) -> PipelineStatus:
        """A snapshot."""
        if self._launcher is None:
            return PipelineStatus(False, 0, {}, {})
        workers = self._launcher.workers
        return PipelineStatus(
            ready=all(self._is_ready(stage) for stage in Stage),
            turns=len(self._coordinator) if self._coordinator is not None else 0,
            workers={
                name: WorkerStatus(
                    state=self._launcher.state(name),
                    pid=worker.pid,
                    restarts=max(0, worker.incarnation),
                    stages=tuple(worker.spec.stages),
                    hand_off=self._hand_off.get(name, HandOffStats()),
                    trouble=str(worker.trouble) if worker.trouble is not None else None,
                )
                for name, worker in workers.items()
            },
            stages=self._coordinator.replicas.load() if self._coordinator is not None else {},
            hand_off=self._coordinator.stats() if self._coordinator is not None else HandOffStats(),
        )

    def _is_ready(self, stage: Stage) -> bool:
        """Whether one of its workers takes turns."""
        assert self._launcher is not None
        return any(self._launcher.is_ready(place.node) for place in self._layout[stage])

    def _pool(self, source: Stage | None, target: Stage, node: str) -> Outgoing | None:
        """As `exchange.Pools`: a request to another host travels within its message."""
        here = any(place.node == node and place.host == LOCALHOST for place in self._layout[target])
        return self._outgoing if here else None

    def _worker_down(self, name: str, error: WorkerDied) -> None:
        self._hand_off.pop(name, None)
        if self._coordinator is not None:
            self._coordinator.worker_down(name, error)

    def _heard(self, message: Control) -> None:
        """A control message that is not about turns."""
        assert self._launcher is not None
        match message:
            case WorkerProgress():
                self._launcher.worker_progress(message.worker)
                self._report(f"{message.worker}: {message.text}")
            case WorkerReady():
                self._report(f"{message.worker}: ready")
                self._launcher.worker_ready(message.worker, message.incarnation)
            case WorkerRefused():
                self._launcher.worker_refused(message.worker, message.incarnation, message.error)
            case HandOffReport():
                self._hand_off[message.worker] = message.stats
            case _:
                return
