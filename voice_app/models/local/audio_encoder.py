"""Audio encoder: speech → its words, embedded as the thinker embeds text.

The pack is a cascade: what stands for the user's speech in the prompt are the rows of the thinker's own
embedding table for the transcript's tokens, so the edge keeps its contract and the transcript is known.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from voice_app.errors import VoiceAppError
from voice_app.messages import EdgePayload, Embeddings, Media, MelFrames, StageEvent, Transcript
from voice_app.models.local.prompt import UNCLEAR
from voice_app.models.local.recent import Recent
from voice_app.models.local.recogniser import SAMPLE_RATE, Heard, Hearing, Recogniser
from voice_app.schedulers.base import StageInput

_KEPT = 256
"""Transcripts kept by media key: earlier audio of a talk, and speculative turns, are heard once."""

_WORST = -1.0
"""Mean log-probability below which words are made up rather than heard."""

_LEFT_SAMPLES = 1 << 21
"""Of recordings that were begun and left: two minutes."""

_OLDEST_EVERY = 4
"""So that a long recording is heard to its end however many others come."""

_ALIKE = 0.998
"""Square of the correlation above which two sounds are one, at two levels."""

_MEANT_SECONDS = 1.2
"""Whoever spoke so long meant to say something, even if no word is believed; half a second of it is the
detector's margin. What is shorter is a cough or a hum."""


class Vocabulary(Protocol):
    """The thinker's text side, as encoders need it."""

    def encode(self, text: str) -> list[int]:
        """Token ids of `text` alone."""
        ...

    def embed(self, ids: Sequence[int]) -> np.ndarray:
        """[n, width]: the embedding table's rows."""
        ...


@dataclass(frozen=True, slots=True)
class _Beginning:
    """Of a recording: its first second, and the recogniser's tokens for its first window."""

    sound: np.ndarray
    ids: tuple[int, ...]


@dataclass(slots=True)
class _UnderWay:
    """A recording that is being heard, a window after the other. `number`: of those that were begun."""

    number: int
    session: str
    windows: list[np.ndarray]
    draft: tuple[int, ...] = ()
    """What the first of them may begin with."""
    heard: list[Heard] = field(default_factory=list)
    hearing: Hearing | None = None

    @property
    def done(self) -> bool:
        return len(self.heard) == len(self.windows)

    def step(self, recogniser: Recogniser) -> None:
        """The next step of its next window, which is begun anew if a step fails."""
        draft = () if self.heard else self.draft
        hearing = self.hearing or recogniser.hearing(self.windows[len(self.heard)], draft)
        self.hearing = None
        try:
            next(hearing)
        except StopIteration as over:
            self.heard.append(over.value)
        else:
            self.hearing = hearing


