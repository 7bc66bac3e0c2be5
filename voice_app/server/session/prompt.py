"""From a conversation to the request that the pipeline takes."""

from collections.abc import Iterable
from itertools import chain

import msgspec
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
from voice_app.server.settings import TalkSettings
from voice_app.server.sound import EAR_RATE


def request(
    turn: m.TurnId, items: Iterable[Item], spec: ResponseSpec, settings: TalkSettings, unsaid: str = ""
) -> m.TurnRequest:
    """The turn that answers `items` as `spec` says. Of all pictures, the newest are in it; a voice of another
    service is the pack's own. `unsaid`: the rest of the answer that the last item cut off."""
    limit = spec.max_tokens if isinstance(spec.max_tokens, int) else None
    return m.TurnRequest(
        turn=turn,
        messages=_newest_pictures(_messages(items, spec.instructions), settings.pictures_per_prompt),
        speech=spec.spoken,
        voice=_voice(spec.voice, settings),
        speed=spec.speed,
        sampling=msgspec.structs.replace(spec.sampling, max_tokens=limit),
        tools=spec.tools,
        tool_choice=spec.tool_choice,
        unsaid=unsaid,
    )


def _voice(name: str, settings: TalkSettings) -> str | None:
    """None: the pack's own, for no name and for one that the pack has not and another service has."""
    known = {voice.lower() for voice in settings.voices}
    stands_in = name.lower() in settings.stand_in_voices and name.lower() not in known
    return None if stands_in else name or None


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


def _newest_pictures(messages: tuple[m.Message, ...], most: int) -> tuple[m.Message, ...]:
    """A camera would fill the prompt with what it saw long ago."""
    parts = chain.from_iterable(message.parts for message in messages)
    old = sum(isinstance(part, m.ImagePart) for part in parts) - most
    if old <= 0:
        return messages
    kept: list[m.Message] = []
    for message in messages:
        left: list[m.Part] = []
        for part in message.parts:
            if isinstance(part, m.ImagePart) and old > 0:
                old -= 1
            else:
                left.append(part)
        kept += [m.Message(message.role, tuple(left))] if left else []
    return tuple(kept)


def _entry(item: Item) -> tuple[m.Role, tuple[m.Part, ...]]:
    match item:
        case CallItem():
            return "assistant", (m.ToolCallPart(item.call_id, item.name, item.arguments),)
        case CallOutputItem():
            return "user", (m.ToolResultPart(item.call_id, item.output),)
        case MessageItem():
            return _role(item.role), tuple(chain.from_iterable(map(_parts, item.content)))


def _role(role: str) -> m.Role:
    return "system" if role == "system" else "assistant" if role == "assistant" else "user"


def _parts(content: Content) -> tuple[m.Part, ...]:
    match content:
        case Spoken():
            heard = content.heard
            return (m.TextPart(heard),) if heard else ()
        case Text(text):
            return (m.TextPart(text),) if text else ()
        case Picture(data):
            return (m.ImagePart(data),) if data else ()
        case Recording(samples, transcript):
            # Known words stand for the sound: the same prompt (and so the same cache), and less to send.
            if transcript is not None:
                return (m.TextPart(transcript),) if transcript else ()
            return (audio_part(samples),) if samples is not None else ()


def audio_part(samples: np.ndarray) -> m.AudioPart:
    """[n] int16 at 16 kHz as the pipeline takes it."""
    return m.AudioPart(samples.astype(np.float32) / 32768.0, EAR_RATE)
