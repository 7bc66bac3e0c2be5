"""One pass: batches what waits, never waits for more. Preprocessing and the encoders run in it."""

import time
from collections import deque
from collections.abc import Sequence
from itertools import islice

from voice_app.errors import VoiceAppError
from voice_app.messages import EdgePayload, StageEvent, TurnId, TurnRequest
from voice_app.schedulers.base import OnePassRunner, Outbox, SchedulerLoad, StageInput
from voice_app.schedulers.turns import Clock, ModelCalls, stale


class SimpleScheduler:
    """First come, first served, by the part where the runner takes an input in parts; a turn without room
    downstream is passed over, not waited for."""

    def __init__(
        self,
        runner: OnePassRunner,
        outbox: Outbox,
        max_batch: int = 32,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._runner = runner
        self._outbox = outbox
        self._max_batch = max_batch
        self._calls = ModelCalls(outbox, clock)
        self._waiting: deque[StageInput] = deque()

    def receive(self, item: StageInput) -> None:
        self._waiting.append(item)

    def cancel(self, turn: TurnId) -> None:
        over = set(stale({item.turn for item in self._waiting}, turn))
        dropped = [item for item in self._waiting if item.turn in over]
        self._waiting = deque(item for item in self._waiting if item.turn not in over)
        for item in dropped:
            item.release()

    def step(self) -> bool:
        self._calls.clear()
        batch = list(islice((i for i in self._waiting if self._outbox.has_room(i.turn)), self._max_batch))
        if not batch:
            return False
        # The inputs stay in the queue during the call: if it raises, `cancel` finds and releases them.
        with self._calls.of(item.turn for item in batch):
            results = self._runner.run(batch)
        taken = {id(item) for item in batch}
        self._waiting = deque(item for item in self._waiting if id(item) not in taken)
        # Long inputs go on behind those that came after them, before errors cancel what waits.
        self._waiting += [item for item, result in zip(batch, results, strict=True) if result is None]
        for item, result in zip(batch, results, strict=True):
            if result is not None:
                self._publish(item, result)
        return bool(self._waiting)

    def wake_after(self) -> float | None:
        return None

    def in_flight(self) -> Sequence[TurnId]:
        return self._calls.turns

    def load(self) -> SchedulerLoad:
        return SchedulerLoad(waiting=len(self._waiting))

    def _publish(self, item: StageInput, result: Sequence[EdgePayload | StageEvent] | VoiceAppError) -> None:
        item.release()
        if isinstance(result, VoiceAppError):
            self.cancel(item.turn)
            self._outbox.fail(item.turn, result)
            return
        for payload in result:
            self._outbox.emit(item.turn, payload)
        # The request itself is its stage's only input; an encoder's turn may bring more media.
        if isinstance(item.payload, TurnRequest):
            self._outbox.finish(item.turn)
