"""`OmniScheduler`'s loop with the model's step under way while the next is chosen and the last published.

The model runs in a thread of its own, one step after another. A step is chosen before the tokens of the
one under way are known: a request that decodes is expected to go on, and the model's thread itself hands
each token on to the next step. What ends meanwhile (EOS, a cancel) has computed one row for nobody. The
plain loop is the specification: both give the same tokens.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from voice_app.schedulers.base import Outbox, Prompt, SequenceStep, StepOutput, ThinkerRunner
from voice_app.schedulers.omni import OmniScheduler
from voice_app.schedulers.request import Request
from voice_app.schedulers.turns import Clock


@dataclass(slots=True, eq=False)
class _Track:
    """What the model's thread knows of a request; that thread alone changes it."""

    sampled: list[int]
    """One token ahead of `Request.outputs`."""
    lost: bool = False
    """A step with it raised: its next token will never be there."""


@dataclass(slots=True)
class _Row:
    """One request's part of a flight. `life`: `Request.lives` when it was chosen."""

    request: Request
    step: SequenceStep
    track: _Track
    life: int


@dataclass(slots=True, eq=False)
class _Flight:
    """One step of the model, under way or landed."""

    rows: list[_Row]
    outputs: Future[list[StepOutput | None]] = field(default_factory=Future)
    """One a row; None for a request that an earlier flight lost."""
    seconds: float = 0.0
    """Set by the model's thread."""
    over: list[Prompt] = field(default_factory=list)
    """Prompts of requests that ended while this flight had them, to be closed once it has landed."""


class OverlappedOmniScheduler(OmniScheduler):
    """As `OmniScheduler`, for a runner whose step spends its time outside Python (`overlaps`)."""

    def __init__(
        self,
        runner: ThinkerRunner,
        outbox: Outbox,
        max_running: int = 64,
        step_tokens: int = 256,
        clock: Clock = time.perf_counter,
        model: Executor | None = None,
    ) -> None:
        """`model` runs the steps, one after another; a thread of its own unless given."""
        self._tracks: dict[Request, _Track] = {}
        self._flight: _Flight | None = None
        self._clock = clock
        super().__init__(runner, outbox, max_running, step_tokens, clock)
        self._tracks.clear()  # Openings need none any more.
        self._model = model or ThreadPoolExecutor(1, thread_name_prefix="thinker-model")

    def step(self) -> bool:
        self._calls.clear()
        self._assemble()
        batch = self._choose()
        landing, self._flight = self._flight, self._launch(batch) if batch else None
        if landing is not None:
            self._land(landing)
        elif self._flight is None:
            self._rest()
            return False
        self._checked = False
        return True

    # ------------------------------------------------------------------------------------------ launch

    def _next_step(self, request: Request, budget: int) -> SequenceStep:
        track = self._tracks.setdefault(request, _Track(list(request.outputs)))
        count = min(request.pending, budget)
        return SequenceStep(
            prompt=request.prompt,
            outputs=track.sampled,
            start=request.computed + request.under_way,
            count=count,
            # A copy: the table goes on changing while the step runs.
            pages=list(request.table),
            sample=request.complete and count == request.pending,
        )

    def _launch(self, batch: Sequence[tuple[Request, SequenceStep]]) -> _Flight:
        rows = [_Row(request, step, self._tracks[request], request.lives) for request, step in batch]
        for request, step in batch:
            request.under_way += step.count
            request.expected += step.sample
        flight = _Flight(rows)
        flight.outputs = self._model.submit(self._fly, flight)
        return flight

    def _fly(self, flight: _Flight) -> list[StepOutput | None]:
        """In the model's thread."""
        rows = [row for row in flight.rows if not row.track.lost]
        start = self._clock()
        for row in rows:
            row.track.lost = True
        outputs = self._runner.step([row.step for row in rows]) if rows else ()
        flight.seconds = self._clock() - start
        made: dict[Request, StepOutput] = {}
        for row, output in zip(rows, outputs, strict=True):
            row.track.lost = False
            made[row.request] = output
            if output.token is not None:
                row.track.sampled.append(output.token)
        return [made.get(row.request) for row in flight.rows]

    # -------------------------------------------------------------------------------------------- land

    def _land(self, flight: _Flight) -> None:
        """Wait for the flight and publish it."""
        rows = [row for row in flight.rows if self._turns.get(row.request.turn) is row.request]
        self._calls.turns = tuple(row.request.turn for row in rows)
        error = flight.outputs.exception()
        for prompt in flight.over:
            self._runner.close(prompt)
        if error is not None:
            if not rows:
                return  # It hit nobody who is still here.
            raise error
        self._outbox.charge(self._calls.turns, flight.seconds)
        self._calls.clear()
        for row, output in zip(flight.rows, flight.outputs.result(), strict=True):
            if output is not None and self._turns.get(row.request.turn) is row.request:
                self._take(row, output)

    def _take(self, row: _Row, output: StepOutput) -> None:
        request, step = row.request, row.step
        alive = request.lives == row.life
        if alive:
            request.under_way -= step.count
            request.computed += step.count
        if not step.sample:
            return
        request.expected -= 1
        if not request.outputs and alive:
            self._space.publish(request)
            self._room_changed = True
        if self._answers.take(request, output):
            self._drop(request)
            self._outbox.finish(request.turn)

    def _close(self, request: Request) -> None:
        self._tracks.pop(request, None)
        if self._flight is not None and any(row.request is request for row in self._flight.rows):
            self._flight.over.append(request.prompt)
        else:
            super()._close(request)
