"""What real crowds met, as plain data that the capacity model can replay: the same questions by the same
people, begun at the same moments."""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from load.simulation.people import Said, Talk
from load.simulation.shapes import Clause, Pack, Shape
from voice_app.bench.report import percentile
from voice_app.errors import ConfigError
from voice_app.messages import StageTiming
from voice_app.models.functions import plan
from voice_app.models.local.clauses import ClauseCutter, Opening
from voice_app.models.local.ending import said_enough
from voice_app.models.local.understanding import SORRY

_NOON = datetime(2026, 1, 1, 12)
"""Whether a rule has an answer does not depend on the time."""


class Answer(msgspec.Struct, frozen=True):
    """What is known of one where the pipeline itself was asked. `words`: the question as it was heard;
    `pieces`: the text as it came, with the tokens of each piece; `audio_s`: seconds of its sound."""

    words: str
    pieces: list[tuple[str, int]]
    prompt_tokens: int
    output_tokens: int
    audio_s: float


class RealTurn(msgspec.Struct, frozen=True):
    """One turn of `talk`. Seconds; `began`: its first word was said, or the whole question given; `ended`:
    its answer was heard to its end; `first_audio_s` since the end of the speech; `gaps`: how often the
    listener ran dry."""

    talk: int
    question: str
    began: float
    ended: float
    first_audio_s: float
    gaps: int = 0
    stages: dict[str, StageTiming] = {}
    answer: Answer | None = None


class Held(msgspec.Struct, frozen=True):
    """`people` talked from `begin` to `end`: the turns that ended then count. `cores`: how much of one each
    process used meanwhile, where that was watched."""

    people: int
    begin: float
    end: float
    cores: dict[str, float] = {}

    def counts(self, ended: float | None) -> bool:
        """Whether a turn that ended then does."""
        return ended is not None and self.begin <= ended < self.end


class Crowd(msgspec.Struct, frozen=True):
    """Talks over one pipeline; the number of people may rise while they talk. `pace`: how many times as long
    the models' calls took then, by themselves, as when the service times were measured."""

    held: list[Held]
    turns: list[RealTurn]
    pace: float = 1.0


@dataclass(slots=True)
class Figures:
    """What so many people met: seconds until the first audio of each turn, and turns with a gap, which may be
    an average."""

    first_audio_s: list[float]
    gaps: float

    def percentile(self, percent: float) -> float:
        return percentile(self.first_audio_s, percent)

    def holds(self, p95_s: float) -> bool:
        """Nobody ran dry, or more likely than not nobody did, and first audio came in time."""
        return self.gaps < 0.5 and self.percentile(95) <= p95_s


class Run(msgspec.Struct, frozen=True):
    """`silence_ms`: by which a server told the end of a question; None: questions were given whole."""

    machine: dict[str, str | int]
    silence_ms: int | None
    crowds: list[Crowd]

    def people(self) -> list[int]:
        return sorted({held.people for crowd in self.crowds for held in crowd.held})

    def turns(self, people: int) -> list[RealTurn]:
        """All that count for so many."""
        return [
            turn
            for crowd in self.crowds
            for held in crowd.held
            if held.people == people
            for turn in crowd.turns
            if held.counts(turn.ended)
        ]

    def figures(self, people: int) -> Figures:
        turns = self.turns(people)
        return Figures([turn.first_audio_s for turn in turns], sum(bool(turn.gaps) for turn in turns))


def talks(crowd: Crowd, pack: Pack, seed: int = 0) -> list[Talk]:
    """What was said in it, and answered where that is known; else one of the answers that were measured, by
    `seed`. Raises ConfigError for a question that was not measured."""
    by_talk: dict[int, list[RealTurn]] = defaultdict(list)
    for turn in sorted(crowd.turns, key=lambda turn: turn.began):
        by_talk[turn.talk].append(turn)
    return [
        Talk(turns[0].began, tuple(_says(turns, pack, random.Random(f"{talk} {seed}"))))
        for talk, turns in by_talk.items()
    ]


