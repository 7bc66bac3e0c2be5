"""The results of the newest inputs, by key: what a talk shows again is not worked out again."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """Values of at most `most` in all, as `size` counts them (each as 1 unless told otherwise); the one used
    longest ago goes first."""

    def __init__(self, most: int, size: Callable[[V], int] = lambda _: 1) -> None:
        self._most = most
        self._size = size
        self._held = 0
        self._values: OrderedDict[str, V] = OrderedDict()

    def get(self, key: str) -> V | None:
        """The value of `key`, which counts as used now."""
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def drop(self, key: str) -> None:
        """Forget the value of `key`, if there is one."""
        if key in self._values:
            self._held -= self._size(self._values.pop(key))

    def put(self, key: str, value: V) -> None:
        self.drop(key)
        self._values[key] = value
        self._held += self._size(value)
        while self._held > self._most:
            _, dropped = self._values.popitem(last=False)
            self._held -= self._size(dropped)
