"""One stage in simulated time: a real scheduler, driven as `voice_app.pipeline.stage` drives it.

A step is chosen at once and takes as long as its runner's call would; what it emits leaves when that time is
over, and what arrives meanwhile waits until then.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from load.simulation.clock import Clock, Processor
from load.simulation.costs import COLD_AFTER_S
from load.simulation.runners import Meter
from voice_app import messages as m
from voice_app.errors import VoiceAppError
from voice_app.messages import Stage, TurnId
from voice_app.pipeline.credits import Window
from voice_app.schedulers.base import Outbox, SchedulerLoad, StageInput, StageScheduler

Emitted = m.EdgePayload | m.StageEvent
LEAST_S = 1e-6
"""A step that costs nothing: it may not happen for ever at one moment."""


class Edges(Protocol):
    """Where a stage's payloads go."""

    def send(self, source: "SimulatedStage", turn: TurnId, payload: Emitted) -> None: ...

    def windows(self, source: "SimulatedStage", turn: TurnId) -> Sequence[Window]:
        """Those of the turn's streams that leave the stage."""
        ...

    def worked(self, source: "SimulatedStage", turn: TurnId, seconds: float) -> None:
        """The turn was in a call of so many seconds."""
        ...

    def failed(self, turn: TurnId, error: VoiceAppError) -> None: ...


class SimulatedStage:
    """`step_s`: what a step costs beside its model call. `crowded`: how many times as long it takes while
    other jobs are at work, `cold_s`: how much more after a rest. The outbox of its scheduler is itself."""

    def __init__(
        self,
        stage: Stage,
        node: str,
        make: Callable[[Outbox], StageScheduler],
        meter: Meter,
        edges: Edges,
        processor: Processor,
        clock: Clock,
        step_s: float,
        crowded: float = 1.0,
        cold_s: float = 0.0,
    ) -> None:
        self.stage = stage
        self.node = node
        self.steps = 0
        self.busy_s = 0.0
        """Work of all steps so far, at an even pace."""
        self._meter = meter
        self._edges = edges
        self._processor = processor
        self._clock = clock
        self._step_s = step_s
        self._crowded = crowded
        self._cold_s = cold_s
        self._rests_since = -COLD_AFTER_S
        self._mail: list[StageInput] = []
        self._made: list[tuple[TurnId, Emitted]] = []
        self._called: set[TurnId] = set()
        """The turns that the step under way makes calls for."""
        self._began = 0.0
        self._over: set[TurnId] = set()
        self._known: set[TurnId] = set()
        self._met: list[TurnId] = []
        self._working = False
        self._planned = False
        self._scheduler = make(self)
        self._meter.take()

    def deliver(self, item: StageInput) -> None:
        """A payload arrived."""
        if item.turn not in self._known:
            self._known.add(item.turn)
            self._met.append(item.turn)
        self._mail.append(item)
        self.wake()

    def wake(self) -> None:
        """Something arrived, or credit returned."""
        if not self._working and not self._planned:
            self._planned = True
            # All that happens at this moment is seen by one step.
            self._clock.after(0.0, self._step)

    def forget(self, turn: TurnId) -> None:
        """The turn is over everywhere."""
        self._over.discard(turn)
        self._known.discard(turn)
        self._mail = [item for item in self._mail if item.turn != turn]
        self._scheduler.cancel(turn)

    def load(self) -> SchedulerLoad:
        return self._scheduler.load()

    def take_met(self) -> list[TurnId]:
        """The turns that came for the first time since this was last asked."""
        met, self._met = self._met, []
        return met

    def _step(self) -> None:
        self._planned = False
        if self._working:
            return
        mail, self._mail = self._mail, []
        for item in mail:
            if item.turn in self._over:
                item.release()
            else:
                self._scheduler.receive(item)
        more = self._scheduler.step()
        seconds = self._meter.take()
        if seconds or self._made or more:
            self.steps += 1
            if seconds and self._clock.now - self._rests_since >= COLD_AFTER_S:
                seconds += self._cold_s
            seconds += self._step_s
            self.busy_s += seconds
            self._working, self._began = True, self._clock.now
            self._processor.work(max(seconds, LEAST_S), self._done, self._crowded)
            return
        wait = None if more else self._scheduler.wake_after()
        if wait is not None:
            self._clock.after(max(wait, LEAST_S), self.wake)

    def _done(self) -> None:
        self._working = False
        self._rests_since = self._clock.now
        called, self._called = self._called, set()
        for turn in called:
            self._edges.worked(self, turn, self._clock.now - self._began)
        made, self._made = self._made, []
        for turn, payload in made:
            self._edges.send(self, turn, payload)
        self.wake()

    # ------------------------------------------------------------------------------------ as an `Outbox`

    def emit(self, turn: TurnId, payload: Emitted) -> None:
        self._made.append((turn, payload))

    def has_room(self, turn: TurnId) -> bool:
        return all(window.credit > 0 for window in self._edges.windows(self, turn))

    def fail(self, turn: TurnId, error: VoiceAppError) -> None:
        self._over.add(turn)
        self._edges.failed(turn, error)

    def finish(self, turn: TurnId) -> None:
        self._over.add(turn)

    def charge(self, turns: Sequence[TurnId], seconds: float) -> None:
        # The step is chosen in no time: what it takes is known when it is done.
        self._called.update(turns)