def _says(turns: Sequence[RealTurn], pack: Pack, dice: random.Random) -> Iterator[Said]:
    before, earlier = pack.shared, list[str]()
    for number, turn in enumerate(turns):
        shape = dice.choice(_measured(pack, turn.question, later=number > 0))
        if turn.answer is not None:
            shape = answered(shape, turn.answer, before, earlier, pack.frame_s)
            before = turn.answer.prompt_tokens + shape.tokens
            earlier.append(turn.answer.words)
        yield Said(shape, 0.0, turn.began)


def _measured(pack: Pack, question: str, *, later: bool) -> list[Shape]:
    """What the question and its answers were like when they were measured."""
    known = [shape for shape in pack.shapes if shape.question == question]
    if not known:
        raise ConfigError(f"{question!r} was not measured: python -m load.measure_stages")
    return [shape for shape in known if shape.later is later] or known


def answered(shape: Shape, answer: Answer, before: int, earlier: Sequence[str], frame_s: float) -> Shape:
    """`shape` with the answer that came. `before`: positions of the talk until then; `earlier`: what had been
    said in it."""
    text = "".join(piece for piece, _ in answer.pieces)
    ruled = text == SORRY or plan(answer.words, _NOON, earlier) is not None
    tokens = answer.output_tokens + ends_alone(text, ruled=ruled)
    return msgspec.structs.replace(
        shape,
        asked=answer.prompt_tokens - before,
        tokens=tokens,
        clauses=_clauses(answer, tokens, round(answer.audio_s / frame_s)),
        ruled=ruled,
    )


def ends_alone(text: str, *, ruled: bool) -> bool:
    """Whether the answer's end is a token of its own: no rule gave the answer, nor was it long enough."""
    return not ruled and not said_enough(text)


def _clauses(answer: Answer, last: int, frames: int) -> tuple[Clause, ...]:
    """The opening, if there is one, and the clauses. What is whole only because the text is over waits for
    the token number `last`. Each of them gets its share of the frames, by its letters."""
    cutter, ends, tokens = ClauseCutter(), list[tuple[int, int]](), 0
    opening: tuple[int, Opening] | None = None
    for piece, count in answer.pieces:
        cutter.push(piece)
        tokens += count
        opens = None if opening else cutter.opening()
        if opens is not None:
            opening = tokens, opens
        ends += _taken(cutter, tokens)
    cutter.finish()
    ends += _taken(cutter, last)
    letters = sum(size for _, size in ends)

    def share(size: int) -> int:
        return max(1, round(frames * size / letters))

    if opening is None:
        return tuple(Clause(end, share(size)) for end, size in ends)
    at, opens = opening
    over = share(len(opens.text[: opens.end].strip()))
    (end, size), *others = ends
    return (
        Clause(at, share(len(opens.text.strip())), end=over),
        Clause(end, share(size), over),
        *(Clause(end, share(size)) for end, size in others),
    )


def _taken(cutter: ClauseCutter, tokens: int) -> list[tuple[int, int]]:
    """The clauses that are whole by now and hold words: (tokens so far, letters)."""
    found: list[tuple[int, int]] = []
    while cutter.peek() is not None:
        words = cutter.take().text.strip()
        if words:
            found.append((tokens, len(words)))
    return found


def read(path: Path) -> Run:
    """Raises ConfigError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Run)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: no run of `simulate_check` ({error})") from error


def joined(runs: Iterable[Run]) -> Run:
    """Several as one, with the crowds of all. Raises ConfigError if they are of different kinds."""
    first, *others = runs
    if any(run.silence_ms != first.silence_ms for run in others):
        raise ConfigError("--real: crowds before a server and crowds without one are not compared as one")
    crowds = [crowd for run in (first, *others) for crowd in run.crowds]
    return Run(first.machine, first.silence_ms, crowds)


def write(run: Run, path: Path) -> None:
    path.write_bytes(msgspec.json.encode(run))
