"""The receiving end of a process: fencing, order, decoding, and the acks that go back."""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from voice_app.errors import TransferFailed, VoiceAppError
from voice_app.messages import TurnId
from voice_app.pipeline.control import (
    AckRequest,
    DataAck,
    DataInSlot,
    DataReady,
    Edge,
    Lane,
    LaneKey,
    read_lane,
)
from voice_app.pipeline.credits import Arrival, Arrivals, window_limit
from voice_app.pipeline.fence import Fence
from voice_app.pipeline.fetching import Fetching
from voice_app.pipeline.transport.base import Incoming, Parcel, SlotRef


@dataclass(slots=True, eq=False)
class _LaneIn:
    """The receiver's end of a lane."""

    key: LaneKey
    lane: Lane
    arrivals: Arrivals
    in_slots: dict[int, SlotRef] = field(default_factory=dict)
    """Payloads on their way to their consumer, or with it, that lie in the sender's slots."""
    waiting: int = 0
    """Payloads that have to be fetched, or came after such a one: none may overtake another."""
    ended: bool = False


class Release(msgspec.Struct, eq=False):
    """Gives one payload back, once; further calls do nothing."""

    give_back: Callable[[Any, int], None] | None
    lane: object
    seq: int

    @property
    def done(self) -> bool:
        return self.give_back is None

    def __call__(self) -> None:
        give_back = self.give_back
        if give_back is not None:
            self.give_back = None
            give_back(self.lane, self.seq)


class Delivery(msgspec.Struct, gc=False):
    """A payload that arrived. `release` as in `StageInput`."""

    lane: Lane
    payload: object
    release: Release

    @property
    def edge(self) -> Edge:
        return self.lane.edge


