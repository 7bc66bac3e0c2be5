"""The talker's loop: a step takes those turns whose next text vector is there.

Overlap, prefix cache and chunked prefill are off: each step's input is the frame that the step
before wrote, and the prompt arrives as vectors. A turn that is not ready never holds the others, nor does
one whose listener does not listen: its place goes to a turn that waits for one, or for memory.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from voice_app.messages import CodeFrames, Embeddings, PromptHidden, PromptIds, Stage, TokenVector, TurnId
from voice_app.schedulers.base import Outbox, SchedulerLoad, StageInput, TalkerOutput, TalkerRunner
from voice_app.schedulers.turns import Clock, ModelCalls, refuse, stale

PARK_AFTER_S = 1.0
"""A turn that could not be stepped for so long gives its place up, if another waits for one or for memory.
Above the time from token to token: what is parked has to be copied twice."""

_Taken = PromptIds | Embeddings | PromptHidden | TokenVector


@dataclass(slots=True, eq=False)
class _Voice:
    """One turn's voice under way."""

    turn: TurnId
    arrived: deque[StageInput] = field(default_factory=deque)
    """Not fed yet."""
    fed: deque[StageInput] = field(default_factory=deque)
    """Fed, not consumed yet: their senders' credit is still out."""
    state: object = None
    """The runner's; meaningful once `opened`."""
    opened: bool = False
    parked: bool = False
    able: bool = False
    """It could be stepped when it was last asked."""
    lacks_input: bool = False
    """It was parked though its listener has room."""
    stepped_at: float = 0.0
    """When it was last stepped, or got its place."""

    @property
    def placed(self) -> bool:
        """It has one of the runner's states."""
        return self.opened and not self.parked

    def release(self, count: int) -> None:
        for _ in range(min(count, len(self.fed))):
            self.fed.popleft().release()

    def release_all(self) -> None:
        self.release(len(self.fed))
        while self.arrived:
            self.arrived.popleft().release()


