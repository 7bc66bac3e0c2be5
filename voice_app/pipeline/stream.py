"""One turn's answer as the client reads it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from voice_app.errors import TurnCancelled, VoiceAppError
from voice_app.messages import TurnEvent, TurnId


class TurnStream(AsyncIterator[TurnEvent]):
    """The events of one turn in order; ends after `TurnDone`, or raises what ended the turn.

    Taking an event gives its credit back: a reader that stalls holds back its own turn and no other.
    Leave it early by `aclose` (or `async with`), which cancels the turn."""

    def __init__(self, turn: TurnId, cancel: Callable[[TurnId], None]) -> None:
        self.turn = turn
        self._cancel = cancel
        self._events: deque[tuple[TurnEvent, Callable[[], None]]] = deque()
        self._error: VoiceAppError | None = None
        self._over = False
        self._arrived: asyncio.Event = asyncio.Event()

    def put(self, event: TurnEvent, release: Callable[[], None]) -> None:
        """The pipeline's side: one more event."""
        self._events.append((event, release))
        self._arrived.set()

    def end(self, error: VoiceAppError | None) -> None:
        """The pipeline's side: nothing follows. After a cancel, what was not read is not read any more;
        after a failure it still is, before the error."""
        if self._over:
            return
        self._over = True
        self._error = error
        if isinstance(error, TurnCancelled):
            self._drop()
        self._arrived.set()

    async def __anext__(self) -> TurnEvent:
        while not self._events:
            if self._over:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        event, release = self._events.popleft()
        release()
        return event

    async def aclose(self) -> None:
        """Cancel the turn unless it is over. Reading on raises TurnCancelled."""
        if not self._over:
            self._cancel(self.turn)
        self._drop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _drop(self) -> None:
        while self._events:
            _, release = self._events.popleft()
            release()
