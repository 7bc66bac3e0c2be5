"""People in simulated time: they ask, listen to the whole answer, think, and ask again."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count

from load.listener import Listener
from load.simulation.box import Box, Timings
from load.simulation.listening import Then, steps
from load.simulation.runners import Asked
from load.simulation.shapes import Pack, Shape
from voice_app import messages as m
from voice_app.bench.report import percentile
from voice_app.messages import TurnId
from voice_app.server.occupancy import Occupancy
from voice_app.server.session.turns import Rules

PATIENCE_S = 30.0
AFTER_WORDS = 5
"""Positions of a prompt after a question's words: ChatML's end of a turn and its next beginning."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How people talk. `think_s`: from, to; from the end of an answer to the next question."""

    turns: int = 4
    think_s: tuple[float, float] = (0.3, 1.2)
    arrive_within_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Server:
    """Listens to the questions. `silence_ms` ends one; `reply_s`: from then to the first sound, if it is
    there already."""

    silence_ms: int
    reply_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Said:
    """One question, and how long is thought after its answer. `at_s`: when it begins whatever was thought,
    but not before the answer to the one before was heard."""

    shape: Shape
    think_s: float
    at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Talk:
    """All that one person says, from `arrives_s` on."""

    arrives_s: float
    says: tuple[Said, ...]


@dataclass(slots=True)
class Heard:
    """One turn. Seconds; `first_audio_s` since the end of the speech; `at`: when that was; `ended`: when the
    answer was heard to its end. None: never."""

    at: float
    question: str = ""
    first_audio_s: float | None = None
    ended: float | None = None
    gaps: int = 0
    stages: Timings = field(default_factory=Timings)


@dataclass(slots=True)
class Met:
    """What a crowd met."""

    people: int
    turns: list[Heard] = field(default_factory=list)

    def percentile(self, percent: float) -> float:
        """Of first audio, in seconds; a turn that was never heard counts as `PATIENCE_S`."""
        return percentile(
            [PATIENCE_S if t.first_audio_s is None else t.first_audio_s for t in self.turns], percent
        )

    @property
    def gaps(self) -> int:
        """Turns in which a listener ran dry."""
        return sum(bool(turn.gaps) for turn in self.turns)

    def holds(self, p95_s: float) -> bool:
        """Nobody ran dry, and first audio came in time."""
        return bool(self.turns) and not self.gaps and self.percentile(95) <= p95_s


def talks(pack: Pack, people: int, manner: Manner, seed: int) -> list[Talk]:
    """What a crowd says."""
    return [_talk(pack, manner, random.Random(1000 * seed + number)) for number in range(people)]


def _talk(pack: Pack, manner: Manner, dice: random.Random) -> Talk:
    arrives = dice.uniform(0, manner.arrive_within_s)
    first, later = ([s for s in pack.shapes if s.later is wanted] or pack.shapes for wanted in (False, True))
    says = [
        Said(dice.choice(later if number else first), dice.uniform(*manner.think_s))
        for number in range(manner.turns)
    ]
    return Talk(arrives, tuple(says))


def burst(pack: Pack, people: int, within_s: float, seed: int) -> list[Talk]:
    """So many people, each of whom ends a question within the same `within_s`, and says no more."""
    dice = random.Random(seed)
    longest = max(shape.speech_s for shape in pack.shapes)
    said = [dice.choice(pack.shapes) for _ in range(people)]
    return [Talk(longest - shape.speech_s + dice.uniform(0, within_s), (Said(shape, 0.0),)) for shape in said]


class _Person:
    """One talk under way."""

    def __init__(
        self,
        box: Box,
        pack: Pack,
        name: str,
        talk: Talk,
        server: Server | None,
        met: Met,
        occupancy: Occupancy,
    ) -> None:
        self._box, self._pack, self._name, self._occupancy = box, pack, name, occupancy
        self._rules = None if server is None else Rules(silence_ms=server.silence_ms)
        self._reply_s = 0.0 if server is None else server.reply_s
        self._met = met
        self._history: list[int] = list(range(pack.shared))
        self._generations = count()
        self._left = list(talk.says)
        self._job: _Job | None = None

    def begin(self) -> None:
        self._box.talks_begin(1)
        self._speak()

    def _speak(self) -> None:
        if not self._left:
            self._box.talks_begin(-1)
            return
        said, clock = self._left.pop(0), self._box.clock
        if self._rules is None:
            plan, speech_s = ((0.0, Then.ANSWER),), 0.0
        else:
            plan, speech_s = steps(said.shape, self._rules), said.shape.speech_s
        heard = Heard(clock.now + speech_s, said.shape.question)
        self._met.turns.append(heard)
        question = _keys(said.shape, said.shape.asked, "asked")
        answer = _keys(said.shape, said.shape.tokens, "says")
        for at, then in plan:
            share = min(1.0, max(0.0, speech_s + at) / speech_s) if speech_s else 1.0
            asked = self._asked(said.shape, question, answer, share)
            clock.after(
                max(0.0, speech_s + at), lambda then=then, asked=asked: self._follow(then, said, asked, heard)
            )

    def _asked(self, shape: Shape, question: list[int], answer: list[int], share: float) -> Asked:
        new = said_so_far(shape, question, share)
        keys = self._history + new
        if len(keys) + shape.tokens >= self._pack.max_positions:
            # As prompts are cut: the oldest turns go.
            keys = list(range(self._pack.shared)) + new
        return Asked(shape, keys, answer, share)

    def _follow(self, then: Then, said: Said, asked: Asked, heard: Heard) -> None:
        """What the server does with what it hears, which is what is `asked` by now."""
        job = self._job if self._job is not None and not self._job.answers else None
        if then is Then.DROP:
            if job is not None:
                self._drop()
            return
        if then is Then.MAY_BEGIN and not self._occupancy.idle(self._box.clock.now, self._name):
            return
        if job is None:
            self._drop()
            self._job = job = self._submit(said, asked, heard)
        if then is Then.ANSWER:
            job.answers = True
            self._box.clock.after(self._reply_s, job.let_out)

    def _submit(self, said: Said, asked: Asked, heard: Heard) -> "_Job":
        turn = TurnId(self._name, str(len(self._left)), next(self._generations))
        job = _Job(self._box, turn, heard, self._occupancy, lambda: self._heard_out(said, asked))
        self._occupancy.enter(turn)
        heard.stages = self._box.submit(turn, asked, job.hear)
        return job

    def _drop(self) -> None:
        if self._job is not None:
            self._job.drop()
            self._job = None

    def _heard_out(self, said: Said, asked: Asked) -> None:
        self._job = None
        self._history = asked.keys + asked.says
        at_s, now = self._left[0].at_s if self._left else None, self._box.clock.now
        self._box.clock.after(said.think_s if at_s is None else max(0.0, at_s - now), self._speak)


