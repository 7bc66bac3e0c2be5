"""What a session asks its driver to do."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from voice_app.messages import TurnId, TurnRequest
from voice_app.server.protocol.server_events import Event


@dataclass(frozen=True, slots=True)
class Send:
    """Send `event`. `response`: the id of the response whose audio it carries: such an event is dropped
    when that response is cut off before the event left."""

    event: Event
    response: str | None = None


@dataclass(frozen=True, slots=True)
class SendBinary:
    """Send `data` as a binary frame: audio of `response`."""

    data: bytes
    response: str


@dataclass(frozen=True, slots=True)
class HoldAudio:
    """Send none of this response's audio for now, nor what was to be sent after it."""

    response: str


@dataclass(frozen=True, slots=True)
class ReleaseAudio:
    """Send what was held."""


@dataclass(frozen=True, slots=True)
class DropAudio:
    """Send none of this response's audio that has not left yet."""

    response: str


@dataclass(frozen=True, slots=True)
class Submit:
    request: TurnRequest


@dataclass(frozen=True, slots=True)
class Cancel:
    turn: TurnId


@dataclass(frozen=True, slots=True)
class AskTurnEnd:
    """Find out how likely `samples` [n] float32 at 16 kHz are a complete turn; `pause` names the question."""

    samples: np.ndarray
    pause: int


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection once what was sent before has left."""

    code: int
    reason: str


class Measure(StrEnum):
    """What is measured of every talk; the metrics' names are made of these."""

    FIRST_TEXT = "first_text"
    """From the end of the user's turn to the first word sent."""
    FIRST_AUDIO = "first_audio"
    """From the end of the user's turn to the first sound sent."""
    INTERRUPTION = "interruption"
    """From the first frame of speech over a reply to the end of that reply."""
    GAP = "gap"
    """How long a listener who had heard all that was sent waited for more of the same reply."""


class Tally(StrEnum):
    """What is counted of every talk, with one label."""

    SPECULATION = "speculation"
    """used or dropped."""
    RESPONSE = "response"
    """completed, cancelled, incomplete or failed."""
    OVERLAP = "overlap"
    """Speech over a reply: interruption or passed (a noise, a back-channel); and what became of it where
    what interrupted held no words: resumed (the reply goes on) or answered_anew (nothing of it was heard)."""
    ERROR = "error"
    """The code of an error that the client was told."""


@dataclass(frozen=True, slots=True)
class Observe:
    measure: Measure
    seconds: float


@dataclass(frozen=True, slots=True)
class Count:
    tally: Tally
    label: str


Action = (
    Send
    | SendBinary
    | HoldAudio
    | ReleaseAudio
    | DropAudio
    | Submit
    | Cancel
    | AskTurnEnd
    | Close
    | Observe
    | Count
)
