"""The talker's loop: a step takes those turns whose next text vector is there.

Overlap, prefix cache and chunked prefill are off: each step's input is the frame that the step
before wrote, and the prompt arrives as vectors. A turn that is not ready never holds the others.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from voice_app.messages import CodeFrames, Embeddings, PromptHidden, PromptIds, Stage, TokenVector, TurnId
from voice_app.schedulers.base import Outbox, SchedulerLoad, StageInput, TalkerOutput, TalkerRunner
from voice_app.schedulers.turns import Clock, ModelCalls, refuse, stale

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

    def release(self, count: int) -> None:
        for _ in range(min(count, len(self.fed))):
            self.fed.popleft().release()

    def release_all(self) -> None:
        self.release(len(self.fed))
        while self.arrived:
            self.arrived.popleft().release()


class QwenTalkerScheduler:
    """At most `runner.max_states` turns are open, in order of arrival; the rest wait."""

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
        self._calls = ModelCalls(outbox, clock)
        # In the order of the next step's choice: those just stepped stand last.
        self._voices: dict[TurnId, _Voice] = {}
        self._open = 0

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
        self._admit()
        self._feed()
        batch = self._choose()
        if not batch:
            return False
        with self._calls.of(voice.turn for voice in batch):
            outputs = self._runner.step([voice.state for voice in batch])
        for voice, output in zip(batch, outputs, strict=True):
            self._publish(voice, output)
        return bool(self._voices)

    def wake_after(self) -> float | None:
        return None

    def in_flight(self) -> Sequence[TurnId]:
        return self._calls.turns

    def load(self) -> SchedulerLoad:
        return SchedulerLoad(waiting=len(self._voices) - self._open, running=self._open)

    def _admit(self) -> None:
        for voice in self._voices.values():
            if self._open >= self._runner.max_states:
                return
            if not voice.opened:
                with self._calls.of([voice.turn]):
                    voice.state = self._runner.open(voice.turn)
                voice.opened = True
                self._open += 1

    def _feed(self) -> None:
        for voice in self._voices.values():
            while voice.opened and voice.arrived:
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
            if voice.opened and self._outbox.has_room(voice.turn):
                self._calls.about(voice.turn)
                if self._runner.ready(voice.state):
                    batch.append(voice)
        self._calls.clear()
        return batch

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
            self._open -= 1
            self._runner.close(voice.state)