class AudioEncoder:
    """The `OnePassRunner` of the stage. For each input it gives the embedded words, then the transcript.

    A call makes one step of one recording: what is cancelled ends before its next, and each is told as soon
    as it is known. The first come is heard first; a recording of several windows lets those go first of which
    fewer were heard, in three calls of four."""

    def __init__(self, recogniser: Recogniser, vocabulary: Vocabulary) -> None:
        self._recogniser = recogniser
        self._vocabulary = vocabulary
        self._known: Recent[str] = Recent(_KEPT)
        self._under_way: dict[str, _UnderWay] = {}
        """Of the last call's batch."""
        self._left: Recent[_UnderWay] = Recent(_LEFT_SAMPLES, lambda one: sum(map(len, one.windows)))
        """Begun, and not in the last batch: most were cancelled, some wait behind a whole batch."""
        self._latest: Recent[_Beginning] = Recent(_KEPT)
        """Of each session."""
        self._numbers = itertools.count()
        self._calls = 0

    def warm_up(self) -> None:
        noise = np.random.default_rng(0).normal(0, 0.01, 2 * SAMPLE_RATE).astype(np.float32)
        self._recogniser.hear(noise)

    def run(
        self, batch: Sequence[StageInput]
    ) -> Sequence[Sequence[EdgePayload | StageEvent] | VoiceAppError | None]:
        inputs = [item.payload for item in batch if isinstance(item.payload, MelFrames)]
        new = {
            mel.media.key: (mel.frames, item.turn.session)
            for item in batch
            if isinstance(mel := item.payload, MelFrames) and self._known.get(mel.media.key) is None
        }
        for key in self._under_way.keys() - new.keys():
            self._left.put(key, self._under_way.pop(key))
        for key, (samples, session) in new.items():
            if key not in self._under_way:
                self._under_way[key] = self._left.get(key) or self._begin(samples, session)
                self._left.drop(key)
        if new:
            self._step()
        return [self._result(mel.media) for mel in inputs]

    def _begin(self, samples: np.ndarray, session: str) -> _UnderWay:
        # A copy: the samples are the sender's, and may be written over once the turn is cancelled.
        windows = parts(samples.copy(), self._recogniser.max_seconds)
        return _UnderWay(next(self._numbers), session, windows, self._draft(session, windows))

    def _draft(self, session: str, windows: list[np.ndarray]) -> tuple[int, ...]:
        """What the session's last recording held, if this one begins with its sound."""
        before = self._latest.get(session)
        return before.ids if before and windows and _alike(before.sound, windows[0]) else ()

    def _step(self) -> None:
        """One step; what is known then is kept as that."""
        if left := [recording for recording in self._under_way.values() if not recording.done]:
            self._calls += 1
            fewest = self._calls % _OLDEST_EVERY > 0
            min(left, key=lambda one: (len(one.heard) if fewest else 0, one.number)).step(self._recogniser)
        for key, recording in list(self._under_way.items()):
            if recording.done:
                del self._under_way[key]
                self._known.put(key, _words(recording))
                if recording.heard:
                    sound, ids = recording.windows[0][:SAMPLE_RATE].copy(), recording.heard[0].ids
                    self._latest.put(recording.session, _Beginning(sound, ids))

    def _result(self, media: Media) -> list[EdgePayload | StageEvent] | None:
        text = self._known.get(media.key)
        if text is None:
            return None
        ids = self._vocabulary.encode(text)
        said = Transcript("" if text == UNCLEAR else text)
        return [Embeddings(media, self._vocabulary.embed(ids), ids=tuple(ids), text=text), said]


def transcribe(recogniser: Recogniser, samples: np.ndarray) -> str:
    """The words in [n] float32 at 16 kHz, any length; "" where there are none."""
    return joined(believed(recogniser.hear(part)) for part in parts(samples, recogniser.max_seconds))


def _words(recording: _UnderWay) -> str:
    """Of what was heard of it, which is nothing but speech and margins."""
    meant = sum(map(len, recording.windows)) >= _MEANT_SECONDS * SAMPLE_RATE
    return joined(map(believed, recording.heard)) or (UNCLEAR if meant else "")


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two sounds begin as one, but for their level."""
    count = min(len(one), len(other))
    one, other = one[:count], other[:count]
    return count > 0 and float(one @ other) ** 2 > _ALIKE * float(one @ one) * float(other @ other)


def joined(texts: Iterable[str]) -> str:
    """The words of a recording's windows as one text."""
    return " ".join(filter(None, texts))


def believed(heard: Heard) -> str:
    """The text, unless the recogniser's own signals say that it is made up."""
    if heard.score < _WORST or not any(character.isalnum() for character in heard.text):
        return ""
    return heard.text


def parts(samples: np.ndarray, max_seconds: float) -> list[np.ndarray]:
    """`samples` cut into stretches of at most `max_seconds`, each cut at the quietest tenth of a second of
    the stretch's second half."""
    most, step = int(max_seconds * SAMPLE_RATE), SAMPLE_RATE // 10
    cut: list[np.ndarray] = []
    while len(samples) > most:
        power = np.square(samples[most // 2 : most]).reshape(-1, step).mean(axis=1)
        end = most // 2 + int(power.argmin()) * step + step // 2
        cut.append(samples[:end])
        samples = samples[end:]
    return [*cut, samples] if len(samples) else cut
