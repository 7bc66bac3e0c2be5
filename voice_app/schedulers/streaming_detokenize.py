"""Token ids to text that is safe to show: whole characters only, across token borders."""

import codecs
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from voice_app.messages import Stage, TextDelta, TextDone, TokenId, TurnId
from voice_app.schedulers.base import Outbox, SchedulerLoad, StageInput, TokenDecoder
from voice_app.schedulers.turns import refuse, stale

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


@dataclass(slots=True, eq=False)
class _Text:
    """One turn's text under way."""

    tokens: deque[StageInput] = field(default_factory=deque)
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: _Utf8Decoder(errors="replace"))
    """Holds the bytes of an unfinished character. Bytes that can never become one give U+FFFD, as in
    `bytes.decode(errors="replace")`."""
    held_ids: list[int] = field(default_factory=list)
    """Tokens whose bytes have given no text yet."""


class StreamingDetokenizeScheduler:
    """What waits of a turn becomes one `TextDelta`, so that a slow client gets fewer, longer ones."""

    def __init__(self, decoder: TokenDecoder, outbox: Outbox) -> None:
        self._decoder = decoder
        self._outbox = outbox
        self._texts: dict[TurnId, _Text] = {}
        self._decoding: tuple[TurnId, ...] = ()

    def receive(self, item: StageInput) -> None:
        if not isinstance(item.payload, TokenId):
            self.cancel(item.turn)
            refuse(self._outbox, Stage.DECODE, item)
            return
        self._texts.setdefault(item.turn, _Text()).tokens.append(item)

    def cancel(self, turn: TurnId) -> None:
        for over in stale(self._texts, turn):
            for item in self._texts.pop(over).tokens:
                item.release()

    def step(self) -> bool:
        for turn, text in list(self._texts.items()):
            if text.tokens and self._outbox.has_room(turn):
                self._decoding = (turn,)
                self._advance(turn, text)
        self._decoding = ()
        return False

    def wake_after(self) -> float | None:
        return None

    def in_flight(self) -> Sequence[TurnId]:
        return self._decoding

    def load(self) -> SchedulerLoad:
        waiting = sum(1 for text in self._texts.values() if text.tokens)
        return SchedulerLoad(waiting=waiting, running=len(self._texts))

    def _advance(self, turn: TurnId, text: _Text) -> None:
        shown: list[str] = []
        last: TokenId | None = None
        while text.tokens:
            item = text.tokens.popleft()
            token = item.payload
            assert isinstance(token, TokenId)
            item.release()
            if token.id is not None:
                text.held_ids.append(token.id)
                shown.append(text.decoder.decode(self._decoder.token_bytes(token.id)[: token.text_bytes]))
            if token.call is not None:
                self._emit(turn, text, "".join(shown), flush=True)
                shown.clear()
                self._outbox.emit(turn, token.call)
            if token.finish_reason is not None:
                last = token
                shown.append(text.decoder.decode(b"", final=True))
        self._emit(turn, text, "".join(shown), flush=last is not None)
        if last is not None and last.finish_reason is not None:
            self.cancel(turn)
            self._outbox.emit(turn, TextDone(last.finish_reason, last.usage))
            self._outbox.finish(turn)

    def _emit(self, turn: TurnId, text: _Text, shown: str, *, flush: bool) -> None:
        # Trailing tokens without text (special ones) still belong to the answer's ids.
        if shown or (flush and text.held_ids):
            self._outbox.emit(turn, TextDelta(shown, tuple(text.held_ids)))
            text.held_ids.clear()
