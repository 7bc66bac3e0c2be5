"""The dialect of DashScope's Qwen-Omni-Realtime at `/api-ws/v1/realtime`: a translator before the same core.

Its session is flat, its events have the names of OpenAI's beta, speech comes in at 16 kHz, camera frames have
an event of their own, and `session.finish` asks for a farewell.
Source: help.aliyun.com/zh/model-studio/client-events and …/server-events, SDK 2.0.2.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from voice_app.server.protocol.errors import NOT_JSON
from voice_app.server.protocol.server_events import Event

INPUT_RATE = 16_000
DEFAULTS = {"threshold": 0.2, "prefix_padding_ms": 300, "silence_duration_ms": 800}
"""Of its server VAD; the threshold goes from -1 to 1."""

_RENAMED = {
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
    "conversation.item.added": "conversation.item.created",
}
_DROPPED = ("conversation.item.done", "conversation.item.truncated", "rate_limits.updated")
"""What it does not know."""
_SAMPLING = ("temperature", "top_p", "top_k", "seed", "repetition_penalty")
_KEPT = ("instructions", "tools", "tool_choice")


_SESSION_UPDATE: Event = {
    "type": "session.update",
    "session": {
        "type": "realtime",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": INPUT_RATE},
                "transcription": {"model": "default"},
                "turn_detection": {
                    "type": "server_vad",
                    "threshold": (DEFAULTS["threshold"] + 1) / 2,
                    "prefix_padding_ms": DEFAULTS["prefix_padding_ms"],
                    "silence_duration_ms": DEFAULTS["silence_duration_ms"],
                },
            }
        },
        "extensions": {"camera": True},
    },
}
"""What its sessions are like before the client says anything."""


class DashScope:
    """Of one connection. `voices`: the names that the server takes; none where they are not known. Others
    are its own voice: that service has ever new ones, and a name must not cost the rest of an update.
    `receive` turns a message of the client into events of the core (also when it is not valid: the core
    says what is wrong); `send` turns an event of the core into the client's, or several."""

    def __init__(self, voices: Iterable[str] = ()) -> None:
        self._voices = frozenset(map(str.lower, voices))
        self._finishing = False
        self._busy = False

    @property
    def session_update(self) -> Event:
        return _SESSION_UPDATE

    def receive(self, message: str | bytes) -> list[bytes | str]:
        try:
            event = msgspec.json.decode(message)
        except NOT_JSON:
            return [message]
        if not isinstance(event, dict):
            return [message]
        kind = event.get("type")
        if kind == "session.finish":
            self._finishing = True
            return []
        if kind == "session.update" and isinstance(event.get("session"), dict):
            event["session"] = _session_in(self._with_known_voice(event["session"]))
        if kind == "response.create" and isinstance(event.get("response"), dict):
            event["response"] = _response_in(event["response"])
        return [msgspec.json.encode(event)]

    def _with_known_voice(self, flat: dict[str, Any]) -> dict[str, Any]:
        voice = flat.get("voice")
        if not (self._voices and isinstance(voice, str)) or voice.lower() in self._voices:
            return flat
        return {**flat, "voice": ""}

    def farewell(self) -> list[Event]:
        """After `session.finish`, once nothing is being said any more."""
        if not self._finishing or self._busy:
            return []
        self._finishing = False
        return [{"type": "session.finished"}]

    def send(self, event: Event) -> list[Event]:
        kind = event["type"]
        if kind in _DROPPED:
            return []
        shown = {**event, "type": _RENAMED.get(kind, kind)}
        if "session" in event:
            shown["session"] = _session_out(event["session"])
        if "response" in event:
            shown["response"] = _response_out(event["response"])
            self._busy = event["response"]["status"] == "in_progress"
        if "item" in event:
            shown["item"] = _item_out(event["item"])
        if kind == "input_audio_buffer.speech_started":
            self._busy = True
        return [shown, *self.farewell()]


def _session_in(flat: dict[str, Any]) -> dict[str, Any]:
    session: dict[str, Any] = {"type": "realtime"} | {key: flat[key] for key in _KEPT if key in flat}
    heard: dict[str, Any] = {}
    if "modalities" in flat:
        session["output_modalities"] = _modalities_in(flat["modalities"])
    if "turn_detection" in flat:
        heard["turn_detection"] = _detection_in(flat["turn_detection"])
    if "input_audio_transcription" in flat:
        heard["transcription"] = flat["input_audio_transcription"]
    if heard:
        session["audio"] = {"input": heard}
    if flat.get("voice") is not None:
        session.setdefault("audio", {})["output"] = {"voice": flat["voice"]}
    if flat.get("max_tokens") is not None:
        session["max_output_tokens"] = flat["max_tokens"]
    sampling = {key: flat[key] for key in _SAMPLING if flat.get(key) is not None}
    if sampling:
        session["sampling"] = sampling
    return session


def _modalities_in(modalities: Any) -> list[str]:
    return ["audio"] if isinstance(modalities, list) and "audio" in modalities else ["text"]


def _detection_in(detection: Any) -> Any:
    if not isinstance(detection, dict):
        return detection
    known = ("prefix_padding_ms", "silence_duration_ms", "create_response", "interrupt_response")
    shown = {"type": "server_vad"} | {key: detection[key] for key in known if key in detection}
    threshold = detection.get("threshold")
    if isinstance(threshold, int | float):
        shown["threshold"] = min(1.0, max(0.0, (threshold + 1) / 2))
    return shown


def _response_in(response: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in response.items() if key in ("instructions", "tools", "metadata")}
    if "modalities" in response:
        kept["output_modalities"] = _modalities_in(response["modalities"])
    return kept


def _session_out(session: dict[str, Any]) -> dict[str, Any]:
    heard, spoken = session["audio"]["input"], session["audio"].get("output", {})
    detection = heard["turn_detection"]
    if detection is not None:
        detection = {**detection, "threshold": round(detection.get("threshold", 0.5) * 2 - 1, 6)}
    return {
        "id": session["id"],
        "object": "realtime.session",
        "model": session["model"],
        "modalities": _modalities_out(session["output_modalities"]),
        "instructions": session["instructions"],
        "voice": spoken.get("voice", "default"),
        "input_audio_format": "pcm16",
        "output_audio_format": "pcm24",
        "input_audio_transcription": heard["transcription"],
        "turn_detection": detection,
        "tools": session["tools"],
        "tool_choice": session["tool_choice"],
        **session.get("sampling", {}),
    }


def _modalities_out(modalities: list[str]) -> list[str]:
    return ["text", "audio"] if modalities == ["audio"] else ["text"]


def _response_out(response: dict[str, Any]) -> dict[str, Any]:
    shown = {key: value for key, value in response.items() if key not in ("output_modalities", "audio")}
    shown["modalities"] = _modalities_out(response["output_modalities"])
    shown["output"] = [_item_out(item) for item in response["output"]]
    return shown


_PARTS = {"output_audio": "audio", "output_text": "text"}


def _item_out(item: dict[str, Any]) -> dict[str, Any]:
    if "content" not in item:
        return item
    content = [{**part, "type": _PARTS.get(part["type"], part["type"])} for part in item["content"]]
    return {**item, "content": content}