class QwenTalkerScheduler:
    """At most `runner.max_states` turns have a place, in order of arrival; the rest wait, and those that are
    parked."""

    def __init__(
        self,
        runner: TalkerRunner,
        outbox: Outbox,
        max_batch: int = 32,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._runner = runner
        self._outbox = outbox
        self._max_batch = max_batch
        self._clock = clock
        self._calls = ModelCalls(outbox, clock)
        # In the order of the next step's choice: those just stepped stand last.
        self._voices: dict[TurnId, _Voice] = {}
        self._placed = 0

    def receive(self, item: StageInput) -> None:
        if not isinstance(item.payload, _Taken):
            self.cancel(item.turn)
            refuse(self._outbox, Stage.TALKER_AR, item)
            return
        if item.turn not in self._voices:
            self._voices[item.turn] = _Voice(item.turn)
        self._voices[item.turn].arrived.append(item)

    def cancel(self, turn: TurnId) -> None:
        for over in stale(self._voices, turn):
            self._drop(self._voices[over])

    def step(self) -> bool:
        self._calls.clear()
        self._admit(self._clock())
        self._feed()
        batch = self._choose()
        if not batch:
            return False
        with self._calls.of(voice.turn for voice in batch):
            outputs = self._runner.step([voice.state for voice in batch])
        now = self._clock()
        for voice, output in zip(batch, outputs, strict=True):
            voice.stepped_at = now
            self._publish(voice, output)
        return bool(self._voices)

    def wake_after(self) -> float | None:
        """When the first that could not be stepped has to give way to one that waits."""
        if len(self._voices) < 2:
            return None
        short = {voice.turn for voice in self._voices.values() if self._lacks_memory(voice)}
        if not short and not any(self._needs_place(voice) for voice in self._voices.values()):
            return None
        placed = [voice for voice in self._voices.values() if voice.placed and voice.turn not in short]
        idle = [voice.stepped_at for voice in placed if not voice.able]
        if not idle:
            return None
        return max(0.0, min(idle) + PARK_AFTER_S - self._clock())

    def in_flight(self) -> Sequence[TurnId]:
        return self._calls.turns

    def load(self) -> SchedulerLoad:
        return SchedulerLoad(waiting=len(self._voices) - self._placed, running=self._placed)

    def _admit(self, now: float) -> None:
        for voice in self._voices.values():
            full = self._placed >= self._runner.max_states
            if full and self._needs_place(voice) and not self._park_one(now):
                return
            if self._placed < self._runner.max_states and self._takes_place(voice):
                self._place(voice, now)
        if len(self._voices) > 1 and any(self._lacks_memory(voice) for voice in self._voices.values()):
            self._park_one(now)

    def _lacks_memory(self, voice: _Voice) -> bool:
        """Whether it has a place and a listener, and no memory to go on. It keeps its place: those that hold
        the memory have places too, and will be done or parked."""
        if not voice.placed or voice.able or not self._outbox.has_room(voice.turn):
            return False
        with self._calls.of([voice.turn]):
            return self._runner.lacks_memory(voice.state)

    def _takes_place(self, voice: _Voice) -> bool:
        """Whether it may have a place that is free."""
        return not voice.placed and (not voice.opened or self._outbox.has_room(voice.turn))

    def _needs_place(self, voice: _Voice) -> bool:
        """Whether another, that cannot use its place, is to give that up for it."""
        return self._takes_place(voice) and (not voice.opened or bool(voice.arrived) or not voice.lacks_input)

    def _place(self, voice: _Voice, now: float) -> None:
        with self._calls.of([voice.turn]):
            if voice.opened:
                self._runner.unpark(voice.state)
            else:
                voice.state = self._runner.open(voice.turn)
        voice.opened, voice.parked = True, False
        voice.able, voice.stepped_at = False, now
        self._placed += 1

    def _park_one(self, now: float) -> bool:
        """Take the place of the turn that could not be stepped for longest; False: none has to give it up."""
        placed = [voice for voice in self._voices.values() if voice.placed]
        for voice in sorted(placed, key=lambda voice: voice.stepped_at):
            if now - voice.stepped_at < PARK_AFTER_S:
                return False
            if not voice.arrived and not self._lacks_memory(voice) and not self._can_step(voice):
                self._park(voice)
                return True
        return False

    def _park(self, voice: _Voice) -> None:
        voice.lacks_input = self._outbox.has_room(voice.turn)
        with self._calls.of([voice.turn]):
            self._runner.park(voice.state)
        voice.parked = True
        self._placed -= 1

    def _feed(self) -> None:
        for voice in self._voices.values():
            while voice.placed and voice.arrived:
                item = voice.arrived.popleft()
                voice.fed.append(item)
                assert isinstance(item.payload, _Taken)
                with self._calls.of([voice.turn]):
                    self._runner.feed(voice.state, item.payload)

    def _choose(self) -> list[_Voice]:
        batch: list[_Voice] = []
        for voice in self._voices.values():
            if len(batch) == self._max_batch:
                break
            if voice.placed:
                voice.able = self._can_step(voice)
                if voice.able:
                    batch.append(voice)
        self._calls.clear()
        return batch

    def _can_step(self, voice: _Voice) -> bool:
        self._calls.about(voice.turn)
        return self._outbox.has_room(voice.turn) and self._runner.ready(voice.state)

    def _publish(self, voice: _Voice, output: TalkerOutput) -> None:
        voice.release(output.consumed)
        if output.frames is not None:
            self._outbox.emit(voice.turn, output.frames)
        if not output.done:
            self._voices[voice.turn] = self._voices.pop(voice.turn)
            return
        if output.frames is None or not output.frames.last:
            empty = np.empty((0, 0), np.int64)
            self._outbox.emit(voice.turn, CodeFrames(empty, segment_end=True, last=True))
        self._drop(voice)
        self._outbox.finish(voice.turn)

    def _drop(self, voice: _Voice) -> None:
        del self._voices[voice.turn]
        voice.release_all()
        if voice.opened:
            self._placed -= voice.placed
            self._runner.close(voice.state)
