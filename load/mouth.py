"""What one caller sends: an endless microphone of 20 ms packets, with speech in it. Pure: a generator of
steps, which decides by what the ear has heard so far and by dice.
"""

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

import numpy as np

from load.ear import Ear
from load.recordings import Recording, Subject
from load.scenario import Person
from voice_app.bench import callers
from voice_app.bench.callers import PACKET_S, RATE, packets

NOISE = 0.001
"""Standard deviation of the microphone's own noise: 60 dB below full scale, some 40 below speech. It makes
every saying of a recording another sound, so that nothing is answered from what was recognised before."""
HESITATION = (0.2, 0.4)
"""Its length, by the silence that ends a turn. The recording adds the gap that is there already, and the
faint ends of its words."""
MID_WORD = (0.3, 0.7)
"""Where in a recording a caller is gone."""


@dataclass(frozen=True, slots=True)
class Packet:
    """20 ms of the microphone: the event as it is sent."""

    message: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A camera frame: the event as it is sent, beside the sound."""

    message: str


class Leave(Enum):
    """The end of a connection."""

    GOODBYE = "goodbye"
    HANG_UP = "hang up"
    """Without a farewell; the talk is over."""
    LOSE = "lose"
    """Without a farewell; the talk goes on over another connection."""


Step = Packet | Picture | Leave


@dataclass(frozen=True, slots=True)
class Script:
    """What a caller has to say and to show. `pictures`: events; `silence_ms`: what ends a turn."""

    person: Person
    subjects: Sequence[Subject]
    pictures: Sequence[str] = ()
    silence_ms: int = 500


class Mouth:
    """One talk of one caller. `clock` is asked after each packet, and tells the ear's time."""

    def __init__(self, script: Script, ear: Ear, dice: random.Random, clock: Callable[[], float]) -> None:
        self._script = script
        self._person = script.person
        self._ear = ear
        self._dice = dice
        self._clock = clock
        self._noise = np.random.default_rng(dice.getrandbits(64))
        self._shown = 0

    def talk(self) -> Iterator[Step]:
        """From hello to goodbye. After `Leave.LOSE` it goes on as soon as it is asked again."""
        person, left = self._person, self._person.turns
        yield from self._quiet(self._dice.uniform(*person.pause_s))
        for recording in self._recordings():
            if self._chance(person.hangs_up):
                yield from self._hang_up_in(recording)
                return
            yield from self._say(recording)
            yield from self._listen()
            left -= 1
            if not left:
                yield Leave.GOODBYE
                return

    # -------------------------------------------------------------------------------------------- parts

    def _recordings(self) -> Iterator[Recording]:
        while True:
            yield from self._dice.choice(self._script.subjects)

    def _say(self, recording: Recording) -> Iterator[Step]:
        samples = recording.samples
        pieces = [samples]
        if self._chance(self._person.hesitates):
            seconds = self._dice.uniform(*HESITATION) * self._script.silence_ms / 1000
            cut = recording.pause_at
            pieces = [samples[:cut], callers.silence(seconds), samples[cut:]]
        self._ear.begin(recording.name, self._clock())
        yield from self._with_pictures(self._spoken(pieces))
        self._ear.end(self._clock())

    def _hang_up_in(self, recording: Recording) -> Iterator[Step]:
        gone = int(self._dice.uniform(*MID_WORD) * len(recording.samples))
        self._ear.begin(recording.name, self._clock())
        yield from self._spoken([recording.samples[:gone]])
        yield Leave.HANG_UP

    def _listen(self) -> Iterator[Step]:
        person = self._person
        if self._chance(person.interrupts):
            after = self._dice.uniform(*person.interrupts_after_s)
            if (yield from self._until_heard_for(after)):
                return  # and go on with the next question, over the answer
        elif self._chance(person.loses_connection):
            after = self._dice.uniform(*person.interrupts_after_s)
            if (yield from self._until_heard_for(after)):
                yield Leave.LOSE
        while not self._ear.heard_out(self._clock()):
            yield self._hum()
        yield from self._quiet(self._dice.uniform(*person.pause_s) + self._dice.uniform(*person.quiet_s))

    def _until_heard_for(self, seconds: float) -> Generator[Step, None, bool]:
        """Whether the answer was still being spoken after `seconds` of it; False if it was over before."""
        while not self._ear.heard_out(self._clock()):
            if self._ear.playing_s(self._clock()) >= seconds:
                return True
            yield self._hum()
        return False

    def _with_pictures(self, spoken: Iterator[Step]) -> Iterator[Step]:
        pictures = self._script.pictures
        every = max(1, round(1 / (self._person.pictures_per_s * PACKET_S)))
        for number, step in enumerate(spoken):
            if pictures and number % every == 0:
                yield Picture(pictures[self._shown % len(pictures)])
                self._shown += 1
            yield step

    def _spoken(self, pieces: Sequence[np.ndarray]) -> Iterator[Step]:
        sound = np.concatenate(pieces)
        sound = sound + self._noise.normal(0, NOISE, len(sound)).astype(np.float32)
        for message in packets(sound):
            yield Packet(message)

    def _quiet(self, seconds: float) -> Iterator[Step]:
        for _ in range(round(seconds / PACKET_S)):
            yield self._hum()

    def _hum(self) -> Packet:
        return self._dice.choice(_hums())

    def _chance(self, share: float) -> bool:
        return self._dice.random() < share


@cache
def _hums() -> list[Packet]:
    """A microphone in a quiet room: the same second for all callers, in any order."""
    noise = np.random.default_rng(0).normal(0, NOISE, RATE).astype(np.float32)
    return [Packet(message) for message in packets(noise)]
