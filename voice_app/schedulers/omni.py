"""Continuous batching of an autoregressive model over a paged KV cache.

One step: choose → run → publish. Requests join and leave between steps. Every running answer gets its
token in every step; what the step's token budget leaves goes to prompts, in chunks, so that a long
prompt holds nobody up. Decisions are plain Python; the model is behind `ThinkerRunner`.

A prompt may grow while it is computed. One that waits for more holds no pages: what is computed of it lies
in the prefix cache, and when more comes it waits for pages like a new one.
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
        # Both in order of arrival (of its newest part, where a prompt has rested), and all running ones came
        # before all waiting ones. A request that rests is in neither.
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
        request = self._turns.get(item.turn)
        if request is not None and request.complete:
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
            waiting=len(self._joins.keys() | self._turns.keys()) - len(self._running),
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
            inputs = join.take(whole=not self._runner.grows)
            if inputs is None:
                continue
            request = self._turns.get(turn)
            inputs.begun = request.prompt if request else None
            try:
                prompt = self._prompt(inputs)
            except InputError as error:
                self.cancel(turn)
                self._outbox.fail(turn, error)
                continue
            join.release_taken()
            complete = not inputs.prompt.more
            if complete:
                self._joins.pop(turn).release()
            if isinstance(prompt, NoAnswer):
                self._no_answer(turn, join.speech, prompt)
            else:
                self._enqueue(turn, join.speech, prompt, complete=complete)

    def _no_answer(self, turn: TurnId, speech: bool, answer: NoAnswer) -> None:
        request = self._turns.get(turn)
        if request is not None:
            self._drop(request)
        self._answers.none(turn, answer, speech=speech)
        self._outbox.finish(turn)

    def _prompt(self, inputs: PromptInputs) -> Prompt | NoAnswer:
        with self._calls.of([inputs.turn]):
            prompt = self._runner.assemble(inputs)
        if isinstance(prompt, Prompt):
            room = self._most_positions() - len(prompt.keys)
            if room < 1 or not (prompt.keys or inputs.prompt.more):
                if inputs.begun is None:
                    self._runner.close(prompt)
                raise InputError(
                    f"the prompt has {len(prompt.keys)} positions; 1 to {self._most_positions() - 1} are "
                    "possible: shorten the conversation or raise the KV budget",
                    param="messages",
                )
        return prompt

    def _most_positions(self) -> int:
        return min(self._runner.max_positions, self._space.positions)

    def _enqueue(self, turn: TurnId, speech: bool, prompt: Prompt, *, complete: bool) -> None:
        """A new request, or one whose prompt has grown."""
        room = self._most_positions() - len(prompt.keys)
        most = min(room, max(1, prompt.max_tokens))
        if turn not in self._turns:
            self._turns[turn] = Request(turn, speech, prompt, most, least_part=self._runner.least_part)
        request = self._turns[turn]
        request.max_outputs, request.complete = most, complete
        if request.admitted and not request.under_way:
            self._space.extend(request)
            self._room_changed = True
        if request.pending and not request.admitted and request not in self._waiting:
            self._waiting.append(request)

    # ------------------------------------------------------------------------------------------ choose

    def _choose(self) -> list[tuple[Request, SequenceStep]]:
        self._set_aside()
        self._admit()
        # Oldest first: a victim is newer than all that were found able by then.
        able = [request for request in list(self._running) if self._is_able(request)]
        batch = [(r, self._next_step(r, budget=1)) for r in able if r.phase is Phase.DECODING]
        budget = max(1, self._step_tokens - len(batch))
        for request in able:
            if request.phase is Phase.PREFILLING and budget:
                step = self._next_step(request, budget)
                budget -= step.count
                batch.append((request, step))
        return batch

    def _set_aside(self) -> None:
        """What waits for more of its prompt rests."""
        for request in [request for request in self._running if request.idle]:
            self._running.remove(request)
            self._space.retire(request)
            self._room_changed = True

    def _admit(self) -> None:
        while self._waiting and self._room_changed and len(self._running) < self._max_running:
            # A page for each that runs, or the newcomer would soon be the victim of their growth.
            if not self._space.admit(self._waiting[0], reserve=len(self._running)):
                self._room_changed = False
                return
            request = self._waiting.popleft()
            if request.idle:
                self._space.retire(request)  # All that there is of its prompt was cached.
            else:
                self._running.append(request)

    def _is_able(self, request: Request) -> bool:
        """Whether it can be in this step; sees to it that its positions have pages."""
        if not request.admitted or not request.pending or request.ending:
            return False
        if not self._outbox.has_room(request.turn):
            return False
        while request.admitted and not self._space.grow(request):
            self._preempt(self._running[-1])
        return request.admitted

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
        elif request in self._waiting:
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
            sample=request.complete and count == request.pending,
        )
