"""What the parts of one session share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from voice_app.server.limits import Bucket
from voice_app.server.occupancy import Occupancy
from voice_app.server.protocol.server_events import Event
from voice_app.server.session.actions import Action, Send
from voice_app.server.session.conversation import Conversation
from voice_app.server.settings import TalkSettings


@dataclass(slots=True)
class Context:
    """`new_id(prefix)` gives unique ids; `actions` collects what the driver is to do; `occupancy` is the
    server's."""

    session_id: str
    conversation_id: str
    settings: TalkSettings
    new_id: Callable[[str], str]
    conversation: Conversation
    occupancy: Occupancy
    actions: list[Action] = field(default_factory=list)
    transcripts: bool = False
    """The client wants to be told what the user was heard to say."""
    allowance: Bucket | None = None
    """Responses that may still be asked for, where they are limited."""
    congested: bool = False
    """The client does not keep up: no more audio is made for it until it does."""

    def act(self, action: Action) -> None:
        self.actions.append(action)

    def send(self, events: Iterable[Event]) -> None:
        self.actions.extend(Send(event) for event in events)
