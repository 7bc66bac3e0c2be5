"""Audio encoder: speech → its words, embedded as the thinker embeds text.

The pack is a cascade: what stands for the user's speech in the prompt are the rows of the thinker's own
embedding table for the transcript's tokens, so the edge keeps its contract and the transcript is known.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from voice_app.errors import VoiceAppError
from voice_app.messages import EdgePayload, Embeddings, Media, MelFrames, StageEvent, Transcript
from voice_app.models.local.prompt import UNCLEAR
from voice_app.models.local.recent import Recent
from voice_app.models.local.recogniser import SAMPLE_RATE, Heard, Recogniser
from voice_app.schedulers.base import StageInput

_KEPT = 256
"""Transcripts kept by media key: earlier audio of a talk, and speculative turns, are heard once."""

_LONG_WINDOWS = 2
"""Of the long recordings in one call: minutes of speech are heard while other talks go on. Two at once cost
Whisper two thirds of one by one."""

_WORST = -1.0
"""Mean log-probability below which words are made up rather than heard."""

_SURE = -0.4
"""Mean log-probability from which words are told as sure: most of what is cut off in the middle of a word is
below it, of 47 whole questions one in eight."""

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
class _Words:
    """Of one recording. `text` may be `UNCLEAR`."""

    text: str
    sure: bool


class AudioEncoder:
    """The `OnePassRunner` of the stage. For each input it gives the embedded words, then the transcript.
    Recordings of several windows are heard over several calls."""

    def __init__(self, recogniser: Recogniser, vocabulary: Vocabulary) -> None:
        self._recogniser = recogniser
        self._vocabulary = vocabulary
        self._known: Recent[_Words] = Recent(_KEPT)
        self._begun: Recent[list[Heard]] = Recent(_KEPT)

    def warm_up(self) -> None:
        noise = np.random.default_rng(0).normal(0, 0.01, 2 * SAMPLE_RATE).astype(np.float32)
        for batch in (1, 2):
            self._recogniser.hear_all([noise] * batch)

    def run(
        self, batch: Sequence[StageInput]
    ) -> Sequence[Sequence[EdgePayload | StageEvent] | VoiceAppError | None]:
        inputs = [item.payload for item in batch if isinstance(item.payload, MelFrames)]
        words = {mel.media.key: self._known.get(mel.media.key) for mel in inputs}
        new = {mel.media.key: mel.frames for mel in inputs if words[mel.media.key] is None}
        words |= self._heard(new)
        return [self._result(mel.media, words[mel.media.key]) for mel in inputs]

    def _heard(self, speech: dict[str, np.ndarray]) -> dict[str, "_Words | None"]:
        """The words of each recording; None where windows are left for a later call."""
        left = {key: self._left(key, samples) for key, samples in speech.items()}
        chosen, room = {}, _LONG_WINDOWS
        for key, windows in left.items():
            chosen[key] = windows if len(windows) == 1 else windows[:room]
            if len(windows) > 1:
                room -= len(chosen[key])
        heard = iter(self._recogniser.hear_all([window for some in chosen.values() for window in some]))
        words: dict[str, _Words | None] = {}
        for key, some in chosen.items():
            begun = [*(self._begun.get(key) or []), *(next(heard) for _ in some)]
            self._begun.put(key, begun)
            words[key] = _words(begun, speech[key]) if len(some) == len(left[key]) else None
        return words

    def _left(self, key: str, samples: np.ndarray) -> list[np.ndarray]:
        """The windows that no call has heard yet."""
        return parts(samples, self._recogniser.max_seconds)[len(self._begun.get(key) or []) :]

    def _result(self, media: Media, words: "_Words | None") -> list[EdgePayload | StageEvent] | None:
        if words is None:
            return None
        self._known.put(media.key, words)
        ids = self._vocabulary.encode(words.text)
        said = Transcript("" if words.text == UNCLEAR else words.text, words.sure)
        return [Embeddings(media, self._vocabulary.embed(ids), ids=tuple(ids), text=words.text), said]


def transcribe(recogniser: Recogniser, samples: np.ndarray) -> str:
    """The words in [n] float32 at 16 kHz, any length; "" where there are none."""
    return joined(map(believed, recogniser.hear_all(parts(samples, recogniser.max_seconds))))


def _words(windows: Sequence[Heard], speech: np.ndarray) -> _Words:
    """Of a recording's windows; `speech`: [n] float32 at 16 kHz, nothing but speech and margins."""
    text = joined(map(believed, windows))
    meant = len(speech) >= _MEANT_SECONDS * SAMPLE_RATE
    return _Words(text or (UNCLEAR if meant else ""), all(heard.score >= _SURE for heard in windows))


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
