"""All seven schedulers in one thread with an in-memory outbox: a pipeline without its processes.

For tests that want the runners' and schedulers' results and nothing of the transports.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from voice_app import messages as m
from voice_app.errors import VoiceAppError
from voice_app.messages import Stage, TurnId
from voice_app.pipeline.graph import STAGES, targets
from voice_app.pipeline.schedulers import make_scheduler
from voice_app.schedulers.base import AnyRunner, Code2WavRunner, Outbox, StageInput, StageScheduler
from voice_app.schedulers.code2wav import Code2WavScheduler
from voice_app.schedulers.turns import Clock

MakeScheduler = Callable[[AnyRunner, Outbox], StageScheduler]
ROUNDS = 200_000
"""Rounds of all stages after which a run counts as hung."""


@dataclass
class Result:
    """What came of one turn."""

    request: m.TurnRequest
    events: list[m.StageEvent] = field(default_factory=list)
    frames: list[np.ndarray] = field(default_factory=list)
    error: VoiceAppError | None = None
    done: set[Stage] = field(default_factory=set)

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, m.TextDelta))

    @property
    def token_ids(self) -> list[int]:
        return [i for e in self.events if isinstance(e, m.TextDelta) for i in e.token_ids]

    @property
    def text_done(self) -> m.TextDone:
        return next(e for e in self.events if isinstance(e, m.TextDone))

    @property
    def codes(self) -> np.ndarray:
        """[frames, groups]; [0, 0] if there are none."""
        some = [frames for frames in self.frames if len(frames)]
        return np.concatenate(some) if some else np.empty((0, 0), np.int64)

    @property
    def samples(self) -> np.ndarray:
        chunks = [e for e in self.events if isinstance(e, m.AudioChunk)]
        at = 0
        for chunk in chunks:
            assert chunk.start == at, "chunks of sound neither overlap nor leave gaps"
            at += len(chunk.samples)
        return np.concatenate([c.samples for c in chunks]) if chunks else np.empty(0, np.float32)

    @property
    def over(self) -> bool:
        exits = {Stage.DECODE, Stage.CODE2WAV} if self.request.speech else {Stage.DECODE}
        return self.error is not None or exits <= self.done


class _MemoryOutbox:
    def __init__(self, stages: "OneThread", stage: Stage) -> None:
        self._stages = stages
        self._stage = stage

    def emit(self, turn: TurnId, payload: m.EdgePayload | m.StageEvent) -> None:
        self._stages.deliver(self._stage, turn, payload)

    def has_room(self, turn: TurnId) -> bool:
        return True

    def fail(self, turn: TurnId, error: VoiceAppError) -> None:
        self._stages.fail(turn, error)

    def finish(self, turn: TurnId) -> None:
        if turn in self._stages.results:
            self._stages.results[turn].done.add(self._stage)

    def charge(self, turns: Sequence[TurnId], seconds: float) -> None:
        pass


class OneThread:
    """`build` is a pack's. `schedulers` replaces the stage graph's own for some stages. `clock` tells
    code2wav how much of its sound has been played."""

    def __init__(
        self,
        build: Callable[[Stage], AnyRunner],
        schedulers: Mapping[Stage, MakeScheduler] | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.results: dict[TurnId, Result] = {}
        self.runners = {stage: build(stage) for stage in Stage}
        self.schedulers: dict[Stage, StageScheduler] = {}
        self._inbox: deque[tuple[Stage, StageInput]] = deque()
        for stage, runner in self.runners.items():
            outbox = _MemoryOutbox(self, stage)
            own = (schedulers or {}).get(stage)
            if own is not None:
                self.schedulers[stage] = own(runner, outbox)
            elif stage is Stage.CODE2WAV:
                wave = cast(Code2WavRunner, runner)
                self.schedulers[stage] = Code2WavScheduler(wave, outbox, STAGES[stage].batch, clock)
            else:
                self.schedulers[stage] = make_scheduler(STAGES[stage], runner, outbox)

    def submit(self, request: m.TurnRequest) -> Result:
        """Take a turn in; nothing is computed yet."""
        result = self.results[request.turn] = Result(request)
        self._inbox.append((Stage.PREPROCESSING, StageInput(request.turn, request, request.speech)))
        return result

    def cancel(self, turn: TurnId) -> None:
        """Drop a turn everywhere, as raising its generation does."""
        self.results.pop(turn, None)
        for scheduler in self.schedulers.values():
            scheduler.cancel(turn)

    def step(self) -> bool:
        """One step of every stage. False: nothing is left to do until something is submitted."""
        self._pump()
        worked = [self._step(scheduler) for scheduler in self.schedulers.values()]
        return any(worked) or bool(self._inbox)

    def _step(self, scheduler: StageScheduler) -> bool:
        """As a worker's runtime: an error meant for a user ends the turns that were in the call."""
        try:
            return scheduler.step()
        except VoiceAppError as error:
            turns = tuple(scheduler.in_flight())
            if not turns:
                raise
            for turn in turns:
                self.fail(turn, error)
            return True

    def run(self, requests: Iterable[m.TurnRequest] = ()) -> list[Result]:
        """Submit all and step until each is over."""
        results = [self.submit(request) for request in requests]
        self.run_until(lambda: all(result.over for result in self.results.values()))
        return results

    def run_until(self, reached: Callable[[], bool]) -> None:
        for _ in range(ROUNDS):
            if reached():
                return
            self.step()
        unfinished = [turn for turn, result in self.results.items() if not result.over]
        raise AssertionError(f"hung: {unfinished}")

    def deliver(self, source: Stage, turn: TurnId, payload: m.EdgePayload | m.StageEvent) -> None:
        result = self.results.get(turn)
        if result is None or result.error is not None:
            return
        if isinstance(payload, m.StageEvent):
            result.events.append(payload)
            return
        if isinstance(payload, m.CodeFrames):
            result.frames.append(payload.frames)
        for target in targets(source, type(payload), speech=result.request.speech):
            self._inbox.append((target, StageInput(turn, payload, result.request.speech)))

    def fail(self, turn: TurnId, error: VoiceAppError) -> None:
        if turn in self.results:
            self.results[turn].error = error
        for scheduler in self.schedulers.values():
            scheduler.cancel(turn)

    def _pump(self) -> None:
        while self._inbox:
            stage, item = self._inbox.popleft()
            result = self.results.get(item.turn)
            if result is not None and result.error is None and stage not in result.done:
                self.schedulers[stage].receive(item)
