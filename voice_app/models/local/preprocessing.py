"""Preprocessing: a request → the prompt's spans, the speech to hear, the pictures to look at.

`MelFrames.frames` of this pack is sound as its recognisers take it: [n] float32 at 16 kHz, level, with only
the speech in it (n = 0: nobody spoke). `ImagePatches.patches` is the whole picture: [rows, columns, 3]
float32 RGB in [0, 1], its longer side at most `pictures.MAX_SIDE`.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from msgspec import structs

from voice_app import audio
from voice_app.errors import InputError, VoiceAppError
from voice_app.messages import (
    AudioPart,
    EdgePayload,
    ImagePart,
    ImagePatches,
    Media,
    MelFrames,
    Message,
    PromptIds,
    PromptParams,
    StageEvent,
    TurnRequest,
)
from voice_app.models.local import pictures
from voice_app.models.local.listening import Listening
from voice_app.models.local.prompt import (
    ChatFrame,
    in_parts,
    in_words,
    open_results,
    orders_asked,
    turn_of,
)
from voice_app.models.local.recent import Recent
from voice_app.models.local.recogniser import SAMPLE_RATE
from voice_app.schedulers.base import StageInput

_KEPT_BYTES = 48 << 20
"""Prepared media kept by key: what a talk shows again turn by turn, and what work that began early on had
prepared. A picture is 11 MB at most; ten minutes of speech, the longest turn, are 38 MB."""
_VERSION = b"2"
"""Part of every media key: raise it when the same content would be encoded otherwise."""


class Preprocessing:
    """The `OnePassRunner` of the first stage.

    `recogniser` names what will hear: it is part of the audio's keys."""

    def __init__(self, frame: ChatFrame, listening: Listening, recogniser: str) -> None:
        self._frame = frame
        self._listening = listening
        self._recogniser = recogniser.encode()
        self._prepared: Recent[EdgePayload] = Recent(_KEPT_BYTES, _size)

    def warm_up(self) -> None:
        self._listening.warm_up()

    def run(
        self, batch: Sequence[StageInput]
    ) -> Sequence[Sequence[EdgePayload | StageEvent] | VoiceAppError]:
        return [self._one(item) for item in batch]

    def _one(self, item: StageInput) -> Sequence[EdgePayload | StageEvent] | VoiceAppError:
        assert isinstance(item.payload, TurnRequest)
        try:
            return self._prepare(item.payload)
        except VoiceAppError as error:
            return error

    def _prepare(self, request: TurnRequest) -> list[EdgePayload | StageEvent]:
        """The media first, so that the encoders can start; each content once. Then the prompt, in parts: the
        thinker computes what stands before new speech while that is recognised."""
        if not request.messages or request.messages[-1].role != "user":
            raise InputError("messages: the last one must be the user's", param="messages")
        media: dict[str, EdgePayload] = {}

        def place(part: AudioPart | ImagePart) -> Media:
            key = self._key(part)
            payload = media.get(key.key) or self._prepared.get(key.key) or self._encoded(part, key)
            media[key.key] = payload
            self._prepared.put(key.key, payload)
            return key

        talk = orders_asked(request.messages)
        turns = [turn_of(_pictures_first(message), place) for message in in_words(talk)]
        params = structs.replace(PromptParams.of(request), results=open_results(request.messages))
        spans = self._frame.spans(turns)
        *begins, last = in_parts(spans)
        prompt = [*(PromptIds(part, params, more=True) for part in begins), PromptIds(last, params)]
        wanted = {span.media.key for span in spans if span.media}
        return [*(payload for key, payload in media.items() if key in wanted), *prompt]

    def _key(self, part: AudioPart | ImagePart) -> Media:
        digest = hashlib.blake2b(_VERSION, digest_size=16)
        if isinstance(part, ImagePart):
            digest.update(part.data)
            return Media(digest.hexdigest(), "image")
        digest.update(self._recogniser + part.sample_rate.to_bytes(4, "little"))
        digest.update(np.ascontiguousarray(part.samples, np.float32).data)
        return Media(digest.hexdigest(), "audio")

    def _encoded(self, part: AudioPart | ImagePart, media: Media) -> EdgePayload:
        if isinstance(part, ImagePart):
            picture = pictures.decode(part.data)
            return ImagePatches(media, picture, (1, picture.shape[0], picture.shape[1]))
        audio.check(part.samples, part.sample_rate, "audio")
        speech = self._listening.speech(audio.resample(part.samples, part.sample_rate, SAMPLE_RATE))
        return MelFrames(media, speech, len(speech) / SAMPLE_RATE)


def _size(payload: EdgePayload) -> int:
    """Bytes."""
    match payload:
        case MelFrames():
            return payload.frames.nbytes
        case ImagePatches():
            return payload.patches.nbytes
        case _:
            return 0


def _pictures_first(message: Message) -> Message:
    """The brain's examples show what the camera sees before what the user says."""
    if message.role != "user":
        return message
    return Message("user", tuple(sorted(message.parts, key=lambda part: not isinstance(part, ImagePart))))