class Inlet:
    """All edges that enter this process from others. `acknowledge` is told the node that an ack goes to.

    `ready`, `asked`, `ended` are for the one receiving thread; releases come from any."""

    def __init__(
        self,
        fence: Fence,
        incoming: Incoming,
        acknowledge: Callable[[str, DataAck], None],
        deliver: Callable[[Delivery], None],
        fail: Callable[[TurnId, VoiceAppError], None],
    ) -> None:
        self._fence = fence
        self._incoming = incoming
        self._acknowledge = acknowledge
        self._deliver = deliver
        self._fail = fail
        self._fetching = Fetching()
        self._lock = threading.Lock()
        self._lanes: dict[LaneKey, _LaneIn] = {}
        self.stale = 0
        """Payloads of turns that were over."""
        self.repeated = 0
        """Payloads that came twice."""

    def ready(self, message: DataReady | DataInSlot) -> None:
        """Take what a sender announced. Raises Malformed."""
        into = self._lanes.get(message.lane) or self._open_lane(message)
        if into.ended:
            self.stale += 1
            self._acknowledge(into.lane.sender, DataAck(into.lane.edge, (message.seq,)))
            return
        with self._lock:
            arrival = into.arrivals.accept(message.seq)
        if arrival is Arrival.FRESH and isinstance(message, DataReady) and not into.waiting:
            release = Release(self._consumed_inline, into, message.seq)
            self._deliver(Delivery(into.lane, message.payload, release))
        elif arrival is Arrival.FRESH:
            self._take(into, message)
        elif arrival is Arrival.AGAIN:
            self.repeated += 1
        else:
            edge = into.lane.edge
            self._fail(edge.turn, TransferFailed(f"{_name(edge)}: a payload before {message.seq} was lost"))

    def asked(self, request: AckRequest) -> None:
        """Answer a sender that misses acks. What a consumer still holds is not answered. Raises Malformed."""
        lane = read_lane(request.lane)
        with self._lock:
            into = self._lanes.get(request.lane)
            if into is not None:
                done, lost = into.arrivals.answer(request.seqs)
            elif self._fence.admits(lane.edge.turn):
                done, lost = (), request.seqs  # Nothing ever came.
            else:
                done, lost = request.seqs, ()  # The turn is over and nothing of it is held.
        if done:
            self._acknowledge(lane.sender, DataAck(lane.edge, done))
        if lost:
            self._acknowledge(lane.sender, DataAck(lane.edge, lost, "lost"))

    def ended(self, turn: TurnId) -> None:
        """The turn is over (its fence is up): forget it, but for slots that are still read."""
        with self._lock:
            for into in [into for into in self._lanes.values() if into.lane.edge.turn == turn]:
                into.ended = True
                if not into.in_slots:
                    del self._lanes[into.key]

    def peer_down(self, node: str) -> None:
        """The process `node` is gone."""
        self._fetching.end(node)
        self._incoming.forget(node)

    def __len__(self) -> int:
        return len(self._lanes)

    def _open_lane(self, message: DataReady | DataInSlot) -> _LaneIn:
        """That of `message`, the first of it; ended and not kept if the turn is over."""
        lane = read_lane(message.lane)
        if message.ahead:
            lane = msgspec.structs.replace(lane, submitted=lane.submitted - message.ahead)
        edge = lane.edge
        into = _LaneIn(message.lane, lane, Arrivals(window_limit(edge.source, edge.target)))
        if self._fence.admits(edge.turn):
            self._lanes[into.key] = into
        else:
            into.ended = True
        return into

    def _take(self, into: _LaneIn, message: DataReady | DataInSlot) -> None:
        """Open it: at once, or where waiting for it holds nothing else up."""
        waits = into.waiting > 0
        if isinstance(message, DataInSlot):
            waits = waits or self._incoming.waits(message.slot)
            with self._lock:
                into.in_slots[message.seq] = message.slot
        if not waits:
            self._open(into, message)
            return
        with self._lock:
            into.waiting += 1
        self._fetching.put(into.lane.sender, functools.partial(self._open_aside, into, message))

    def _open_aside(self, into: _LaneIn, message: DataReady | DataInSlot) -> None:
        taken = False
        try:
            if not into.ended:
                self._open(into, message)
            elif isinstance(message, DataInSlot):
                self._consumed_slot(into, message.seq)
            taken = True
        finally:
            with self._lock:
                into.waiting -= 1
            # No handler: what broke it is logged as the thread ends; only this turn is lost.
            if not taken:
                self._give_up(into, message)

    def _give_up(self, into: _LaneIn, message: DataReady | DataInSlot) -> None:
        """Nobody will consume `message`: its space goes back, its turn fails."""
        if not isinstance(message, DataInSlot):
            self._consumed_inline(into, message.seq)
        elif message.seq in into.in_slots:
            self._consumed_slot(into, message.seq)
        what = f"payload {message.seq} could not be taken in; the log of its receiver says why"
        self._fail(into.lane.edge.turn, TransferFailed(f"{_name(into.lane.edge)}: {what}"))

    def _open(self, into: _LaneIn, message: DataReady | DataInSlot) -> None:
        seq = message.seq
        if isinstance(message, DataReady):
            payload, give_back = message.payload, self._consumed_inline
        else:
            give_back = self._consumed_slot
            try:
                payload = self._incoming.open(Parcel(message.head, message.slot, into.lane.edge.target))
            except TransferFailed as error:
                self._refuse(into, seq, error.message)
                return
        release = Release(give_back, into, seq)
        self._deliver(Delivery(into.lane, payload, release))

    def _consumed_inline(self, into: _LaneIn, seq: int) -> None:
        with self._lock:
            due = into.arrivals.consumed(seq, at_once=False)
        if due and not into.ended:
            self._acknowledge(into.lane.sender, DataAck(into.lane.edge, due))

    def _consumed_slot(self, into: _LaneIn, seq: int) -> None:
        self._acknowledge(into.lane.sender, DataAck(into.lane.edge, self._slot_free(into, seq)))

    def _refuse(self, into: _LaneIn, seq: int, reason: str) -> None:
        others = tuple(s for s in self._slot_free(into, seq) if s != seq)
        self._acknowledge(into.lane.sender, DataAck(into.lane.edge, (seq,), "failed", reason))
        if others:
            self._acknowledge(into.lane.sender, DataAck(into.lane.edge, others))

    def _slot_free(self, into: _LaneIn, seq: int) -> tuple[int, ...]:
        self._incoming.done(into.in_slots[seq])
        with self._lock:
            del into.in_slots[seq]
            if into.ended and not into.in_slots:
                self._lanes.pop(into.key, None)
            return into.arrivals.consumed(seq, at_once=True)


def _name(edge: Edge) -> str:
    return f"{edge.source or 'client'} → {edge.target or 'client'}"
