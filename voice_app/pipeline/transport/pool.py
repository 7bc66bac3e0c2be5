"""The sender's half of every transport with slots: a bounded pool of them in blocks of memory.

`SlotPool` knows which slot is whose, `HostPool` also how to fill one from the host.
"""

import threading
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from voice_app.errors import TransferFailed
from voice_app.pipeline.credits import SlotClass, SlotState, SlotTable
from voice_app.pipeline.transport.base import Parcel, SlotRef
from voice_app.pipeline.transport.codec import Aside, set_aside

KB, MB = 1024, 1024 * 1024

SLOT_CLASSES = (
    SlotClass(256 * KB, 16),
    SlotClass(1 * MB, 8),
    SlotClass(4 * MB, 4),
    SlotClass(16 * MB, 2),
    SlotClass(128 * MB, 1),
)
"""The photo's patches (9.6 MB) and its embeddings (3.1 MB) have their classes; the largest takes ten
minutes of sound. A class's block is made when it is first needed."""


class Block(Protocol):
    """The slots of one class, in one piece of memory."""

    @property
    def name(self) -> str:
        """`SlotRef.segment`: how receivers find it."""
        ...

    def destroy(self) -> None:
        """Give the memory back."""
        ...


class HostBlock(Block, Protocol):
    """A block in the host's memory."""

    def write(self, offset: int, aside: Aside) -> None:
        """Copy the arrays to `offset`, where there are `aside.size` bytes for them."""
        ...


B = TypeVar("B", bound=Block)
H = TypeVar("H", bound=HostBlock)


class SlotPool(ABC, Generic[B]):
    """An `Outgoing` but for what its memory is, and how a payload gets there."""

    def __init__(self, classes: tuple[SlotClass, ...]) -> None:
        self._lock = threading.Lock()
        self._table = SlotTable(classes)
        self._blocks: dict[int, B] = {}
        self._kinds: dict[str, int] = {}
        self._closed = False

    @abstractmethod
    def _make(self, kind: int, size: int) -> B:
        """The block of class `kind`, `size` bytes. Raises TransferFailed. Called under the pool's lock."""

    def free(self, slot: SlotRef) -> bool:
        with self._lock:
            return self._table.give_back(self._kinds[slot.segment], slot.index)

    def quarantine(self, slot: SlotRef) -> None:
        with self._lock:
            self._table.quarantine(self._kinds[slot.segment], slot.index)

    def count(self, state: SlotState) -> int:
        """Slots in `state`."""
        with self._lock:
            return self._table.count(state)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for block in self._blocks.values():
                block.destroy()
            self._blocks.clear()

    def _lend(self, size: int) -> tuple[B, SlotRef] | None:
        with self._lock:
            if self._closed:
                raise TransferFailed("this process is ending")
            fitting = self._table.fitting(size)
            if not fitting:
                largest = self._table.classes[-1].size // MB
                raise TransferFailed(f"{size / MB:.0f} MB do not fit the largest slot of {largest} MB")
            for kind in fitting:
                index = self._table.lend(kind)
                if index is not None:
                    return self._slot(kind, index, size)
        return None

    def _slot(self, kind: int, index: int, size: int) -> tuple[B, SlotRef]:
        slots = self._table.classes[kind]
        block = self._blocks.get(kind)
        if block is None:
            try:
                block = self._make(kind, slots.size * slots.count)
            except TransferFailed:
                self._table.give_back(kind, index)
                raise
            self._blocks[kind] = block
            self._kinds[block.name] = kind
        return block, SlotRef(block.name, index, index * slots.size, size)


class HostPool(SlotPool[H]):
    """A pool in the host's memory."""

    def wants(self, payload: object) -> bool:
        return False

    def pack(self, payload: object) -> Parcel | None:
        try:
            aside = set_aside(payload)
        except TypeError as error:
            raise TransferFailed(f"{type(payload).__name__}: {error}") from error
        lent = self._lend(aside.size)
        if lent is None:
            return None
        block, slot = lent
        block.write(slot.offset, aside)
        return Parcel(head=aside.head, slot=slot)
