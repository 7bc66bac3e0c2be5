"""People in simulated time: they ask, listen to the whole answer, think, and ask again."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from load.listener import Listener
from load.simulation.box import Box
from load.simulation.runners import Asked
from load.simulation.shapes import Pack
from voice_app import messages as m
from voice_app.bench.report import percentile
from voice_app.messages import TurnId

PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Manner:
    """How people talk. `heard_after_s`: the work on a turn begins so long after the end of the speech, and
    nothing is heard before `silence_s`: a server's speculative turns. `speaks`: the question takes as long as
    it is; else it is sent whole, at once. `think_s`: from, to."""

    turns: int = 4
    heard_after_s: float = 0.0
    silence_s: float = 0.0
    speaks: bool = False
    think_s: tuple[float, float] = (0.3, 1.2)
    arrive_within_s: float = 2.0


@dataclass(slots=True)
class Heard:
    """One turn. Seconds; `first_audio_s` since the end of the speech; `at`: when that was. None: never."""

    at: float
    first_audio_s: float | None = None
    gaps: int = 0


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


class Person:
    """One talk. `done`: all its turns are over."""

    def __init__(
        self, box: Box, pack: Pack, name: str, manner: Manner, dice: random.Random, met: Met
    ) -> None:
        self.done = False
        self._box, self._pack, self._name, self._manner = box, pack, name, manner
        self._dice, self._met = dice, met
        self._history: list[int] = list(range(pack.shared))
        self._number = 0

    def arrive(self, seconds: float) -> None:
        """Begin the talk in so many seconds."""
        self._box.clock.after(seconds, self._speak)

    def _speak(self) -> None:
        shape = self._dice.choice(self._pack.shapes)
        asked = Asked(shape, self._history + self._fresh(shape.asked))
        if len(asked.keys) + shape.tokens >= self._pack.max_positions:
            # As prompts are cut: the oldest turns go.
            asked = Asked(shape, list(range(self._pack.shared)) + self._fresh(shape.asked))
        self._box.clock.after(shape.speech_s if self._manner.speaks else 0.0, lambda: self._ended(asked))

    def _fresh(self, count: int) -> list[int]:
        """Keys that nobody else has."""
        return [-self._dice.getrandbits(60) for _ in range(count)]

    def _ended(self, asked: Asked) -> None:
        heard = Heard(self._box.clock.now)
        self._met.turns.append(heard)
        self._box.clock.after(self._manner.heard_after_s, lambda: self._ask(asked, heard))

    def _ask(self, asked: Asked, heard: Heard) -> None:
        clock, listener = self._box.clock, Listener()
        not_before = heard.at + self._manner.silence_s
        waiting: list[float] = []

        def hear(event: m.StageEvent) -> None:
            if isinstance(event, m.AudioChunk) and len(event.samples):
                waiting.append(len(event.samples) / event.sample_rate)
                clock.after(max(0.0, not_before - clock.now), play)
            elif isinstance(event, m.AudioDone):
                clock.after(max(0.0, not_before - clock.now), over)

        def play() -> None:
            if heard.first_audio_s is None:
                heard.first_audio_s = clock.now - heard.at
            listener.hear(waiting.pop(0), clock.now)

        def over() -> None:
            heard.gaps = len(listener.underruns)
            # The stub thinker's tokens are numbered.
            self._history = asked.keys + list(range(asked.shape.tokens))
            clock.after(max(0.0, listener.dry_at() - clock.now), self._think)

        self._number += 1
        self._box.submit(TurnId(self._name, str(self._number)), asked, hear)

    def _think(self) -> None:
        if self._number == self._manner.turns:
            self.done = True
            return
        self._box.clock.after(self._dice.uniform(*self._manner.think_s), self._speak)


def crowd(box: Box, pack: Pack, people: int, manner: Manner, seed: int = 0, most_s: float = 600.0) -> Met:
    """`people` talks at once, until all are over or `most_s` have passed."""
    met = Met(people)
    persons = [
        Person(box, pack, f"{seed}-{number}", manner, random.Random(1000 * seed + number), met)
        for number in range(people)
    ]
    dice = random.Random(seed)
    for person in persons:
        person.arrive(dice.uniform(0, manner.arrive_within_s))
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
