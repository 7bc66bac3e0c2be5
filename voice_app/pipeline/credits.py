"""Who may send, what is out, which slot is whose. Pure: no I/O, no locks, time is passed in."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from voice_app.messages import Stage
from voice_app.pipeline import graph

STREAM_WINDOW = 64
"""Payloads of one turn on a streaming edge that may be out, unconsumed."""
ONCE_WINDOW = 16
"""The same on edges that carry each input once."""
CLIENT_WINDOW = 32
"""The same for events to the client. 32 chunks of sound are some seconds ahead of the ear."""


def is_stream(source: Stage | None, target: Stage | None) -> bool:
    """Whether many payloads a turn pass from `source` to `target` (None: the client)."""
    return target is None or any(e.source is source and e.target is target and e.stream for e in graph.EDGES)


def window_limit(source: Stage | None, target: Stage | None) -> int:
    """The window of one turn between `source` and `target`; both ends know it."""
    if target is None:
        return CLIENT_WINDOW
    return STREAM_WINDOW if is_stream(source, target) else ONCE_WINDOW


class Window:
    """The sender's count of one turn on one edge."""

    __slots__ = ("_sent_at", "credit", "next")

    def __init__(self, limit: int) -> None:
        self.credit = limit
        """How many more may be sent now."""
        self.next = 0
        """The sequence number of the next payload."""
        self._sent_at: dict[int, float] = {}

    def take(self, now: float) -> None:
        """Payload `next` was sent at `now`."""
        self._sent_at[self.next] = now
        self.next += 1
        self.credit -= 1

    def give_back(self, seq: int) -> bool:
        """The ack of `seq` came. False: it is not out (doubled, late, or made up)."""
        if self._sent_at.pop(seq, None) is None:
            return False
        self.credit += 1
        return True

    def overdue(self, now: float, patience: float) -> tuple[int, ...]:
        """What has been out longer than `patience`; each is named again only after as long again."""
        late = tuple(seq for seq, sent in self._sent_at.items() if now - sent >= patience)
        self._sent_at.update(dict.fromkeys(late, now))
        return late

    def __len__(self) -> int:
        return len(self._sent_at)


class Arrival(Enum):
    """What a sequence number says of an arriving payload."""

    FRESH = "fresh"
    AGAIN = "again"
    GAP = "gap"


class Arrivals:
    """The receiver's count of one turn on one edge.

    Credit of payloads without a slot is returned in groups, to halve the messages; a group is a
    quarter of the window, so that the sender always has most of it. Slots are returned at once."""

    __slots__ = ("_expected", "_group", "_held", "_owed")

    def __init__(self, limit: int) -> None:
        self._group = max(1, limit // 4)
        self._expected = 0
        self._held: set[int] = set()
        self._owed: list[int] = []

    def accept(self, seq: int) -> Arrival:
        """Judge `seq`; only a FRESH one is then held."""
        if seq != self._expected:
            return Arrival.AGAIN if seq < self._expected else Arrival.GAP
        self._expected += 1
        self._held.add(seq)
        return Arrival.FRESH

    def consumed(self, seq: int, *, at_once: bool) -> tuple[int, ...]:
        """`seq` is held no more; returns the numbers to acknowledge now."""
        if seq not in self._held:
            return ()
        self._held.remove(seq)
        self._owed.append(seq)
        if not at_once and len(self._owed) < self._group:
            return ()
        due = tuple(self._owed)
        self._owed.clear()
        return due

    def answer(self, seqs: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """For a sender that misses acks of `seqs`: those consumed, and those that never came."""
        asked = sorted(set(seqs))
        done = tuple(s for s in asked if s < self._expected and s not in self._held)
        self._owed = [s for s in self._owed if s not in done]
        return done, tuple(s for s in asked if s >= self._expected)

    def __len__(self) -> int:
        """Payloads that are with their consumer."""
        return len(self._held)


class SlotState(Enum):
    """A slot is lent from `lend` to `give_back`; in quarantine it is lent to nobody, and not free."""

    FREE = "free"
    LENT = "lent"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class SlotClass:
    """`count` slots of `size` bytes."""

    size: int
    count: int


@dataclass(slots=True)
class SlotTable:
    """The slots of one sender's pool, in classes of growing size."""

    classes: Sequence[SlotClass]
    _sizes: list[int] = field(init=False)
    _free: list[list[int]] = field(init=False)
    _state: dict[tuple[int, int], SlotState] = field(init=False)

    def __post_init__(self) -> None:
        self._sizes = [c.size for c in self.classes]
        self._free = [list(range(c.count))[::-1] for c in self.classes]
        self._state = {(k, i): SlotState.FREE for k, c in enumerate(self.classes) for i in range(c.count)}

    def fitting(self, size: int) -> range:
        """The classes to look in for `size` bytes: the smallest that fits, and the one above it.
        Empty: no slot is as large."""
        first = bisect_left(self._sizes, size)
        return range(first, min(first + 2, len(self._sizes)))

    def lend(self, kind: int) -> int | None:
        """A slot of class `kind`; None: none is free. The one used last comes first: its pages are
        in the cache."""
        if not self._free[kind]:
            return None
        index = self._free[kind].pop()
        self._state[kind, index] = SlotState.LENT
        return index

    def give_back(self, kind: int, index: int) -> bool:
        """Free it, from quarantine too. False: it was free already."""
        if self._state.get((kind, index), SlotState.FREE) is SlotState.FREE:
            return False
        self._state[kind, index] = SlotState.FREE
        self._free[kind].append(index)
        return True

    def quarantine(self, kind: int, index: int) -> None:
        """Keep a lent slot from everybody until `give_back`."""
        if self._state.get((kind, index)) is SlotState.LENT:
            self._state[kind, index] = SlotState.QUARANTINED

    def count(self, state: SlotState) -> int:
        """Slots in `state`."""
        return sum(1 for s in self._state.values() if s is state)
