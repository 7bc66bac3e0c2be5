"""One response on the wire: every event in its order, each thing begun before it grows and ended once.

    response.created
      response.output_item.added → conversation.item.added → response.content_part.added
        → deltas → the part's done events → response.content_part.done
        → conversation.item.done → response.output_item.done
    response.done

It decides nothing about time: its owner tells it what was said, and when it is over.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from voice_app.messages import ToolSpec, Usage
from voice_app.server.protocol import server_events as events
from voice_app.server.protocol.config import AudioFormat, MaxTokens
from voice_app.server.protocol.server_events import Event
from voice_app.server.session.conversation import CallItem, Item, MessageItem, Spoken, Text
from voice_app.server.session.item_wire import to_wire


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """What one response is to be: the session's configuration with the client's overrides."""

    spoken: bool
    instructions: str
    audio_format: AudioFormat
    voice: str = ""
    speed: float = 1.0
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    max_tokens: MaxTokens = "inf"
    metadata: dict[str, str] | None = None
    in_conversation: bool = True


class Response:
    """Makes the events. `add_item` puts an item into the conversation and gives the id before it."""

    def __init__(
        self,
        spec: ResponseSpec,
        conversation_id: str,
        new_id: Callable[[str], str],
        add_item: Callable[[Item], str | None],
    ) -> None:
        self.id = new_id("resp")
        self.spec = spec
        self.status = "in_progress"
        self.usage = Usage()
        self.output_tokens = 0
        self._conversation_id = conversation_id
        self._new_id = new_id
        self._add_item = add_item
        self._items: list[Item] = []
        self._previous: dict[str, str | None] = {}
        self._message: MessageItem | None = None
        self._details: dict[str, Any] | None = None

    @property
    def message(self) -> MessageItem | None:
        """The spoken or written answer, once it has begun."""
        return self._message

    @property
    def spoken(self) -> Spoken | None:
        """The answer's voice, once it has begun."""
        part = self._message.content[0] if self._message else None
        return part if isinstance(part, Spoken) else None

    def created(self) -> list[Event]:
        return [events.response_created(self._wire())]

    def text(self, delta: str) -> list[Event]:
        """More of the answer's words."""
        opened = self.open_answer()
        part = self._part()
        part.text += delta
        kind = "output_audio_transcript.delta" if isinstance(part, Spoken) else "output_text.delta"
        return [*opened, self._in_message(kind, delta=delta)]

    def audio(self, piece: bytes) -> list[Event]:
        """More of the answer's voice, in the client's format."""
        opened = self.open_answer()
        delta = base64.b64encode(piece).decode()
        return [*opened, self._in_message("output_audio.delta", delta=delta)]

    def tool_call(self, name: str, arguments: str) -> list[Event]:
        """A whole function call."""
        item = CallItem(self._new_id("item"), self._new_id("call"), name, "", "in_progress")
        opened = self._open(item)
        index = len(self._items) - 1
        item.arguments, item.status = arguments, "completed"
        return [
            *opened,
            events.arguments_delta(self.id, item.id, index, item.call_id, arguments),
            events.arguments_done(self.id, item.id, index, item.call_id, name, arguments),
            *self._close(item),
        ]

    def finish(self, status: str, details: dict[str, Any] | None = None) -> list[Event]:
        """The response is over: `status` completed, cancelled, incomplete or failed, with its `details`."""
        self.status = status
        self._details = {"type": status, **details} if details else None
        closed = self._close_message("completed" if status == "completed" else "incomplete")
        return [*closed, events.response_done(self._wire())]

    # ------------------------------------------------------------------------------------- the answer

    def _part(self) -> Spoken | Text:
        part = self._message.content[0] if self._message else None
        if not isinstance(part, Spoken | Text):
            raise TypeError("an answer holds text or speech")
        return part

    def open_answer(self) -> list[Event]:
        """Begin the answer, if it has not begun."""
        if self._message is not None:
            return []
        self._message = MessageItem(self._new_id("item"), "assistant", [], "in_progress")
        opened = self._open(self._message)
        self._message.content.append(Spoken() if self.spec.spoken else Text(""))
        return [*opened, self._in_message("content_part.added", part=self._part_wire(""))]

    def _close_message(self, status: str) -> list[Event]:
        if self._message is None:
            return []
        part = self._part()
        text = part.heard if isinstance(part, Spoken) else part.text
        if self.spec.spoken:
            done = [
                self._in_message("output_audio.done"),
                self._in_message("output_audio_transcript.done", transcript=text),
            ]
        else:
            done = [self._in_message("output_text.done", text=text)]
        self._message.status = status
        return [
            *done,
            self._in_message("content_part.done", part=self._part_wire(text)),
            *self._close(self._message),
        ]

    def _part_wire(self, text: str) -> Event:
        return {"type": "audio", "transcript": text} if self.spec.spoken else {"type": "text", "text": text}

    def _in_message(self, kind: str, **fields: Any) -> Event:
        message = self._message
        if message is None:
            raise TypeError("no answer has begun")
        return events.in_part(kind, self.id, message.id, self._items.index(message), **fields)

    # --------------------------------------------------------------------------------------- any item

    def _open(self, item: Item) -> list[Event]:
        self._items.append(item)
        added = events.output_item_added(self.id, len(self._items) - 1, to_wire(item))
        if not self.spec.in_conversation:
            return [added]
        self._previous[item.id] = self._add_item(item)
        return [added, events.item_added(to_wire(item), self._previous[item.id])]

    def _close(self, item: Item) -> list[Event]:
        done = events.output_item_done(self.id, self._items.index(item), to_wire(item))
        if not self.spec.in_conversation:
            return [done]
        return [events.item_done(to_wire(item), self._previous[item.id]), done]

    def _wire(self) -> Event:
        spec = self.spec
        wire: Event = {
            "id": self.id,
            "object": "realtime.response",
            "status": self.status,
            "output": [to_wire(item) for item in self._items],
            "output_modalities": ["audio" if spec.spoken else "text"],
            "max_output_tokens": spec.max_tokens,
            "audio": {"output": {"format": spec.audio_format.model_dump()}},
        }
        if spec.voice:
            wire["audio"]["output"]["voice"] = spec.voice
        if spec.in_conversation:
            wire["conversation_id"] = self._conversation_id
        if spec.metadata is not None:
            wire["metadata"] = spec.metadata
        if self._details is not None:
            wire["status_details"] = self._details
        if self.status != "in_progress":
            wire["usage"] = self._usage()
        return wire

    def _usage(self) -> Event:
        """Counts; of a response that was cut short, those that are known."""
        out = self.usage.output_tokens or self.output_tokens
        fresh = self.usage.prompt_tokens - self.usage.cached_tokens
        return {
            "total_tokens": self.usage.prompt_tokens + out,
            "input_tokens": self.usage.prompt_tokens,
            "output_tokens": out,
            "input_token_details": {
                "text_tokens": max(0, fresh),
                "audio_tokens": 0,
                "image_tokens": 0,
                "cached_tokens": self.usage.cached_tokens,
                "cached_tokens_details": {
                    "text_tokens": self.usage.cached_tokens,
                    "audio_tokens": 0,
                    "image_tokens": 0,
                },
            },
            "output_token_details": {"text_tokens": out, "audio_tokens": 0},
        }
