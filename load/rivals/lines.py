"""The two wire protocols as one: what a caller sends, and what the messages that come mean to a listener.

Nothing here waits or knows the time.
"""

import importlib.util
import json
from base64 import b64encode
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from voice_app import audio
from voice_app.bench.callers import RATE

Wire = str | bytes


class Kind(StrEnum):
    """What a message means to the listener."""

    READY = "ready"
    """The talk can begin."""
    SPEECH_ENDED = "speech_ended"
    """The server has heard the silence that ends a turn."""
    SOUND = "sound"
    """More of a reply."""
    FLUSH = "flush"
    """What is not played yet must not be played any more."""
    COMPLETE = "complete"
    """The reply is written; its sound may still be coming."""


@dataclass(frozen=True, slots=True)
class Said:
    """One message's meaning. `seconds`: of sound; `detail`: why a reply is complete that is none."""

    kind: Kind
    seconds: float = 0.0
    detail: str = ""


class Line(Protocol):
    """A protocol. `settle_s`: a reply that is complete is over once nothing came for so long."""

    path: str
    settle_s: float

    def opening(self, stop_s: float) -> list[Wire]:
        """What is sent first; a turn is to end after `stop_s` of silence."""
        ...

    def packet(self, sound: np.ndarray) -> Wire:
        """[n] float32 at 24 kHz as one message."""
        ...

    def read(self, message: Wire) -> Said | None: ...


class Realtime:
    """Ours: the OpenAI Realtime protocol."""

    path = "/v1/realtime"
    settle_s = 0.0

    def opening(self, stop_s: float) -> list[Wire]:
        detection = {"type": "server_vad", "silence_duration_ms": round(1000 * stop_s)}
        session = {"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
        return [json.dumps({"type": "session.update", "session": session})]

    def packet(self, sound: np.ndarray) -> Wire:
        pcm = b64encode(audio.to_pcm16(sound)).decode()
        return json.dumps({"type": "input_audio_buffer.append", "audio": pcm})

    def read(self, message: Wire) -> Said | None:
        event = json.loads(message)
        match event["type"]:
            case "session.updated":
                return Said(Kind.READY)
            case "input_audio_buffer.speech_stopped":
                return Said(Kind.SPEECH_ENDED)
            case "input_audio_buffer.speech_started":
                return Said(Kind.FLUSH)
            case "response.output_audio.delta":
                encoded = event["delta"]
                size = len(encoded) * 3 // 4 - encoded.count("=", -2)
                return Said(Kind.SOUND, size / 2 / RATE)
            case "response.done":
                return Said(Kind.COMPLETE, detail=_why_incomplete(event.get("response", {})))
        return None


def _why_incomplete(response: dict[str, Any]) -> str:
    """Empty for one that was completed."""
    status = response.get("status", "completed")
    if status == "completed":
        return ""
    details = response.get("status_details") or {}
    told = (details.get("error") or {}).get("message") or details.get("reason") or ""
    return f"{status}: {told}" if told else status


class Pipecat:
    """pipecat's protobuf frames, with its RTVI messages inside them."""

    path = "/ws"
    # Its message says that the text is written; the voice of the last sentence may come later.
    settle_s = 2.0
    rate = 16_000
    """What its input resamples to otherwise."""
    meanings = {  # noqa: RUF012
        "bot-ready": Kind.READY,
        "vad-user-stopped-speaking": Kind.SPEECH_ENDED,
        "bot-llm-stopped": Kind.COMPLETE,
    }

    def __init__(self, python: Path) -> None:
        """`python`: the interpreter of the environment that pipecat is in."""
        self._messages = _generated(python)

    def opening(self, stop_s: float) -> list[Wire]:
        # It takes the silence from its own settings.
        ready = {"label": "rtvi-ai", "type": "client-ready", "id": "1", "data": {"version": "1.2.0"}}
        frame = self._messages.Frame()
        frame.message.data = json.dumps(ready)
        return [frame.SerializeToString()]

    def packet(self, sound: np.ndarray) -> Wire:
        frame = self._messages.Frame()
        frame.audio.audio = audio.to_pcm16(audio.resample(sound, RATE, self.rate))
        frame.audio.sample_rate = self.rate
        frame.audio.num_channels = 1
        return frame.SerializeToString()

    def read(self, message: Wire) -> Said | None:
        frame = self._messages.Frame.FromString(message)
        match frame.WhichOneof("frame"):
            case "audio":
                return Said(Kind.SOUND, len(frame.audio.audio) / 2 / frame.audio.sample_rate)
            case "interruption":
                return Said(Kind.FLUSH)
            case "message":
                kind = self.meanings.get(json.loads(frame.message.data)["type"])
                return None if kind is None else Said(kind)
        return None


def _generated(python: Path) -> ModuleType:
    """pipecat's own generated messages, out of its environment: they need protobuf alone."""
    (path,) = python.parents[1].glob("lib/python3*/site-packages/pipecat/frames/protobufs/frames_pb2.py")
    spec = importlib.util.spec_from_file_location("pipecat_frames_pb2", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
