"""Who is let in when: a bound on talks, a short queue in front of it, and an honest "full"."""

import asyncio
import contextlib
from collections import Counter, deque
from dataclasses import dataclass, field

KEY_GRACE_S = 1.0
"""How long a key that has all its talks waits for one to end: who closes a talk and opens the next at once
finds the end of the old one still on its way."""


class Full(Exception):
    """Nobody more is let in now. `str` says why, for the client to read."""


@dataclass(slots=True, eq=False)
class _Waiting:
    key: str
    let_in: asyncio.Event = field(default_factory=asyncio.Event)


class Admission:
    """`most` talks at once; up to `queue` clients wait, each `wait_s` at most."""

    def __init__(self, most: int, queue: int, wait_s: float) -> None:
        self._most = most
        self._queue_size = queue
        self._wait_s = wait_s
        self._talks: Counter[str] = Counter()
        self._queue: deque[_Waiting] = deque()
        self._left = asyncio.Event()
        """Set, and replaced, when a talk ends."""
        self.draining = False

    @property
    def talks(self) -> int:
        return self._talks.total()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def drain(self) -> None:
        """Let nobody in any more."""
        self.draining = True
        self._left.set()
        for waiting in self._queue:
            waiting.let_in.set()

    async def enter(self, key: str, most_per_key: int) -> None:
        """Returns when a talk with `key`, which may have `most_per_key`, may begin; raises Full. What enters
        must `leave`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KEY_GRACE_S):
                while self._has_all(key, most_per_key) and not self.draining:
                    await self._left.wait()
        self._check(key, most_per_key)
        if not self._queue and self.talks < self._most:
            self._talks[key] += 1
            return
        if len(self._queue) >= self._queue_size:
            raise Full(f"the server is full: {self._most} talks and {self._queue_size} waiting")
        await self._wait(key)

    def _check(self, key: str, most_per_key: int) -> None:
        if self.draining:
            raise Full("the server is shutting down")
        if self._has_all(key, most_per_key):
            raise Full(f"this key has its {most_per_key} talk{'s' * (most_per_key != 1)} already")

    def _has_all(self, key: str, most_per_key: int) -> bool:
        waiting = sum(entry.key == key for entry in self._queue)
        return self._talks[key] + waiting >= most_per_key

    async def _wait(self, key: str) -> None:
        waiting = _Waiting(key)
        self._queue.append(waiting)
        try:
            async with asyncio.timeout(self._wait_s):
                await waiting.let_in.wait()
        except TimeoutError:
            # Let in at the very last moment: the place is ours.
            if not waiting.let_in.is_set():
                raise Full(
                    f"the server is full: {self._most} talks, none ended within {self._wait_s:g} s"
                ) from None
        except asyncio.CancelledError:
            if waiting.let_in.is_set() and not self.draining:
                self.leave(key)
            raise
        finally:
            if waiting in self._queue:
                self._queue.remove(waiting)
        if self.draining:
            raise Full("the server is shutting down")

    def leave(self, key: str) -> None:
        """A talk is over: the next in the queue, if any, takes its place."""
        self._talks[key] -= 1
        if not self._talks[key]:
            del self._talks[key]
        self._left.set()
        self._left = asyncio.Event()
        while self._queue and self.talks < self._most and not self.draining:
            waiting = self._queue.popleft()
            self._talks[waiting.key] += 1
            waiting.let_in.set()