class _Job:
    """The work on one question, whose sound waits until it is let out."""

    def __init__(
        self, box: Box, turn: TurnId, heard: Heard, occupancy: Occupancy, over: Callable[[], None]
    ) -> None:
        self.turn = turn
        self.answers = False
        """The question is over: it is no work in advance any more."""
        self._box, self._heard, self._occupancy, self._over = box, heard, occupancy, over
        self._listener = Listener()
        self._dropped = False
        self._held: list[m.StageEvent] | None = []

    def hear(self, event: m.StageEvent) -> None:
        """The pipeline made something."""
        if isinstance(event, m.AudioDone):
            self._occupancy.done(self.turn)
        self._take(event)

    def _take(self, event: m.StageEvent) -> None:
        if self._held is not None:
            self._held.append(event)
        elif isinstance(event, m.AudioChunk) and len(event.samples):
            self._play(len(event.samples) / event.sample_rate)
        elif isinstance(event, m.AudioDone):
            self._end()

    def drop(self) -> None:
        """It was not the whole question: nothing of it counts."""
        self._dropped = True
        self._heard.first_audio_s = None
        self._box.cancel(self.turn)
        self._occupancy.leave(self.turn, self._box.clock.now)

    def let_out(self) -> None:
        """What there is, and all that comes."""
        if self._dropped:
            return
        held, self._held = self._held or [], None
        for event in held:
            self._take(event)

    def _play(self, seconds: float) -> None:
        now, heard = self._box.clock.now, self._heard
        if heard.first_audio_s is None:
            heard.first_audio_s = now - heard.at
        self._listener.hear(seconds, now)

    def _end(self) -> None:
        now = self._box.clock.now
        ends = max(now, self._listener.dry_at())
        self._box.clock.after(ends - now, self._heard_out)

    def _heard_out(self) -> None:
        if not self._dropped:
            self._heard.gaps = len(self._listener.underruns)
            self._heard.ended = self._box.clock.now
            self._over()


_fresh = count(1)


def _keys(shape: Shape, number: int, what: str) -> list[int]:
    """Of `number` positions; of a question that has no name, keys that nobody else has."""
    name = shape.question or f"#{next(_fresh)}"
    first = int.from_bytes(blake2b(f"{what} {name}".encode(), digest_size=6).digest(), "big") << 16
    return list(range(first, first + number))


def said_so_far(shape: Shape, question: list[int], share: float) -> list[int]:
    """The positions of a prompt that ends in the middle of a question; its words are evenly spoken."""
    words = round(share * shape.heard)
    if words >= shape.heard:
        return question
    begins = max(0, len(question) - shape.heard - AFTER_WORDS)
    rest = len(question) - begins - shape.heard
    return question[: begins + words] + _keys(shape, rest, f"asked {words} words of")


def follow(box: Box, pack: Pack, crowd: Sequence[Talk], server: Server | None, most_s: float = 600.0) -> Met:
    """Let everybody say what they have to say, until all is answered or `most_s` have passed. Without a
    `server` each question is given whole, at once."""
    met, occupancy = Met(len(crowd)), Occupancy()
    for number, talk in enumerate(crowd):
        person = _Person(box, pack, str(number), talk, server, met, occupancy)
        box.clock.after(talk.arrives_s, person.begin)
    box.clock.run(box.clock.now + most_s)
    return met


def most(met: Sequence[Met], p95_s: float) -> int:
    """The largest crowd that holds, with all smaller ones; 0 if none does."""
    found = 0
    for one in sorted(met, key=lambda one: one.people):
        if not one.holds(p95_s):
            break
        found = one.people
    return found
