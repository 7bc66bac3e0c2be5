"""What is large is kept up to a bound: the oldest goes first."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """At most `most` in sum, as the sizes say, but always the newest. `forget` is called for what goes."""

    def __init__(self, most: int, forget: Callable[[T], None]) -> None:
        self._most = most
        self._forget = forget
        self._parts: deque[tuple[T, int]] = deque()
        self._sum = 0

    def add(self, part: T, size: int) -> None:
        self._parts.append((part, size))
        self._sum += size
        while self._sum > self._most and len(self._parts) > 1:
            oldest, freed = self._parts.popleft()
            self._sum -= freed
            self._forget(oldest)
