"""The generation table: which work is stale. Pure; safe to read from any thread."""

from collections import OrderedDict

from voice_app.messages import TurnId

CAPACITY = 8192
"""Fences kept. The oldest is forgotten first: a message would have to be late by this many turns to
be taken for fresh."""


class Fence:
    """For each (session, turn) the lowest generation that is still admitted."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._lowest: OrderedDict[tuple[str, str], int] = OrderedDict()

    def raise_above(self, turn: TurnId) -> None:
        """From now on `turn` and its earlier generations are stale. Never lowers a fence."""
        lowest = max(turn.generation + 1, self._lowest.get(turn.key, 0))
        self._lowest[turn.key] = lowest
        self._lowest.move_to_end(turn.key)
        if len(self._lowest) > self._capacity:
            self._lowest.popitem(last=False)

    def admits(self, turn: TurnId) -> bool:
        """Whether work for `turn` is still wanted."""
        return turn.generation >= self._lowest.get(turn.key, 0)

    def __len__(self) -> int:
        return len(self._lowest)
