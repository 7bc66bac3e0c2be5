"""What waits to be sent to one client: bounded, and stripped of audio that nobody is to hear any more."""

import asyncio
from collections import deque
from dataclasses import dataclass

CALM_BYTES = 64 << 10
"""With less than this waiting, the client keeps up: about a second of audio."""


@dataclass(frozen=True, slots=True)
class Entry:
    """`response`: the response whose audio it is, else None."""

    data: str | bytes
    response: str | None


class Outbox:
    """Filled without waiting, emptied by one writer. `limit` bytes is what a slow client may leave here."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self._held: str | None = None

    @property
    def calm(self) -> bool:
        """The client takes what is sent; else no more audio should be put in."""
        return self._bytes < CALM_BYTES

    @property
    def full(self) -> bool:
        """The bound is passed: the client is too slow to go on."""
        return self._bytes > self._limit

    def put(self, data: str | bytes, response: str | None = None) -> None:
        self._entries.append(Entry(data, response))
        self._bytes += len(data)
        self._filled.set()

    def hold_audio(self, response: str) -> None:
        """Let no audio of `response` leave for now, nor, so that the order stays, what comes after it."""
        self._held = response

    def release_audio(self) -> None:
        """Go on."""
        self._held = None
        self._filled.set()

    def drop_audio(self, response: str) -> None:
        """Forget the audio of `response`."""
        self._entries = deque(entry for entry in self._entries if entry.response != response)
        self._bytes = sum(len(entry.data) for entry in self._entries)
        self._filled.set()

    async def get(self) -> str | bytes:
        """The next, once there is one."""
        while not self._entries or (self._held is not None and self._entries[0].response == self._held):
            self._filled.clear()
            await self._filled.wait()
        entry = self._entries.popleft()
        self._bytes -= len(entry.data)
        return entry.data

    def __len__(self) -> int:
        return len(self._entries)
