"""Conversation items ↔ the protocol's JSON. No key is ever null inside an item."""

import base64
import binascii
from collections.abc import Callable
from typing import Any

import msgspec

from voice_app.server import sound
from voice_app.server.protocol import items as wire
from voice_app.server.protocol import server_events as events
from voice_app.server.protocol.config import AudioFormat
from voice_app.server.protocol.errors import ProtocolError
from voice_app.server.protocol.server_events import Event
from voice_app.server.session.camera import Look
from voice_app.server.session.conversation import (
    CallItem,
    CallOutputItem,
    Content,
    Item,
    MessageItem,
    Picture,
    Recording,
    Spoken,
    Text,
)

PICTURE_TYPES = ("image/jpeg", "image/jpg", "image/png", "image/webp")
MAX_SHOWN_BYTES = 256 << 10
"""A larger picture is not sent back with its item: small clients close at messages of 1 MiB."""


def to_wire(item: Item, *, audio: AudioFormat | None = None) -> dict[str, Any]:
    """`audio`: include recordings, in this format (only `conversation.item.retrieved` does)."""
    head = {"id": item.id, "object": "realtime.item", "status": item.status}
    match item:
        case MessageItem():
            content = [_part(part, item.role, audio) for part in item.content]
            return {**head, "type": "message", "role": item.role, "content": content}
        case CallItem():
            call = {"call_id": item.call_id, "name": item.name, "arguments": item.arguments}
            return {**head, "type": "function_call", **call}
        case CallOutputItem():
            return {**head, "type": "function_call_output", "call_id": item.call_id, "output": item.output}


def _part(part: Content, role: str, audio: AudioFormat | None) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "output_text" if role == "assistant" else "input_text", "text": part.text}
        case Recording():
            # The key `transcript` must be there even before it is known: a client library throws without it.
            shown = {"type": "input_audio", "transcript": part.transcript or ""}
            if audio is not None and part.samples is not None:
                shown["audio"] = base64.b64encode(sound.from_ear(part.samples, audio)).decode()
            return shown
        case Picture():
            # A frame that the client has a name for is not sent back to it with every item.
            known = part.frame and audio is None
            data = b"" if known or len(part.data) > MAX_SHOWN_BYTES else part.data
            url = f"data:{part.media_type};base64,{base64.b64encode(data).decode()}"
            shown = {"type": "input_image", "image_url": url, "detail": part.detail}
            return {**shown, "frame": part.frame} if part.frame else shown
        case Spoken():
            return {"type": "output_audio", "transcript": part.heard}


def from_wire(item: wire.ClientItem, new_id: Callable[[str], str], audio: AudioFormat, look: Look) -> Item:
    """What `conversation.item.create` brings; `look` is given its pictures. Raises ProtocolError."""
    item_id = item.id or new_id("item")
    match item:
        case wire.FunctionCallItem():
            return CallItem(item_id, item.call_id or new_id("call"), item.name, _arguments(item.arguments))
        case wire.FunctionCallOutputItem():
            return CallOutputItem(item_id, item.call_id, item.output)
        case _:
            content = [
                _from_part(part, f"item.content[{index}]", audio, look)
                for index, part in enumerate(item.content)
            ]
            return MessageItem(item_id, item.role, content, item.status or "completed")


def _arguments(text: str) -> str:
    """The arguments of a call: JSON, because client libraries parse what is shown to them."""
    try:
        msgspec.json.decode(text or "{}")
    except msgspec.DecodeError as error:
        param = "item.arguments"
        raise ProtocolError(
            "invalid_value", f"Invalid value for '{param}': not JSON ({error}).", param=param
        ) from error
    return text or "{}"


def _from_part(
    part: wire.InputTextPart
    | wire.InputAudioPart
    | wire.InputImagePart
    | wire.OutputTextPart
    | wire.OutputAudioPart,
    param: str,
    audio: AudioFormat,
    look: Look,
) -> Content:
    match part:
        case wire.InputTextPart() | wire.OutputTextPart():
            return Text(part.text)
        case wire.OutputAudioPart():
            return Spoken(part.transcript)
        case wire.InputAudioPart():
            samples = None
            if part.audio:
                samples = sound.to_ear(decode_base64(part.audio, f"{param}.audio"), audio)
            elif not part.transcript:
                raise ProtocolError(
                    "missing_required_parameter",
                    f"Missing required parameter: '{param}.audio'.",
                    param=f"{param}.audio",
                )
            return Recording(samples, part.transcript)
        case wire.InputImagePart():
            return _picture(part.image_url, part.detail, f"{param}.image_url", look)


def decode_base64(text: str, param: str) -> bytes:
    """The bytes, or ProtocolError naming `param`."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProtocolError(
            "invalid_value", f"Invalid value for '{param}': not base64 ({error}).", param=param
        ) from error


def _picture(url: str, detail: str, param: str, look: Look) -> Picture:
    """A picture out of a data URL."""
    head, comma, body = url.partition(",")
    media_type, _, encoding = head.removeprefix("data:").partition(";")
    if not url.startswith("data:") or not comma or encoding != "base64" or media_type not in PICTURE_TYPES:
        raise ProtocolError(
            "invalid_value",
            f"Invalid value for '{param}': expected a base64 data URL of type {', '.join(PICTURE_TYPES)}.",
            param=param,
        )
    frame = look(decode_base64(body, param), param)
    return Picture(frame.data, frame.media_type, detail)


def item_events(item: Item, previous_item_id: str | None) -> list[Event]:
    """An item that is complete as it is added."""
    shown = to_wire(item)
    return [events.item_added(shown, previous_item_id), events.item_done(shown, previous_item_id)]
