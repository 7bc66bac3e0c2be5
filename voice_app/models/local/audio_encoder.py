"""Audio encoder: speech → its words, embedded as the thinker embeds text.

The pack is a cascade: what stands for the user's speech in the prompt are the rows of the thinker's own
embedding table for the transcript's tokens, so the edge keeps its contract and the transcript is known.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from voice_app.errors import VoiceAppError
from voice_app.messages import EdgePayload, Embeddings, MelFrames, StageEvent, Transcript
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
    """The `OnePassRunner` of the stage."""

    def __init__(self, recogniser: Recogniser, vocabulary: Vocabulary) -> None:
        self._recogniser = recogniser
        self._vocabulary = vocabulary
        self._known: OrderedDict[str, str] = OrderedDict()

    def warm_up(self) -> None:
        noise = np.random.default_rng(0).normal(0, 0.01, 2 * SAMPLE_RATE).astype(np.float32)
        self._recogniser.hear(noise)

    def run(
        self, batch: Sequence[StageInput]
    ) -> Sequence[Sequence[EdgePayload | StageEvent] | VoiceAppError]:
        return [self._one(item) for item in batch]

    def _one(self, item: StageInput) -> list[EdgePayload | StageEvent]:
        assert isinstance(item.payload, MelFrames)
        key = item.payload.media.key
        text = self._known.get(key)
        if text is None:
            text = transcribe(self._recogniser, item.payload.frames)
        self._known[key] = text
        self._known.move_to_end(key)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        ids = self._vocabulary.encode(text)
        rows = self._vocabulary.embed(ids)
        return [Embeddings(item.payload.media, rows, ids=tuple(ids), text=text), Transcript(text)]


def transcribe(recogniser: Recogniser, samples: np.ndarray) -> str:
    """The words in [n] float32 at 16 kHz, any length; "" where there are none."""
    texts = (believed(recogniser.hear(part)) for part in parts(samples, recogniser.max_seconds))
    return " ".join(text for text in texts if text)


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
