"""Camera frames are encoded while the user still speaks: a turn of the pipeline that ends with one token.

Packs keep what they encoded, by its content, and the prefix of the prompt; when the user's turn is over, both
are there. The client hears nothing of it.
"""

from collections.abc import Iterable
from dataclasses import replace

from voice_app import messages as m
from voice_app.server.session import prompt
from voice_app.server.session.actions import Cancel, Submit
from voice_app.server.session.context import Context
from voice_app.server.session.conversation import Item
from voice_app.server.session.response import ResponseSpec


class EarlySight:
    """One look at a time: what was seen meanwhile is in the next."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._turn: m.TurnId | None = None

    @property
    def turns(self) -> set[m.TurnId]:
        """What is in the pipeline."""
        return set() if self._turn is None else {self._turn}

    def look(self, items: Iterable[Item], spec: ResponseSpec) -> None:
        """`items`: the conversation, ending with what the camera sees. `spec`: of the answer to come."""
        context = self._context
        self._turn = m.TurnId(context.session_id, context.new_id("turn"))
        silent = replace(spec, spoken=False, max_tokens=1)
        context.act(Submit(prompt.request(self._turn, items, silent, context.settings)))

    def event(self, turn: m.TurnId, event: m.TurnEvent) -> bool:
        """Whether `turn` is the look; it ends with its TurnDone."""
        if turn != self._turn:
            return False
        if isinstance(event, m.TurnDone):
            self._turn = None
        return True

    def failed(self, turn: m.TurnId) -> bool:
        """Whether `turn` is the look. Nothing is lost: the turn itself will look again."""
        if turn != self._turn:
            return False
        self._turn = None
        return True

    def stop(self) -> None:
        """The connection is gone."""
        if self._turn is not None:
            self._context.act(Cancel(self._turn))
            self._turn = None
