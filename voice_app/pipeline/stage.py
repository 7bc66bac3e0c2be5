"""A stage's runtime: one thread that drives its scheduler and blames what a model raised on its turns."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from voice_app.errors import StageFailed, TransferFailed, VoiceAppError
from voice_app.messages import EdgePayload, Stage, StageEvent, StagePayload, TurnId
from voice_app.pipeline import graph
from voice_app.pipeline.inlet import Delivery, Release
from voice_app.pipeline.outlet import Outlet
from voice_app.pipeline.schedulers import make_scheduler
from voice_app.schedulers.base import AnyRunner, SchedulerLoad, StageInput, StageScheduler

log = logging.getLogger(__name__)

REPORT_EVERY_S = 0.2
"""A stage tells its fill at most so often."""

_PRUNE_AT = 128
"""Payloads remembered per turn before those given back are forgotten."""

Fail = Callable[[TurnId, VoiceAppError], None]
Report = Callable[[Stage, SchedulerLoad, tuple[TurnId, ...]], None]
"""Tells a stage's fill, and the turns that came to it since it last did."""


@dataclass(frozen=True, slots=True)
class _Ended:
    turn: TurnId


@dataclass(frozen=True, slots=True)
class _Wake:
    pass


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_WAKE, _STOP = _Wake(), _Stop()
_Mail = Delivery | _Ended | _Wake | _Stop


@dataclass(slots=True, eq=False)
class _TurnIn:
    """One turn's payloads at this stage."""

    releases: list[Release] = field(default_factory=list)
    done: bool = False
    """The stage finished or failed it; what still comes is dropped."""


class StageOutbox:
    """The scheduler's `Outbox`, over the stage's outlet."""

    def __init__(self, outlet: Outlet, fail: Fail, over: Callable[[TurnId], None]) -> None:
        self._outlet = outlet
        self._fail = fail
        self._over = over

    def emit(self, turn: TurnId, payload: EdgePayload | StageEvent) -> None:
        try:
            self._outlet.send(turn, payload)
        except TransferFailed as error:
            self._fail(turn, error)

    def has_room(self, turn: TurnId) -> bool:
        return self._outlet.has_room(turn)

    def fail(self, turn: TurnId, error: VoiceAppError) -> None:
        self._over(turn)
        self._fail(turn, error)

    def finish(self, turn: TurnId) -> None:
        self._over(turn)

    def charge(self, turns: Sequence[TurnId], seconds: float) -> None:
        for turn in turns:
            self._outlet.charge(turn, seconds)


class StageRuntime:
    """`deliver`, `ended`, `wake` and `stop` may be called from any thread; all else happens in its own.

    `broken` is called from that thread if the scheduler itself failed: the worker must end."""

    def __init__(
        self,
        stage: Stage,
        runner: AnyRunner,
        make_outlet: Callable[[Stage, Callable[[], None]], Outlet],
        fail: Fail,
        report: Report,
        broken: Callable[[], None],
    ) -> None:
        self.stage: Stage = stage
        self._mail: queue.SimpleQueue[_Mail] = queue.SimpleQueue()
        self._turns: dict[TurnId, _TurnIn] = {}
        self._outlet = make_outlet(stage, self.wake)
        self._outbox = StageOutbox(self._outlet, fail, self._over)
        self._fail = fail
        self._scheduler: StageScheduler = make_scheduler(graph.STAGES[stage], runner, self._outbox)
        self._report = report
        self._reported = (0.0, SchedulerLoad())
        self._met: list[TurnId] = []
        self._broken = broken
        self._thread = threading.Thread(target=self._run, name=f"stage-{stage}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def deliver(self, delivery: Delivery) -> None:
        """A payload arrived for this stage."""
        self._mail.put(delivery)

    def ended(self, turn: TurnId) -> None:
        """The turn is over; its fence is up already."""
        self._mail.put(_Ended(turn))

    def wake(self) -> None:
        """Credit returned."""
        self._mail.put(_WAKE)

    def stop(self, timeout_s: float) -> None:
        """End the thread after the step it is in; waits for it up to `timeout_s`."""
        self._mail.put(_STOP)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    # ----------------------------------------------------------------------------- the stage's thread

    def _run(self) -> None:
        healthy = False
        try:
            self._loop()
            healthy = True
        finally:
            # No handler: the traceback goes to the log, the worker ends, the launcher restarts it.
            if not healthy:
                self._broken()

    def _loop(self) -> None:
        more = False
        while True:
            if not more and not self._take(self._patience()):
                return
            while not self._mail.empty():
                if not self._take(0.0):
                    return
            more = self._step()
            self._tell_load()

    def _take(self, timeout_s: float | None) -> bool:
        """Handle the next mail, waiting for it; False: stop."""
        try:
            mail = self._mail.get(timeout=timeout_s)
        except queue.Empty:
            return True
        match mail:
            case Delivery():
                self._receive(mail)
            case _Ended():
                self._forget(mail.turn)
            case _Stop():
                return False
            case _Wake():
                pass
        return True

    def _receive(self, delivery: Delivery) -> None:
        turn = delivery.lane.edge.turn
        state = self._turns.get(turn)
        if state is None:
            lane = delivery.lane
            if not self._outlet.open(turn, speech=lane.speech, submitted=lane.submitted, nodes=lane.nodes):
                delivery.release()
                return
            state = self._turns[turn] = _TurnIn()
            self._met.append(turn)
        if state.done:
            delivery.release()
            return
        if len(state.releases) >= _PRUNE_AT:
            state.releases = [release for release in state.releases if not release.done]
        state.releases.append(delivery.release)
        # The decoder let nothing else in, and by reference it comes from another stage's scheduler.
        payload = cast(StagePayload, delivery.payload)
        self._scheduler.receive(StageInput(turn, payload, delivery.lane.speech, delivery.release))

    def _step(self) -> bool:
        try:
            return self._scheduler.step()
        except Exception as error:
            # The one place where whatever a model raises meets the turns that were in its call.
            turns = self._scheduler.in_flight()
            if not turns:
                raise
            if not isinstance(error, VoiceAppError):
                log.exception("%s failed for %d turns", self.stage, len(turns))
            self._blame(tuple(turns), error)
            return True

    def _blame(self, turns: tuple[TurnId, ...], error: Exception) -> None:
        if not isinstance(error, VoiceAppError):
            reason = str(error).split("\n", 1)[0]
            error = StageFailed(f"{self.stage}: {type(error).__name__}: {reason}")
        for turn in turns:
            self._scheduler.cancel(turn)
            self._outbox.fail(turn, error)

    def _over(self, turn: TurnId) -> None:
        state = self._turns.get(turn)
        if state is not None:
            state.done = True

    def _forget(self, turn: TurnId) -> None:
        state = self._turns.pop(turn, None)
        if state is None:
            return
        self._scheduler.cancel(turn)
        for release in state.releases:
            release()

    def _patience(self) -> float | None:
        waits = [wait for wait in (self._scheduler.wake_after(), self._load_due()) if wait is not None]
        return min(waits) if waits else None

    def _load_due(self) -> float | None:
        told_at, told = self._reported
        if not self._met and self._scheduler.load() == told:
            return None
        return max(0.0, told_at + REPORT_EVERY_S - time.monotonic())

    def _tell_load(self) -> None:
        now = time.monotonic()
        if now - self._reported[0] < REPORT_EVERY_S:
            return
        load = self._scheduler.load()
        if self._met or load != self._reported[1]:
            self._reported = (now, load)
            self._report(self.stage, load, tuple(self._met))
            self._met.clear()
