"""One stage in simulated time: a real scheduler, driven as `voice_app.pipeline.stage` drives it.

A step is chosen at once and takes as long as its runner's call would; what it emits leaves when that time is
over, and what arrives meanwhile waits until then.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from load.simulation.clock import Clock, Processor
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

    def failed(self, turn: TurnId, error: VoiceAppError) -> None: ...


class SimulatedStage:
    """`step_s`: what a step costs beside its model call. The outbox of its scheduler is itself."""

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
    ) -> None:
        self.stage = stage
        self.node = node
        self.steps = 0
        self.busy_s = 0.0
        """Work of all steps so far."""
        self._meter = meter
        self._edges = edges
        self._processor = processor
        self._clock = clock
        self._step_s = step_s
        self._mail: list[StageInput] = []
        self._made: list[tuple[TurnId, Emitted]] = []
        self._over: set[TurnId] = set()
        self._working = False
        self._planned = False
        self._scheduler = make(self)
        self._meter.take()

    def deliver(self, item: StageInput) -> None:
        """A payload arrived."""
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
        self._scheduler.cancel(turn)

    def load(self) -> SchedulerLoad:
        return self._scheduler.load()

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
        if seconds or self._made:
            self.steps += 1
            seconds += self._step_s
            self.busy_s += seconds
            self._working = True
            self._processor.work(max(seconds, LEAST_S), self._done)
            return
        wait = None if more else self._scheduler.wake_after()
        if wait is not None:
            self._clock.after(max(wait, LEAST_S), self.wake)

    def _done(self) -> None:
        self._working = False
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
        return None
