"""From a conversation to the request that the pipeline takes."""

from collections.abc import Iterable

import numpy as np

from voice_app import messages as m
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
from voice_app.server.session.response import ResponseSpec
from voice_app.server.sound import EAR_RATE


def request(turn: m.TurnId, items: Iterable[Item], spec: ResponseSpec) -> m.TurnRequest:
    """The turn that answers `items` as `spec` says."""
    limit = spec.max_tokens if isinstance(spec.max_tokens, int) else None
    return m.TurnRequest(
        turn=turn,
        messages=_messages(items, spec.instructions),
        speech=spec.spoken,
        voice=spec.voice or None,
        speed=spec.speed,
        sampling=m.Sampling(max_tokens=limit),
        tools=spec.tools,
        tool_choice=spec.tool_choice,
    )


def _messages(items: Iterable[Item], instructions: str) -> tuple[m.Message, ...]:
    """The items as messages: what nobody heard, and items without content, are left out."""
    found: list[m.Message] = []
    if instructions:
        found.append(m.Message("system", (m.TextPart(instructions),)))
    for item in items:
        role, parts = _entry(item)
        if parts:
            found.append(m.Message(role, parts))
    if not found or found[-1].role != "user":
        # The client wants an answer though nobody has asked: the model begins to speak.
        found.append(m.Message("user", (m.TextPart(""),)))
    return tuple(found)


def _entry(item: Item) -> tuple[m.Role, tuple[m.Part, ...]]:
    match item:
        case CallItem():
            return "assistant", (m.ToolCallPart(item.call_id, item.name, item.arguments),)
        case CallOutputItem():
            return "user", (m.ToolResultPart(item.call_id, item.output),)
        case MessageItem():
            return _role(item.role), tuple(part for content in item.content for part in _parts(content))


def _role(role: str) -> m.Role:
    return "system" if role == "system" else "assistant" if role == "assistant" else "user"


def _parts(content: Content) -> tuple[m.Part, ...]:
    match content:
        case Text(text):
            return (m.TextPart(text),) if text else ()
        case Spoken():
            return (m.TextPart(content.heard),) if content.heard else ()
        case Picture(data):
            return (m.ImagePart(data),)
        case Recording(samples, transcript):
            # Known words stand for the sound: the same prompt (and so the same cache), and less to send.
            if transcript is not None:
                return (m.TextPart(transcript),) if transcript else ()
            return (audio_part(samples),) if samples is not None else ()


def audio_part(samples: np.ndarray) -> m.AudioPart:
    """[n] int16 at 16 kHz as the pipeline takes it."""
    return m.AudioPart(samples.astype(np.float32) / 32768.0, EAR_RATE)
