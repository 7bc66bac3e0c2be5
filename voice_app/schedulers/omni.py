"""Continuous batching of an autoregressive model over a paged KV cache.

One step: choose → run → publish. Requests join and leave between steps. Every running answer gets its
token in every step; what the step's token budget leaves goes to prompts, in chunks, so that a long
prompt holds nobody up. Decisions are plain Python; the model is behind `ThinkerRunner`.
"""

import time
from collections import deque
from collections.abc import Sequence

from voice_app.errors import InputError
from voice_app.messages import Stage, TurnId
from voice_app.schedulers.answer import Answers
from voice_app.schedulers.base import (
    NoAnswer,
    Outbox,
    Prompt,
    PromptInputs,
    SchedulerLoad,
    SequenceStep,
    StageInput,
    StepOutput,
    ThinkerRunner,
)
from voice_app.schedulers.join import InputJoin
from voice_app.schedulers.kv_space import KvSpace
from voice_app.schedulers.request import Phase, Request
from voice_app.schedulers.turns import Clock, ModelCalls, refuse, stale

_NOBODY = TurnId("", "")
"""Whom a request is for that only fills the prefix cache."""


class OmniScheduler:
    """First come, first served. `max_running`: most requests that hold pages at once. `step_tokens`:
    positions that one step computes at most, decodes counted first (a step always takes all decodes
    and at least one prompt position); it bounds the gap between two tokens of an answer."""

    def __init__(
        self,
        runner: ThinkerRunner,
        outbox: Outbox,
        max_running: int = 64,
        step_tokens: int = 256,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._runner = runner
        self._outbox = outbox
        self._max_running = max_running
        self._step_tokens = step_tokens
        self._answers = Answers(outbox)
        self._calls = ModelCalls(outbox, clock)
        self._space = KvSpace(runner.num_pages, runner.page_size)
        self._joins: dict[TurnId, InputJoin] = {}
        # Both in order of arrival, and all running ones came before all waiting ones.
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._turns: dict[TurnId, Request] = {}
        self._room_changed = True
        """Whether the first that waits may fit since it was last found not to."""
        self._checked = True
        """Whether the pages were checked since this scheduler last worked."""
        for prompt in runner.openings():
            self._preload(prompt)

    # ------------------------------------------------------------------------- what the runtime calls

    def receive(self, item: StageInput) -> None:
        if item.turn in self._turns:
            item.release()  # Media that the prompt holds twice may come twice.
            return
        join = self._joins.setdefault(item.turn, InputJoin(item.turn, item.speech))
        if not join.add(item):
            self.cancel(item.turn)
            refuse(self._outbox, Stage.THINKER, item)

    def cancel(self, turn: TurnId) -> None:
        for over in stale(self._joins, turn):
            self._joins.pop(over).release()
        for over in stale(self._turns, turn):
            self._drop(self._turns[over])

    def step(self) -> bool:
        self._calls.clear()
        self._assemble()
        batch = self._choose()
        if not batch:
            self._rest()
            return False
        self._checked = False
        self._publish(batch, self._run(batch))
        return True

    def wake_after(self) -> float | None:
        return None

    def in_flight(self) -> Sequence[TurnId]:
        return self._calls.turns

    def load(self) -> SchedulerLoad:
        pages = self._space.stats()
        return SchedulerLoad(
            waiting=len(self._joins) + len(self._waiting),
            running=len(self._running),
            pages_used=pages.total - pages.free - pages.cached,
            pages_total=pages.total,
        )

    def _preload(self, prompt: Prompt) -> None:
        """Put the KV of `prompt` into the prefix cache; the token after it is nobody's."""
        request = Request(_NOBODY, speech=False, prompt=prompt, max_outputs=1)
        if self._space.admit(request, reserve=0):
            while request.pending:
                step = self._next_step(request, self._step_tokens)
                self._runner.step([step])
                request.computed += step.count
            self._space.retire(request)
        self._runner.close(prompt)

    # ------------------------------------------------------------------------------------ new requests

    def _assemble(self) -> None:
        for turn, join in list(self._joins.items()):
            inputs = join.inputs()
            if inputs is None:
                continue
            try:
                prompt = self._prompt(inputs)
            except InputError as error:
                self.cancel(turn)
                self._outbox.fail(turn, error)
                continue
            del self._joins[turn]
            join.release()
            if isinstance(prompt, NoAnswer):
                self._answers.none(turn, prompt.finish_reason, speech=join.speech)
                self._outbox.finish(turn)
            else:
                self._enqueue(turn, join.speech, prompt)

    def _prompt(self, inputs: PromptInputs) -> Prompt | NoAnswer:
        with self._calls.of([inputs.turn]):
            prompt = self._runner.assemble(inputs)
        if isinstance(prompt, Prompt):
            room = self._most_positions() - len(prompt.keys)
            if room < 1 or not prompt.keys:
                self._runner.close(prompt)
                raise InputError(
                    f"the prompt has {len(prompt.keys)} positions; 1 to {self._most_positions() - 1} are "
                    "possible: shorten the conversation or raise the KV budget",
                    param="messages",
                )
        return prompt

    def _most_positions(self) -> int:
        return min(self._runner.max_positions, self._space.positions)

    def _enqueue(self, turn: TurnId, speech: bool, prompt: Prompt) -> None:
        room = self._most_positions() - len(prompt.keys)
        request = Request(turn, speech, prompt, max_outputs=min(room, max(1, prompt.max_tokens)))
        self._turns[turn] = request
        self._waiting.append(request)

    # ------------------------------------------------------------------------------------------ choose

    def _choose(self) -> list[tuple[Request, SequenceStep]]:
        self._admit()
        batch = self._decodes()
        budget = max(1, self._step_tokens - len(batch))
        for request in self._running:
            if request.phase is not Phase.PREFILLING or request.ending or not budget:
                continue
            if self._outbox.has_room(request.turn):
                step = self._next_step(request, budget)
                budget -= step.count
                batch.append((request, step))
        return batch

    def _admit(self) -> None:
        while self._waiting and self._room_changed and len(self._running) < self._max_running:
            # A page for each that runs, or the newcomer would soon be the victim of their growth.
            if not self._space.admit(self._waiting[0], reserve=len(self._running)):
                self._room_changed = False
                return
            self._running.append(self._waiting.popleft())

    def _decodes(self) -> list[tuple[Request, SequenceStep]]:
        batch: list[tuple[Request, SequenceStep]] = []
        # Oldest first: a victim is newer than all that are in the batch by then.
        for request in list(self._running):
            if request.phase is not Phase.DECODING or request.ending:
                continue
            if not self._outbox.has_room(request.turn):
                continue
            while request.admitted and not self._space.grow(request):
                self._preempt(self._running[-1])
            if request.admitted:
                batch.append((request, self._next_step(request, budget=1)))
        return batch

    def _preempt(self, request: Request) -> None:
        """Take its pages; it computes them again when there is room, and goes on with the same tokens."""
        self._running.remove(request)
        self._space.retire(request)
        self._waiting.appendleft(request)

    # --------------------------------------------------------------------------------------------- run

    def _run(self, batch: Sequence[tuple[Request, SequenceStep]]) -> Sequence[StepOutput]:
        with self._calls.of(request.turn for request, _ in batch):
            return self._runner.step([step for _, step in batch])

    # ----------------------------------------------------------------------------------------- publish

    def _publish(self, batch: Sequence[tuple[Request, SequenceStep]], outputs: Sequence[StepOutput]) -> None:
        for (request, step), output in zip(batch, outputs, strict=True):
            request.computed += step.count
            if step.sample:
                if not request.outputs:
                    self._space.publish(request)
                    self._room_changed = True
                if self._answers.take(request, output):
                    self._drop(request)
                    self._outbox.finish(request.turn)

    # ------------------------------------------------------------------------------------------- leave

    def _drop(self, request: Request) -> None:
        del self._turns[request.turn]
        if request.admitted:
            self._running.remove(request)
            self._space.retire(request)
        else:
            self._waiting.remove(request)
        self._room_changed = True
        self._close(request)

    def _close(self, request: Request) -> None:
        self._runner.close(request.prompt)

    def _rest(self) -> None:
        """The pages are accounted for whenever nothing is left to do: a leak shows at once."""
        if not self._turns and not self._checked:
            self._space.check([])
            self._checked = True

    def _next_step(self, request: Request, budget: int) -> SequenceStep:
        count = min(request.pending, budget)
        return SequenceStep(
            prompt=request.prompt,
            outputs=request.outputs,
            start=request.computed,
            count=count,
            pages=request.table,
            sample=count == request.pending,
        )
