"""Toy models and a recording outbox for the scheduler tests.

The toys are exact and small, so that a wrong page, a lost position or a missing frame of context
changes the output. They compute with what the scheduler gives them, never with what they remember.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

import numpy as np

from voice_app.errors import InputError, VoiceAppError
from voice_app.messages import (
    EdgePayload,
    Embeddings,
    Media,
    PromptHidden,
    PromptIds,
    PromptParams,
    Sampling,
    Span,
    StageEvent,
    StagePayload,
    TokenId,
    TokenVector,
    TurnId,
)
from voice_app.schedulers.base import (
    NoAnswer,
    Prompt,
    PromptInputs,
    SequenceStep,
    StageInput,
    StageScheduler,
    StepOutput,
)
from voice_app.schedulers.radix_cache import media_keys
from voice_app.schedulers.stop_strings import StopStrings


class Crash(Exception):
    """What a toy model raises when it is told to."""


class AtOnce(Executor):
    """Runs what is submitted before anything else happens: a thread's work without its timing."""

    def submit(self, fn, /, *args, **kwargs):
        future: Future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Crash as error:
            future.set_exception(error)
        return future


@dataclass
class Tray:
    """The runtime's side: records what schedulers emit, and holds them to the outbox's contract."""

    sent: dict[TurnId, list[EdgePayload | StageEvent]] = field(default_factory=lambda: defaultdict(list))
    failed: dict[TurnId, VoiceAppError] = field(default_factory=dict)
    finished: set[TurnId] = field(default_factory=set)
    cancelled: set[TurnId] = field(default_factory=set)
    full: set[TurnId] = field(default_factory=set)
    charged: Counter[TurnId] = field(default_factory=Counter)
    delivered: int = 0
    released: int = 0
    twice: int = 0

    def emit(self, turn: TurnId, payload: EdgePayload | StageEvent) -> None:
        assert turn not in self.finished | self.failed.keys() | self.cancelled, (turn, payload)
        self.sent[turn].append(payload)

    def has_room(self, turn: TurnId) -> bool:
        return turn not in self.full

    def fail(self, turn: TurnId, error: VoiceAppError) -> None:
        assert turn not in self.finished | self.failed.keys()
        self.failed[turn] = error

    def finish(self, turn: TurnId) -> None:
        assert turn not in self.finished | self.failed.keys()
        self.finished.add(turn)

    def charge(self, turns: Sequence[TurnId], seconds: float) -> None:
        assert seconds >= 0
        assert len(set(turns)) == len(turns)
        self.charged.update(turns)

    def over(self, turn: TurnId) -> bool:
        return turn in self.finished or turn in self.failed or turn in self.cancelled

    def item(self, turn: TurnId, payload: StagePayload, *, speech: bool = True) -> StageInput:
        """A delivery whose release is counted."""
        self.delivered += 1
        given_back = False

        def release() -> None:
            nonlocal given_back
            self.twice += given_back
            self.released += not given_back
            given_back = True

        return StageInput(turn, payload, speech, release)

    def deliver(
        self, scheduler: StageScheduler, turn: TurnId, payload: StagePayload, *, speech: bool = True
    ) -> None:
        """As the runtime does: nothing arrives for a turn that is over."""
        if not self.over(turn):
            scheduler.receive(self.item(turn, payload, speech=speech))

    def cancel(self, scheduler: StageScheduler, turn: TurnId) -> None:
        if not self.over(turn):
            self.cancelled.add(turn)
        scheduler.cancel(turn)

    def step(self, scheduler: StageScheduler) -> bool:
        """As the runtime does: a crash fails the turns in flight and ends nothing else."""
        try:
            return scheduler.step()
        except Crash:
            crashed = scheduler.in_flight()
            assert crashed
            for turn in crashed:
                self.failed[turn] = VoiceAppError("crashed")
                scheduler.cancel(turn)
            return True

    def run(self, scheduler: StageScheduler, limit: int = 10_000) -> int:
        """Step until there is nothing to do; how many steps that took."""
        for steps in range(limit):
            if not self.step(scheduler):
                return steps
        raise AssertionError(f"not idle after {limit} steps")

    def all_given_back(self) -> bool:
        return self.released == self.delivered


# ------------------------------------------------------------------------------------------- thinker

EOS = 0
VOCAB = 23


def spelled(token: int) -> bytes:
    """The text of a toy token: one to three letters, some of them of two bytes."""
    return ("", "a", "b", "ab", "bé", "aba")[token % 6].encode()


