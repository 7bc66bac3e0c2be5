"""A worker process: `python -m voice_app.pipeline.worker NAME`, its configuration on stdin.

The main thread takes messages; each stage has a thread; another loads the models and ends; one waits
for stdin to close, one for signals. The worker ends on SIGTERM, when its stdin closes (its parent says so,
or is gone), or when a scheduler breaks; whoever notices posts the main thread a `Shutdown`.
"""

import contextlib
import gc
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

import msgspec
import psutil

from voice_app.errors import ConfigError, TransferFailed, VoiceAppError, to_info
from voice_app.messages import Stage, TurnId
from voice_app.models import registry
from voice_app.pipeline import graph, layout
from voice_app.pipeline.control import (
    SERVER,
    Control,
    EndTurn,
    HandOffReport,
    HandOffStats,
    Shutdown,
    StageReport,
    TurnEnded,
    TurnFailed,
    WorkerConfig,
    WorkerProgress,
    WorkerReady,
    WorkerRefused,
)
from voice_app.pipeline.exchange import TICK_S, Exchange
from voice_app.pipeline.inlet import Delivery
from voice_app.pipeline.network import open_wire
from voice_app.pipeline.relay import log_to_parent, refuse
from voice_app.pipeline.stage import StageRuntime
from voice_app.pipeline.transports import Transports
from voice_app.schedulers.base import SchedulerLoad

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 2.0
"""A stage that is in a longer model call when the worker ends is left behind."""

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that computes in Python may keep the others waiting. Beside one that does so half of
the time, turns of 60 tokens took 53 ms, against 66 ms with the default of 5 ms."""


class Worker:
    """The stages of one process and what joins them to the others."""

    def __init__(self, config: WorkerConfig) -> None:
        """Raises ConfigError: it cannot be reached."""
        self._config = config
        self._stages: dict[Stage, StageRuntime] = {}
        self._exit_code = 0
        self._loader = threading.Thread(target=self._load, name="load", daemon=True)
        self._wire = open_wire(config.name, config.inboxes, config.curve_keys)
        for node, address in config.addresses.items():
            self._wire.connect(node, address)
        self._transports = Transports(config.run, config.name, config.incarnation, config.places, config.host)
        self._exchange = Exchange(
            config.name,
            layout.nodes(config.places),
            self._wire,
            self._transports.pool,
            self._transports.incoming,
            self._deliver,
            self._fail,
        )

    def run(self) -> int:
        """Serve until told to end; returns the exit code."""
        self._loader.start()
        told = HandOffStats()
        restless = True
        while True:
            # An idle worker does not wake.
            received = self._wire.receive(TICK_S if restless else None)
            if isinstance(received, Shutdown):
                break
            if received is not None:
                restless = True
                self._handle(received)
            if self._exchange.tick():
                restless = self._exchange.busy
                if (stats := self._exchange.stats()) != told:
                    self._tell(HandOffReport(self._config.name, told := stats))
        return self._exit_code

    def stop(self, exit_code: int = 0) -> None:
        """End; from any thread. Not from a signal's handler: what that interrupted may hold a lock of the
        wire's."""
        self._exit_code = self._exit_code or exit_code
        self._wire.send(self._config.name, Shutdown())

    def close(self) -> None:
        """Leave nothing behind: no file, no process."""
        if self._exit_code:
            self._loader.join(STOP_TIMEOUT_S)  # It is just writing why it failed.
        for stage in self._stages.values():
            stage.stop(STOP_TIMEOUT_S / len(self._stages))
        self._transports.close()
        # What the loader started, a download say, would go on without us: nobody else knows of it.
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()

    def _handle(self, message: Control) -> None:
        if self._exchange.handle(message):
            return
        if isinstance(message, EndTurn):
            timings = self._exchange.end(message.turn)
            for stage in self._stages.values():
                stage.ended(message.turn)
            self._tell(TurnEnded(message.turn, self._config.name, timings))

    def _deliver(self, delivery: Delivery) -> None:
        edge = delivery.lane.edge
        stage = self._stages.get(edge.target) if edge.target else None
        if stage is None:
            delivery.release()
            target = edge.target or "client"
            self._fail(edge.turn, TransferFailed(f"{self._config.name} has no stage {target}"))
        else:
            stage.deliver(delivery)

    def _fail(self, turn: TurnId, error: VoiceAppError) -> None:
        self._tell(TurnFailed(turn, to_info(error)))

    def _tell(self, message: Control) -> None:
        try:
            self._wire.send(SERVER, message)
        except TransferFailed:
            # Without its server a worker has no use; its stdin closes as well.
            log.warning("the server does not read its messages")

    # ---------------------------------------------------------------------------------- loading thread

    def _load(self) -> None:
        loaded = False
        try:
            self._build()
            loaded = True
        except VoiceAppError as error:
            # The server closes our stdin, once it has read this.
            self._tell(WorkerRefused(self._config.name, self._config.incarnation, to_info(error)))
            loaded = True
        finally:
            if not loaded:
                self.stop(1)

    def _build(self) -> None:
        self._transports.start()
        pack = registry.create(self._config.pack, self._progress)
        here = [s for s in graph.STAGES if self._config.name in layout.nodes(self._config.places)[s]]
        runners = {stage: pack.build(stage) for stage in here}
        for stage, runner in runners.items():
            self._progress(f"warming up {stage}")
            runner.warm_up()
        self._stages = {
            stage: StageRuntime(
                stage,
                runner,
                self._exchange.outlet,
                self._fail,
                self._report_load,
                lambda: self.stop(1),
            )
            for stage, runner in runners.items()
        }
        # Nothing loaded so far will ever be garbage: keep the collector from walking it.
        gc.collect()
        gc.freeze()
        for stage in self._stages.values():
            stage.start()
        self._tell(WorkerReady(self._config.name, self._config.incarnation))

    def _progress(self, text: str) -> None:
        self._tell(WorkerProgress(self._config.name, text))

    def _report_load(self, stage: Stage, load: SchedulerLoad, met: tuple[TurnId, ...]) -> None:
        self._tell(StageReport(self._config.name, stage, load, met))


def on_sigterm(stop: Callable[[], None]) -> None:
    """Have `stop` called in a thread of its own, once, however often the signal comes."""
    told = queue.SimpleQueue[None]()

    def tell(signal_number: int, frame: FrameType | None) -> None:
        told.put(None)  # Reentrant.

    def wait() -> None:
        told.get()
        stop()

    threading.Thread(target=wait, name="signals", daemon=True).start()
    signal.signal(signal.SIGTERM, tell)


def main() -> int:
    """Process entry."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    log_to_parent()
    line = sys.stdin.buffer.readline()
    if not line:
        return 0  # The parent went before it could say what to do.
    try:
        worker = Worker(msgspec.json.decode(line, type=WorkerConfig))
    except ConfigError as error:
        refuse(to_info(error))
        return error.exit_code

    def wait_for_parent() -> None:
        while sys.stdin.buffer.read(1):
            pass
        worker.stop()

    on_sigterm(worker.stop)
    threading.Thread(target=wait_for_parent, name="stdin", daemon=True).start()
    try:
        return worker.run()
    finally:
        worker.close()


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stderr.flush()
    # Not sys.exit: model threads may be deep in native code, which must not see the interpreter go.
    os._exit(code)
