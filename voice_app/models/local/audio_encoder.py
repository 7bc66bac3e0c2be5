"""Audio encoder: speech → its words, embedded as the thinker embeds text.

The pack is a cascade: what stands for the user's speech in the prompt are the rows of the thinker's own
embedding table for the transcript's tokens, so the edge keeps its contract and the transcript is known.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from voice_app.errors import VoiceAppError
from voice_app.messages import EdgePayload, Embeddings, Media, MelFrames, StageEvent, Transcript
from voice_app.models.local.recent import Recent
from voice_app.models.local.recogniser import SAMPLE_RATE, Heard, Recogniser
from voice_app.schedulers.base import StageInput

_KEPT = 256
"""Transcripts kept by media key: earlier audio of a talk, and speculative turns, are heard once."""

_WORST = -1.0
"""Mean log-probability below which words are made up rather than heard."""


class Vocabulary(Protocol):
    """The thinker's text side, as encoders need it."""

    def encode(self, text: str) -> list[int]:
        """Token ids of `text` alone."""
        ...

    def embed(self, ids: Sequence[int]) -> np.ndarray:
        """[n, width]: the embedding table's rows."""
        ...


class AudioEncoder:
    """The `OnePassRunner` of the stage. For each input it gives the embedded words, then the transcript."""

    def __init__(self, recogniser: Recogniser, vocabulary: Vocabulary) -> None:
        self._recogniser = recogniser
        self._vocabulary = vocabulary
        self._known: Recent[str] = Recent(_KEPT)

    def warm_up(self) -> None:
        noise = np.random.default_rng(0).normal(0, 0.01, 2 * SAMPLE_RATE).astype(np.float32)
        for batch in (1, 2):
            self._recogniser.hear_all([noise] * batch)

    def run(
        self, batch: Sequence[StageInput]
    ) -> Sequence[Sequence[EdgePayload | StageEvent] | VoiceAppError]:
        inputs = [item.payload for item in batch if isinstance(item.payload, MelFrames)]
        texts = {mel.media.key: self._known.get(mel.media.key) for mel in inputs}
        new = {mel.media.key: mel.frames for mel in inputs if texts[mel.media.key] is None}
        for key, text in zip(new, transcribe_all(self._recogniser, list(new.values())), strict=True):
            texts[key] = text
            self._known.put(key, text)
        return [self._embedded(mel.media, texts[mel.media.key] or "") for mel in inputs]

    def _embedded(self, media: Media, text: str) -> list[EdgePayload | StageEvent]:
        ids = self._vocabulary.encode(text)
        return [Embeddings(media, self._vocabulary.embed(ids), ids=tuple(ids), text=text), Transcript(text)]


def transcribe(recogniser: Recogniser, samples: np.ndarray) -> str:
    """The words in [n] float32 at 16 kHz, any length; "" where there are none."""
    return transcribe_all(recogniser, [samples])[0]


def transcribe_all(recogniser: Recogniser, speech: Sequence[np.ndarray]) -> list[str]:
    """`transcribe` for each of several recordings."""
    cut = [parts(samples, recogniser.max_seconds) for samples in speech]
    heard = iter(recogniser.hear_all([part for some in cut for part in some]))
    texts = [[believed(next(heard)) for _ in some] for some in cut]
    return [" ".join(filter(None, some)) for some in texts]


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