def toy_answer(content: Sequence[int], max_tokens: int) -> list[int]:
    """What the toy thinker says, computed in one go: tokens, the last perhaps EOS."""
    cells: list[int] = []
    inputs = list(content)
    tokens: list[int] = []
    for position in range(len(content) + max_tokens - 1):
        cells.append(_cell(inputs[position], position, cells))
        if position >= len(content) - 1:
            tokens.append(cells[-1] % VOCAB)
            if tokens[-1] == EOS:
                break
            inputs.append(tokens[-1])
    return tokens


def _cell(content: int, position: int, before: Iterable[int]) -> int:
    return hash((content, position, *before))


@dataclass
class ToyThinker:
    """Its KV cell of a position is a hash of the position's content and of every cell before it, read
    through the block table. A media row's content is its number, whatever the media's key says."""

    page_size: int = 4
    num_pages: int = 64
    max_positions: int = 1000
    overlaps: bool = False
    grows: bool = True
    least_part: int = 1
    open_prompts: int = 0
    computed: int = 0
    recomputed: int = 0
    """Steps that computed positions again which had a token sampled after them: after a preemption."""
    batches: list[list[tuple[int, int]]] = field(default_factory=list)
    """(start, count) of each sequence of each step."""
    crash: Callable[[Sequence[SequenceStep]], bool] = lambda batch: False
    opening_ids: Sequence[Sequence[int]] = ()

    def __post_init__(self) -> None:
        self.cells = np.full((self.num_pages, self.page_size), -7, dtype=np.int64)

    def warm_up(self) -> None:
        pass

    def openings(self) -> Sequence[Prompt]:
        prompts = []
        for content in self.opening_ids:
            self.open_prompts += 1
            params = PromptParams()
            prompts.append(Prompt(list(content), params, params.sampling, 1, frozenset([EOS]), list(content)))
        return prompts

    def assemble(self, inputs: PromptInputs) -> Prompt | NoAnswer:
        keys: list[int] = []
        content: list[int] = []
        for span in inputs.prompt.spans:
            if span.media is None:
                keys += span.ids
                content += span.ids
            else:
                rows = inputs.media[span.media.key].rows
                keys += media_keys(span.media.key, len(rows))
                content += [int(row[0]) for row in rows]
        if content == [404]:
            raise InputError("nothing to say to that", param="messages")
        if inputs.begun is not None:
            assert isinstance(inputs.begun.state, list)
            inputs.begun.keys += keys
            inputs.begun.state += content
            return inputs.begun
        if not content and not inputs.prompt.more:
            return NoAnswer()
        self.open_prompts += 1
        params = inputs.prompt.request
        sampling = params.sampling
        reader = StopStrings(sampling.stop, spelled) if sampling.stop else None
        return Prompt(keys, params, sampling, sampling.max_tokens or 8, frozenset([EOS]), content, reader)

    def step(self, batch: Sequence[SequenceStep]) -> Sequence[StepOutput]:
        if self.crash(batch):
            # A call that dies half-way has written rubbish where it was to write.
            for step in batch:
                for position in range(step.start, step.start + step.count):
                    self._write(step, position, -13)
            raise Crash
        self.batches.append([(step.start, step.count) for step in batch])
        return [self._advance(step) for step in batch]

    def close(self, prompt: Prompt) -> None:
        self.open_prompts -= 1
        prompt.state = None  # A step with it from now on fails.

    def _advance(self, step: SequenceStep) -> StepOutput:
        content = step.prompt.state
        assert isinstance(content, list)
        inputs = [*content, *step.outputs]
        assert step.count >= 1
        assert step.sample == (step.start + step.count == len(inputs))
        self.computed += step.count
        self.recomputed += step.count > 1 and bool(step.outputs)
        cell = 0
        for position in range(step.start, step.start + step.count):
            cell = _cell(inputs[position], position, (self._read(step, at) for at in range(position)))
            self._write(step, position, cell)
        if not step.sample:
            return StepOutput()
        token = cell % VOCAB
        before = () if step.outputs else (PromptHidden(np.zeros((1, 1)), np.zeros(1, np.int64)),)
        return StepOutput(token, np.array([token, len(inputs)], np.float32), before)

    def _read(self, step: SequenceStep, position: int) -> int:
        return int(self.cells[step.pages[position // self.page_size], position % self.page_size])

    def _write(self, step: SequenceStep, position: int, cell: int) -> None:
        self.cells[step.pages[position // self.page_size], position % self.page_size] = cell


@dataclass(frozen=True)
class Ask:
    """A request of the toy thinker. `parts`: token ids, or (media key, contents of its rows)."""

    parts: tuple[tuple[int, ...] | tuple[str, tuple[int, ...]], ...]
    max_tokens: int = 8
    speech: bool = True
    stop: tuple[str, ...] = ()

    @property
    def content(self) -> list[int]:
        return [value for ids in self._pieces() for value in ids]

    def _pieces(self) -> list[tuple[int, ...]]:
        return [p[1] if p and isinstance(p[0], str) else p for p in self.parts]  # type: ignore[misc]

    def payloads(self) -> list[PromptIds | Embeddings]:
        (whole,) = self.cut(())
        return whole

    def cut(self, cuts: Iterable[int]) -> list[list[PromptIds | Embeddings]]:
        """The payloads of a prompt that comes in parts, cut in front of the positions `cuts`; a medium is not
        cut in two, but goes with its beginning."""
        bounds = [0, *sorted(cuts), len(self.content) + 1]
        params = PromptParams(sampling=Sampling(max_tokens=self.max_tokens, stop=self.stop))
        made: list[list[PromptIds | Embeddings]] = []
        for first, last in itertools.pairwise(bounds):
            spans, media = self._between(first, last)
            more = last != bounds[-1]
            made.append([PromptIds(tuple(spans), params, more), *media])
        return made

    def _between(self, first: int, last: int) -> tuple[list[Span], list[Embeddings]]:
        """Of the positions [first, last)."""
        spans: list[Span] = []
        media: list[Embeddings] = []
        at = 0
        for part, piece in zip(self.parts, self._pieces(), strict=True):
            if part and isinstance(part[0], str):
                if first <= at < last:
                    place = Media(part[0], "image")
                    spans.append(Span(media=place))
                    media.append(Embeddings(place, np.array(piece, np.float32)[:, None]))
            else:
                spans.append(Span(ids=piece[max(0, first - at) : max(0, last - at)]))
            at += len(piece)
        return spans, media

    def answer(self) -> list[int]:
        return toy_answer(self.content, self.max_tokens)


def ask(number: int, length: int = 9, *, max_tokens: int = 8, speech: bool = True) -> Ask:
    """An ask with eight positions that all others begin with too, and `length` of its own."""
    own = tuple(number * 50 + i for i in range(length))
    return Ask((tuple(range(100, 108)), own), max_tokens, speech)


def long_ask(number: int, length: int, max_tokens: int) -> Ask:
    """An ask, different for each number, whose answer reaches `max_tokens` without an EOS."""
    for first in range(number * 100_000, (number + 1) * 100_000, 1000):
        found = Ask((tuple(range(first, first + length)),), max_tokens)
        if EOS not in found.answer():
            return found
    raise AssertionError("no such prompt")


def deliver(tray: Tray, scheduler: StageScheduler, number: int, what: Ask) -> None:
    """All of an ask's payloads, to the turn of that number."""
    for payload in what.payloads():
        tray.deliver(scheduler, turn_id(number), payload, speech=what.speech)


def said(tray: Tray, turn: TurnId) -> list[int]:
    """The ids of a turn's `TokenId`s so far."""
    return [p.id for p in tray.sent[turn] if isinstance(p, TokenId) and p.id is not None]


def check_turn(tray: Tray, turn: TurnId, ask: Ask) -> None:
    """A finished turn's whole output on both edges: the right tokens, each once, ended once."""
    right = ask.answer()
    ended = right[-1] == EOS
    ids: list[int | None] = list(right[:-1] if ended else right)
    tokens = [p for p in tray.sent[turn] if isinstance(p, TokenId)]
    assert [p.id for p in tokens] == ([*ids, None] if ended else ids)
    assert [p.finish_reason for p in tokens[:-1]] == [None] * (len(tokens) - 1)
    assert tokens[-1].finish_reason == ("stop" if ended else "length")
    assert tokens[-1].usage.prompt_tokens == len(ask.content)
    assert tokens[-1].usage.output_tokens == len(ids)
    vectors = [p for p in tray.sent[turn] if isinstance(p, TokenVector)]
    hidden = [p for p in tray.sent[turn] if isinstance(p, PromptHidden)]
    # An answer without a word is not spoken: the talker needs nothing for it.
    assert len(hidden) == (ask.speech and bool(ids))
    assert [(p.id, p.finish_reason) for p in vectors] == (
        [(p.id, p.finish_reason) for p in tokens] if ask.speech else []
    )
    for place, vector in enumerate(vectors):
        expected = None if vector.id is None else [vector.id, len(ask.content) + place]
        assert expected == (None if vector.vector is None else vector.vector.tolist())


def turn_id(number: int, generation: int = 0) -> TurnId:
    return TurnId("s", str(number), generation)
