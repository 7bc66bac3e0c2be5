"""What a client may send: one union, strict and closed."""

import json
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from voice_app.server.protocol.config import (
    AudioFormat,
    FunctionTool,
    MaxTokens,
    Modalities,
    Prompt,
    Reasoning,
    ToolChoice,
    VoiceId,
)
from voice_app.server.protocol.errors import NOT_JSON, ProtocolError, from_validation
from voice_app.server.protocol.items import InputItem, Model, NewItem, without_nulls


class _Event(Model):
    event_id: Annotated[str, Field(max_length=512)] | None = None


class SessionUpdate(_Event):
    type: Literal["session.update"]
    session: dict[str, Any]


class AudioAppend(_Event):
    """`audio`: base64 in the session's input format."""

    type: Literal["input_audio_buffer.append"]
    audio: str


class Sound(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="input_audio_buffer.append"
):
    """An `AudioAppend` that was read and decoded in one go: nearly every message of a client is one."""

    audio: bytes
    event_id: Annotated[str, msgspec.Meta(max_length=512)] | None = None


class AudioCommit(_Event):
    type: Literal["input_audio_buffer.commit"]


class AudioClear(_Event):
    type: Literal["input_audio_buffer.clear"]


class OutputAudioClear(_Event):
    """WebRTC only: answered with an error."""

    type: Literal["output_audio_buffer.clear"]


class ImageAppend(_Event):
    """An extension. `image`: base64 of a JPEG, PNG or WebP file."""

    type: Literal["input_image_buffer.append"]
    image: str


class ImageClear(_Event):
    """An extension: forget the frames that belong to no turn yet."""

    type: Literal["input_image_buffer.clear"]


class ItemCreate(_Event):
    """`previous_item_id`: omitted appends, "root" puts it first."""

    type: Literal["conversation.item.create"]
    item: NewItem
    previous_item_id: str | None = None


class ItemRetrieve(_Event):
    type: Literal["conversation.item.retrieve"]
    item_id: str


class ItemDelete(_Event):
    type: Literal["conversation.item.delete"]
    item_id: str


class ItemTruncate(_Event):
    """`audio_end_ms`: how much of the answer the user has heard."""

    type: Literal["conversation.item.truncate"]
    item_id: str
    content_index: Annotated[int, Field(ge=0)]
    audio_end_ms: Annotated[int, Field(ge=0)]


class ResponseAudioOutput(Model):
    format: AudioFormat | None = None
    voice: str | VoiceId | None = None


class ResponseAudio(Model):
    output: ResponseAudioOutput | None = None


class ResponseParams(Model):
    """Overrides of the session for one response. `conversation` "none": out of band."""

    output_modalities: Modalities | None = None
    instructions: str | None = None
    audio: ResponseAudio | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: MaxTokens | None = None
    conversation: Literal["auto", "none"] | None = None
    metadata: (
        Annotated[
            dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
            Field(max_length=16),
        ]
        | None
    ) = None
    input: list[InputItem] | None = None
    prompt: Prompt | None = None
    reasoning: Reasoning | None = None


class ResponseCreate(_Event):
    type: Literal["response.create"]
    response: Annotated[ResponseParams, BeforeValidator(without_nulls)] | None = None


class ResponseCancel(_Event):
    type: Literal["response.cancel"]
    response_id: str | None = None


ClientEvent = (
    SessionUpdate
    | AudioAppend
    | AudioCommit
    | AudioClear
    | OutputAudioClear
    | ImageAppend
    | ImageClear
    | ItemCreate
    | ItemRetrieve
    | ItemDelete
    | ItemTruncate
    | ResponseCreate
    | ResponseCancel
)
"""The client events of the GA protocol, and of its extensions here."""

_ADAPTER: TypeAdapter[ClientEvent] = TypeAdapter(Annotated[ClientEvent, Field(discriminator="type")])


_SOUND = msgspec.json.Decoder(Sound)
_HEAD = 128
"""Characters within which a message of sound names its type, as clients write it: some of them after an
`event_id` that is a UUID."""


def parse(data: str | bytes) -> ClientEvent | Sound:
    """One message of the client. Raises ProtocolError with the client's event_id where it has one."""
    if isinstance(data, str) and "input_audio_buffer.append" in data[:_HEAD]:
        try:
            return _SOUND.decode(data)
        except NOT_JSON:
            pass  # What is wrong with it is told below.
    event = _decode(data)
    own = event.get("event_id")
    try:
        return _ADAPTER.validate_python(event)
    except ValidationError as error:
        refused = _unknown_type(event) or from_validation(error, event)
        refused.event_id = own if isinstance(own, str) else None
        raise refused from error


def _decode(data: str | bytes) -> dict[str, Any]:
    try:
        event = msgspec.json.decode(data)
    except NOT_JSON as error:
        raise ProtocolError("invalid_value", f"The message is not valid JSON ({error}).") from error
    if not isinstance(event, dict):
        raise ProtocolError("invalid_value", "The message must be a JSON object with a 'type'.")
    return event


def _unknown_type(event: dict[str, Any]) -> ProtocolError | None:
    kind = event.get("type")
    if kind is None:
        return ProtocolError(
            "missing_required_parameter", "Missing required parameter: 'type'.", param="type"
        )
    if not isinstance(kind, str) or kind not in EVENT_TYPES:
        return ProtocolError(
            "invalid_value",
            f"Invalid value: {json.dumps(kind)[:80]}. Supported values are: {', '.join(EVENT_TYPES)}.",
            param="type",
        )
    return None


EVENT_TYPES: tuple[str, ...] = (
    "session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "input_audio_buffer.clear",
    "output_audio_buffer.clear",
    "input_image_buffer.append",
    "input_image_buffer.clear",
    "conversation.item.create",
    "conversation.item.retrieve",
    "conversation.item.delete",
    "conversation.item.truncate",
    "response.create",
    "response.cancel",
)
