"""What a session asks its driver to do."""

from dataclasses import dataclass

from voice_app.messages import TurnId, TurnRequest
from voice_app.server.protocol.server_events import Event


@dataclass(frozen=True, slots=True)
class Send:
    """Send `event`. `response`: the id of the response whose audio it carries: such an event is dropped
    when that response is cut off before the event left."""

    event: Event
    response: str | None = None


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
class Close:
    """End the connection once what was sent before has left."""

    code: int
    reason: str


Action = Send | DropAudio | Submit | Cancel | Close
