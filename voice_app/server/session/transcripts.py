"""The words of turns that nobody answers: a turn of the pipeline that is ended once it has told them."""

from voice_app import messages as m
from voice_app.errors import VoiceAppError
from voice_app.server.protocol import server_events as events
from voice_app.server.session import prompt
from voice_app.server.session.actions import Cancel, Submit
from voice_app.server.session.context import Context
from voice_app.server.session.conversation import MessageItem
from voice_app.server.session.job import heard
from voice_app.server.session.response import ResponseSpec

DELAY_S = 0.25
"""A client that asks for a response does so right after it has committed: its answer tells the words too."""


class Transcripts:
    """Only where the client wants transcripts and the pack tells what it heard."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._items: dict[m.TurnId, str] = {}
        self._waiting: dict[str, tuple[float, MessageItem]] = {}

    @property
    def turns(self) -> set[m.TurnId]:
        """What is in the pipeline."""
        return set(self._items)

    def want(self, item: MessageItem, now: float) -> None:
        """Find out what `item` says, unless a response is asked for soon."""
        if self._context.transcripts and self._context.settings.transcribes:
            self._waiting[item.id] = (now + DELAY_S, item)

    def deadline(self) -> float | None:
        """When `tick` should be called."""
        return min(due for due, _ in self._waiting.values()) if self._waiting else None

    def tick(self, now: float) -> None:
        """Start what is due."""
        for due, item in list(self._waiting.values()):
            if due <= now:
                del self._waiting[item.id]
                self._submit(item)

    def _submit(self, item: MessageItem) -> None:
        context = self._context
        turn = m.TurnId(context.session_id, context.new_id("turn"))
        self._items[turn] = item.id
        spec = ResponseSpec(spoken=False, instructions="", max_tokens=1)
        context.act(Submit(prompt.request(turn, [item], spec, context.settings)))

    def unwant(self, item_id: str | None) -> None:
        """A response tells the words of `item_id`."""
        self._waiting.pop(item_id or "", None)
        for turn in [turn for turn, item in self._items.items() if item == item_id]:
            self._end(turn)

    def event(self, turn: m.TurnId, event: m.TurnEvent) -> bool:
        """Whether `turn` is one of these."""
        if turn not in self._items:
            return False
        if isinstance(event, m.Transcript):
            heard(self._context, self._items[turn], event.text)
            self._end(turn)
        elif isinstance(event, m.TurnDone):
            # The pack heard nobody, or does not tell: the client is not left waiting.
            heard(self._context, self._items.pop(turn), "")
        return True

    def failed(self, turn: m.TurnId, error: VoiceAppError) -> bool:
        """Whether `turn` is one of these."""
        item_id = self._items.pop(turn, None)
        if item_id is not None:
            self._context.send([events.transcription_failed(item_id, error.code, error.message)])
        return item_id is not None

    def stop(self) -> None:
        """End all."""
        self._waiting.clear()
        for turn in list(self._items):
            self._end(turn)

    def _end(self, turn: m.TurnId) -> None:
        del self._items[turn]
        self._context.act(Cancel(turn))
