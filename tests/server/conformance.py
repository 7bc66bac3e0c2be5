"""What every event of the server is held to: the SDK's own models in strict mode, rules that those models
miss (each broke a real client), and the order of events.

`Checker.feed` takes the events of one connection in order and fails at the first that is wrong; `finish`
says what should have followed.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

Event = dict[str, Any]

_SESSION_FIELDS = {"session.id", "session.object", "session.expires_at", "session.extensions"}
EXTENSION_FIELDS = {
    "session.created": _SESSION_FIELDS,
    "session.updated": _SESSION_FIELDS,
    "response.output_audio_transcript.delta": {"start_time"},
    "response.done": {"response.timing"},
}
"""Fields that are left out before the SDK's models see an event: ours, and those that every server adds but
the SDK types only where a session is created over HTTP (`check_session` looks at them)."""


def _models() -> dict[str, TypeAdapter[Any]]:
    union = get_args(RealtimeServerEvent)[0]
    return {
        get_args(model.model_fields["type"].annotation)[0]: TypeAdapter(model) for model in get_args(union)
    }


MODELS = _models()


def check_event(event: Event) -> None:
    """One event by itself."""
    kind = event["type"]
    assert kind in MODELS, f"{kind} is no event of the protocol"
    MODELS[kind].validate_python(_without_extensions(event), strict=True, extra="forbid")
    assert event.get("event_id"), "every event has an id"
    for path, value in _walk(event):
        _check_value(path, value)
    for item in _items(event):
        check_item(item)
    if "part" in event:
        assert event["part"]["type"] in ("text", "audio")
    if "session" in event:
        check_session(event["session"])
    if "response" in event:
        check_response(event["response"])
    _check_fields(event)


def _without_extensions(event: Event) -> Event:
    extra = EXTENSION_FIELDS.get(event["type"], set())
    kept = {key: value for key, value in event.items() if key not in extra}
    for path in extra:
        head, _, key = path.partition(".")
        if key and head in kept:
            kept[head] = {name: value for name, value in kept[head].items() if name != key}
    if "item" in kept:
        parts = [_without_frame(part) for part in kept["item"].get("content", [])]
        kept["item"] = {**kept["item"], "content": parts} if parts else kept["item"]
    return kept


def _without_frame(part: Event) -> Event:
    return {name: value for name, value in part.items() if name != "frame"}


def _walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _walk(entry, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for entry in value:
            yield from _walk(entry, f"{path}[]")
    else:
        yield path, value


NULLS_MEAN_OFF = {
    f"session.audio.input.{key}" for key in ("turn_detection", "noise_reduction", "transcription")
}


def _check_value(path: str, value: Any) -> None:
    free = path.startswith("session.tools[].parameters.")
    assert value is not None or path in NULLS_MEAN_OFF or free, f"{path} is null"
    last = path.rsplit(".", 1)[-1]
    if last.endswith(("_ms", "_index", "_tokens")) and not isinstance(value, str):
        assert type(value) is int, f"{path} = {value!r} is no integer"
        assert value >= 0, f"{path} = {value} is negative"


def _items(event: Event) -> list[Event]:
    items = [event["item"]] if "item" in event else []
    return items + event.get("response", {}).get("output", [])


def check_item(item: Event) -> None:
    assert item["id"]
    assert item["object"] == "realtime.item"
    assert item["status"] in ("completed", "incomplete", "in_progress")
    if item["type"] == "function_call":
        assert item["call_id"]
        if item["status"] == "completed":
            json.loads(item["arguments"])
    for part in item.get("content", []):
        kind = part["type"]
        assert kind != "input_audio" or isinstance(part["transcript"], str)
        assert kind != "input_image" or part["image_url"].startswith("data:image/")
        assert kind not in ("input_text", "output_text") or isinstance(part["text"], str)
        assert kind != "output_audio" or isinstance(part["transcript"], str)


def check_session(session: Event) -> None:
    assert session["id"]
    assert session["object"] == "realtime.session"
    assert session["expires_at"] > 0
    assert session.get("output_modalities", ["text"]) in (["text"], ["audio"])
    detection = session["audio"]["input"]["turn_detection"]
    if detection is not None:
        assert isinstance(detection["interrupt_response"], bool)
        assert isinstance(detection["create_response"], bool)
        assert 0 <= detection.get("threshold", 0.5) <= 1
    if "output" in session["audio"]:
        assert 0.25 <= session["audio"]["output"]["speed"] <= 1.5


def check_response(response: Event) -> None:
    assert response["id"]
    assert response["object"] == "realtime.response"
    assert isinstance(response["output"], list)
    assert response["output_modalities"] in (["text"], ["audio"])
    if response["status"] == "in_progress":
        assert "usage" not in response
        return
    usage = response["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert {"input_token_details", "output_token_details"} <= usage.keys()
    details = response.get("status_details", {})
    if response["status"] != "completed":
        assert details["type"] == response["status"]
    if response["status"] == "failed":
        assert details["error"]["code"]
        assert details["error"]["message"]
    if response["status"] in ("cancelled", "incomplete"):
        assert details["reason"]


def _check_fields(event: Event) -> None:
    match event["type"]:
        case "error":
            assert event["error"]["code"]
            assert event["error"]["message"]
        case "response.output_audio.delta":
            data = base64.b64decode(event["delta"], validate=True)
            assert data
            assert len(data) <= 4800, "a delta holds at most 100 ms"
        case "conversation.item.input_audio_transcription.delta":
            assert isinstance(event["delta"], str)
            assert event["content_index"] == 0
        case "response.function_call_arguments.done":
            json.loads(event["arguments"])


# ------------------------------------------------------------------------------------------------ order


@dataclass
class _Output:
    """One output item of a response."""

    item_id: str
    part: str = ""
    """Kind of its content part, once that was added."""
    text: str = ""
    finished: set[str] = field(default_factory=set)
    closed: bool = False


@dataclass
class _Response:
    in_conversation: bool
    outputs: dict[int, _Output] = field(default_factory=dict)
    done: bool = False


class Checker:
    """One connection's events, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._ids: set[str] = set()
        self._items: dict[str, str] = {}
        """Item → "added" or "done"."""
        self._gone: set[str] = set()
        self._responses: dict[str, _Response] = {}
        self._speech: str | None = None
        self._stopped: str | None = None
        self._committed: str | None = None

    def feed(self, event: Event) -> None:
        check_event(event)
        assert event["event_id"] not in self._ids, "event ids are unique"
        self._ids.add(event["event_id"])
        first = not self.events
        self.events.append(event)
        kind = event["type"]
        assert (kind == "session.created") == first, "session.created is the first event and comes once"
        if self._committed is not None:
            assert kind == "conversation.item.added", f"{kind} between committed and its item"
        if "response_id" in event:
            self._in_response(event, self._responses[event["response_id"]])
        handler = {
            "response.created": self._created,
            "response.done": self._done,
            "conversation.item.added": self._added,
            "conversation.item.done": self._item_done,
            "conversation.item.deleted": self._deleted,
            "conversation.item.truncated": self._known,
            "session.updated": self._updated,
            "input_audio_buffer.speech_started": self._started,
            "input_audio_buffer.speech_stopped": self._speech_stopped,
            "input_audio_buffer.committed": self._commit,
        }.get(kind)
        if handler:
            handler(event)

    def finish(self) -> None:
        """The talk has come to rest."""
        running = [name for name, response in self._responses.items() if not response.done]
        assert not running, f"responses without response.done: {running}"
        begun = [item for item, state in self._items.items() if state == "added"]
        assert not begun, f"items without conversation.item.done: {begun}"

    # ------------------------------------------------------------------------------------------ responses

    def _created(self, event: Event) -> None:
        response = event["response"]
        assert response["id"] not in self._responses
        assert response["status"] == "in_progress"
        assert response["output"] == []
        mine = _Response("conversation_id" in response)
        if mine.in_conversation:
            active = [name for name, r in self._responses.items() if r.in_conversation and not r.done]
            assert not active, f"two active responses: {active}"
        self._responses[response["id"]] = mine

    def _done(self, event: Event) -> None:
        response = event["response"]
        mine = self._responses[response["id"]]
        assert not mine.done, "response.done comes once"
        assert response["status"] != "in_progress"
        assert all(output.closed for output in mine.outputs.values()), "an output item was left open"
        assert [item["id"] for item in response["output"]] == [o.item_id for o in mine.outputs.values()]
        mine.done = True

    def _in_response(self, event: Event, response: _Response) -> None:
        assert not response.done, f"{event['type']} after response.done"
        kind, index = event["type"], event["output_index"]
        if kind == "response.output_item.added":
            assert index == len(response.outputs), "output items are counted from 0"
            response.outputs[index] = _Output(event["item"]["id"])
            return
        output = response.outputs[index]
        assert not output.closed, f"{kind} after output_item.done"
        if kind == "response.output_item.done":
            assert event["item"]["id"] == output.item_id
            if response.in_conversation and output.item_id not in self._gone:
                assert self._items[output.item_id] == "done"
            if event["item"]["type"] == "message":
                assert "content_part" in output.finished
            output.closed = True
            return
        assert event["item_id"] == output.item_id
        if response.in_conversation and output.item_id not in self._gone:
            assert output.item_id in self._items, f"{kind} before conversation.item.added"
        self._in_part(kind.removeprefix("response."), event, output)

    def _in_part(self, kind: str, event: Event, output: _Output) -> None:
        if kind.startswith("function_call_arguments"):
            assert "arguments" not in output.finished
            if kind.endswith("done"):
                assert event["arguments"] == output.text
                output.finished.add("arguments")
            else:
                output.text += event["delta"]
            return
        if kind == "content_part.added":
            assert not output.part
            output.part = event["part"]["type"]
            return
        assert output.part, f"{kind} before content_part.added"
        name, _, phase = kind.rpartition(".")
        assert name not in output.finished, f"{kind} after {name}.done"
        audio = output.part == "audio"
        assert name != "output_text" or not audio
        assert not name.startswith("output_audio") or audio
        if phase == "done":
            output.finished.add(name)
        if name in ("output_text", "output_audio_transcript"):
            if phase == "delta":
                output.text += event["delta"]
            else:
                whole = event.get("text", event.get("transcript"))
                assert isinstance(whole, str)
                assert output.text.startswith(whole), "what is done is what was told, or its beginning"
        if name == "content_part":
            needed = {"output_audio", "output_audio_transcript"} if audio else {"output_text"}
            assert needed <= output.finished

    # ---------------------------------------------------------------------------------------------- items

    def _added(self, event: Event) -> None:
        item, previous = event["item"], event.get("previous_item_id")
        assert item["id"] not in self._items, "an item is added once"
        assert previous is None or previous in self._items
        if self._committed is not None:
            assert item["id"] == self._committed
            self._committed = None
        self._items[item["id"]] = "added"

    def _item_done(self, event: Event) -> None:
        item_id = event["item"]["id"]
        if item_id in self._gone and item_id not in self._items:
            return  # Deleted while it was being made: it is finished all the same.
        assert self._items[item_id] == "added", "an item is done once, after it was added"
        self._items[item_id] = "done"

    def _deleted(self, event: Event) -> None:
        self._known(event)
        self._gone.add(event["item_id"])
        del self._items[event["item_id"]]

    def _known(self, event: Event) -> None:
        assert event["item_id"] in self._items

    # --------------------------------------------------------------------------------------------- speech

    def _updated(self, event: Event) -> None:
        if event["session"]["audio"]["input"]["turn_detection"] is None:
            self._speech = self._stopped = None

    def _started(self, event: Event) -> None:
        assert self._speech is None, "speech starts only when it has stopped"
        self._speech = event["item_id"]

    def _speech_stopped(self, event: Event) -> None:
        assert self._speech == event["item_id"]
        self._speech, self._stopped = None, event["item_id"]

    def _commit(self, event: Event) -> None:
        spoken = self._stopped or self._speech
        assert spoken is None or event["item_id"] == spoken, "the item has the id that was announced"
        self._speech = self._stopped = None
        self._committed = event["item_id"]
