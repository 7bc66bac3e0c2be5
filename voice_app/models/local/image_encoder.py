"""Image encoder: a camera frame → what it shows and the text in it, embedded as the thinker embeds text.

Like the audio encoder, it embeds words: `camera_text` of the label and of the text that was read.
"""

from collections.abc import Callable, Sequence

import numpy as np

from voice_app.errors import VoiceAppError
from voice_app.messages import EdgePayload, Embeddings, ImagePatches, StageEvent
from voice_app.models.local.audio_encoder import Vocabulary
from voice_app.models.local.efficientnet import SIDE
from voice_app.models.local.prompt import camera_text
from voice_app.models.local.recent import Recent
from voice_app.schedulers.base import StageInput

_KEPT = 256
"""Texts kept by media key: a frame stays in the talk's prompt, and is looked at once."""

Look = Callable[[np.ndarray], str]
"""[rows, columns, 3] float32 RGB in [0, 1] → words, or ""."""


class ImageEncoder:
    """The `OnePassRunner` of the stage. `name` labels a picture, `read` gives the text in it."""

    def __init__(self, name: Look, read: Look, vocabulary: Vocabulary) -> None:
        self._name = name
        self._read = read
        self._vocabulary = vocabulary
        self._known: Recent[str] = Recent(_KEPT)

    def warm_up(self) -> None:
        blank = np.zeros((SIDE, SIDE, 3), np.float32)
        self._name(blank)
        self._read(blank)

    def run(
        self, batch: Sequence[StageInput]
    ) -> Sequence[Sequence[EdgePayload | StageEvent] | VoiceAppError]:
        return [self._one(item) for item in batch]

    def _one(self, item: StageInput) -> list[EdgePayload | StageEvent]:
        assert isinstance(item.payload, ImagePatches)
        key = item.payload.media.key
        text = self._known.get(key)
        if text is None:
            text = camera_text(self._name(item.payload.patches), self._read(item.payload.patches))
        self._known.put(key, text)
        ids = self._vocabulary.encode(text)
        return [Embeddings(item.payload.media, self._vocabulary.embed(ids), ids=tuple(ids), text=text)]
