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

from voice_app.messages import Sampling, ToolSpec, Usage
from voice_app.server.protocol import server_events as events
from voice_app.server.protocol.config import AudioFormat, MaxTokens, PcmFormat
from voice_app.server.protocol.server_events import Event
from voice_app.server.session.conversation import CallItem, Item, MessageItem, Spoken, Text
from voice_app.server.session.item_wire import to_wire

_PCM = PcmFormat()
_SAMPLING = Sampling()


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """What one response is to be: the session's configuration with the client's overrides."""

    spoken: bool
    instructions: str
    audio_format: AudioFormat = _PCM
    voice: str = ""
    speed: float = 1.0
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    max_tokens: MaxTokens = "inf"
    metadata: dict[str, str] | None = None
    in_conversation: bool = True
    sampling: Sampling = _SAMPLING
    word_times: bool = False
    """Transcript deltas say when they are spoken."""
    binary: bool = False
    """Audio goes out as binary frames."""
    timing: bool = False
    """The end of it says when its parts came about."""


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
        self.timing: dict[str, int] = {}
        """Moments, in ms from the end of the user's speech or, where the client asked, from then."""
        self._conversation_id = conversation_id
        self._new_id = new_id
        self._add_item = add_item
        self._items: list[Item] = []
        self._previous: dict[str, str | None] = {}
        self._message: MessageItem | None = None
        self._details: dict[str, Any] | None = None
        self._told = 0
        """Characters of the spoken answer's text that the client was told."""

    @property
    def items(self) -> list[Item]:
        """The output items that have begun."""
        return self._items

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
        """More of the answer's words. With word times, spoken ones wait until their time is known."""
        opened = self.open_answer()
        part = self._part()
        part.text += delta
        if isinstance(part, Text):
            return [*opened, self._in_message("output_text.delta", delta=delta)]
        return opened if self.spec.word_times else [*opened, *self._transcript_until(len(part.text))]

    def spoken_until(self, marks: list[tuple[int, float]]) -> list[Event]:
        """(characters, seconds): the text up to there is spoken by then."""
        opened = self.open_answer()
        part = self._part()
        if not isinstance(part, Spoken):
            return opened
        told = []
        for chars, seconds in marks:
            begin = part.marks[-1][1] if part.marks else 0.0
            part.marks.append((chars, seconds))
            if self.spec.word_times:
                told += self._transcript_until(chars, begin)
        return [*opened, *told]

    def _transcript_until(self, chars: int, start_time: float | None = None) -> list[Event]:
        delta = self._part().text[self._told : chars]
        if not delta:
            return []
        self._told += len(delta)
        return [self._in_message("output_audio_transcript.delta", delta=delta, start_time=start_time)]

    def audio(self, piece: bytes) -> Event:
        """More of the voice of the answer that has begun, in the client's format."""
        return self._in_message("output_audio.delta", delta=base64.b64encode(piece).decode())

    def binary_audio(self, piece: bytes) -> bytes:
        """The same as a binary frame: a byte that says how long the item's id is, the id, the audio."""
        message = self._message
        if message is None:
            raise TypeError("no answer has begun")
        name = message.id.encode()
        return bytes((len(name),)) + name + piece

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
                *self._transcript_until(len(text)),
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
            if spec.timing:
                wire["timing"] = self.timing
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
