"""Preprocessing's runner: a request to the prompt's ids, mel frames and picture patches."""

import json
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import soxr
from msgspec import structs

from voice_app import messages as m
from voice_app.errors import InputError, VoiceAppError
from voice_app.models.qwen3_omni.facts import TalkerFacts, ThinkerFacts
from voice_app.models.qwen3_omni.processors import AudioProcessor, ImageProcessor, TextProcessor
from voice_app.models.qwen3_omni.tool_calls import demanded, opening_of
from voice_app.schedulers.base import StageInput

TOKENS_PER_SECOND = 13
"""Positions of a second of audio (100 mel frames through three convolutions of stride 2)."""
MIN_SECONDS = 0.025
"""Shortest audio: one window of the mel transform; the published values are 400 samples of 16 kHz."""


class Preprocessing:
    """A `OnePassRunner`."""

    def __init__(
        self,
        text: TextProcessor,
        audio: AudioProcessor,
        image: ImageProcessor,
        thinker: ThinkerFacts,
        talker: TalkerFacts,
        default_voice: str | None = None,
    ) -> None:
        self._text = text
        self._audio = audio
        self._image = image
        self._tokens = thinker.tokens
        self._max_positions = thinker.decoder.max_positions
        self._talker = talker
        self._default_voice = default_voice

    def run(
        self, batch: Sequence[StageInput]
    ) -> Sequence[Sequence[m.EdgePayload | m.StageEvent] | VoiceAppError]:
        return [self._one(item) for item in batch]

    def warm_up(self) -> None:
        self._audio.frames(np.zeros(self._audio.sample_rate, np.float32))

    def _one(self, item: StageInput) -> Sequence[m.EdgePayload | m.StageEvent] | VoiceAppError:
        assert isinstance(item.payload, m.TurnRequest)
        try:
            return self._prepare(item.payload)
        except InputError as error:
            return error

    def _prepare(self, request: m.TurnRequest) -> list[m.EdgePayload | m.StageEvent]:
        if request.speech:
            self._talker.speaker(request.voice or self._default_voice)
        made: list[m.ImagePatches | m.MelFrames] = []
        conversation = [entry for message in request.messages for entry in self._entries(message, made)]
        tools = [_tool(tool) for tool in request.tools] if request.tool_choice != "none" else []
        ids = self._text.prompt_ids(conversation, tools)
        spans = self._spans(ids, [payload.media for payload in made])
        params = structs.replace(m.PromptParams.of(request), begins=self._begins(request))
        # The same picture or recording twice is one medium in two places.
        different = {payload.media.key: payload for payload in made}
        return [m.PromptIds(spans, params), *different.values()]

    def _begins(self, request: m.TurnRequest) -> tuple[int, ...]:
        """Of an answer that has to be a call: its opening, which the model then goes on with. What functions
        gave is answered freely: a session that demands a call would never hear of it."""
        names = demanded([tool.name for tool in request.tools], request.tool_choice)
        told = any(isinstance(part, m.ToolResultPart) for part in request.messages[-1].parts)
        return self._text.ids(opening_of(names)) if names and not told else ()

    def _entries(self, message: m.Message, made: list[m.ImagePatches | m.MelFrames]) -> list[dict]:
        """The template's messages for one of ours; tool results become messages of their own."""
        results = [
            {"role": "tool", "content": self._text.plain(part.output)}
            for part in message.parts
            if isinstance(part, m.ToolResultPart)
        ]
        calls = [
            {"type": "function", "function": {"name": part.name, "arguments": _arguments(part)}}
            for part in message.parts
            if isinstance(part, m.ToolCallPart)
        ]
        content = [entry for part in message.parts for entry in self._content(message.role, part, made)]
        if message.role == "user":
            return [*results, {"role": "user", "content": content}] if content else results
        entry: dict = {"role": message.role, "content": "".join(part["text"] for part in content)}
        if calls:
            entry["tool_calls"] = calls
        return [entry]

    def _content(self, role: m.Role, part: m.Part, made: list[m.ImagePatches | m.MelFrames]) -> list[dict]:
        if isinstance(part, m.TextPart):
            return [{"type": "text", "text": self._text.plain(part.text)}]
        if isinstance(part, (m.ToolCallPart, m.ToolResultPart)):
            return []
        if role != "user":
            # The model saw its own and the system's words as text only.
            said = part.transcript if isinstance(part, m.AudioPart) else None
            return [{"type": "text", "text": self._text.plain(said)}] if said else []
        made.append(self._mel(part) if isinstance(part, m.AudioPart) else self._patches(part))
        return [{"type": made[-1].media.kind}]

    def _mel(self, part: m.AudioPart) -> m.MelFrames:
        samples, rate = part.samples, part.sample_rate
        if samples.ndim != 1 or rate < 1:
            raise InputError(
                f"audio: {samples.ndim} dimensions at {rate} Hz; send one channel", param="audio"
            )
        if not np.isfinite(samples).all():
            raise InputError("audio: a sample is not a finite number; send samples in [-1, 1]", param="audio")
        seconds = len(samples) / rate
        if seconds < MIN_SECONDS:
            raise InputError(
                f"audio: {seconds * 1000:.0f} ms is too short; send at least 25 ms", param="audio"
            )
        if seconds * TOKENS_PER_SECOND >= self._max_positions:
            most = self._max_positions // TOKENS_PER_SECOND
            raise InputError(f"audio: {seconds:.0f} s is too long; send at most {most} s", param="audio")
        samples = np.ascontiguousarray(samples, np.float32)
        if rate != self._audio.sample_rate:
            samples = soxr.resample(samples, rate, self._audio.sample_rate)
        frames = self._audio.frames(samples)
        return m.MelFrames(m.Media(_key("audio", frames), "audio"), frames, seconds)

    def _patches(self, part: m.ImagePart) -> m.ImagePatches:
        patches, grid = self._image.patches(part.data)
        return m.ImagePatches(m.Media(_key(f"image {grid}", patches), "image"), patches, grid)

    def _spans(self, ids: list[int], media: Sequence[m.Media]) -> tuple[m.Span, ...]:
        """The ids cut at the template's places for media, which are taken in order."""
        places = {self._tokens.audio: "audio", self._tokens.image: "image"}
        found = [places[i] for i in ids if i in places]
        if found != [medium.kind for medium in media]:
            raise InputError(
                f"messages: the chat template has places for {found or 'no media'}, the request brings "
                f"{[medium.kind for medium in media] or 'none'}",
                param="messages",
            )
        spans: list[m.Span] = []
        text: list[int] = []
        left = iter(media)
        for token in ids:
            if token not in places:
                text.append(token)
                continue
            spans += [m.Span(ids=tuple(text)), m.Span(media=next(left))]
            text = []
        return (*spans, m.Span(ids=tuple(text)))


def _key(kind: str, values: np.ndarray) -> str:
    """A hash of the encoder's whole input: equal keys, equal embeddings."""
    digest = blake2b(f"{kind} {values.shape} ".encode(), digest_size=16)
    digest.update(values.data)
    return digest.hexdigest()


def _tool(tool: m.ToolSpec) -> dict:
    try:
        parameters = json.loads(tool.parameters)
    except json.JSONDecodeError as error:
        raise InputError(f"tools: parameters of {tool.name} are not JSON ({error})", param="tools") from error
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _arguments(part: m.ToolCallPart) -> object:
    try:
        return json.loads(part.arguments)
    except json.JSONDecodeError:
        return part.arguments
