"""The receiving end of a process: fencing, order, decoding, and the acks that go back."""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from voice_app.errors import TransferFailed, VoiceAppError
from voice_app.messages import Stage, TurnId
from voice_app.pipeline.control import AckRequest, DataAck, DataInSlot, DataReady, Edge
from voice_app.pipeline.credits import Arrival, Arrivals, window_limit
from voice_app.pipeline.fence import Fence
from voice_app.pipeline.fetching import Fetching
from voice_app.pipeline.transport.base import Incoming, Parcel, SlotRef


@dataclass(slots=True, eq=False)
class _Lane:
    """One turn on one edge into this process."""

    edge: Edge
    sender: str
    arrivals: Arrivals
    in_slots: dict[int, SlotRef] = field(default_factory=dict)
    """Payloads on their way to their consumer, or with it, that lie in the sender's slots."""
    waiting: int = 0
    """Payloads that have to be fetched, or came after such a one: none may overtake another."""
    ended: bool = False


class Release:
    """Gives one payload back, once; further calls do nothing."""

    __slots__ = ("_give_back", "_lane", "_seq")

    def __init__(self, give_back: Callable[[Any, int], None], lane: object, seq: int) -> None:
        self._give_back: Callable[[Any, int], None] | None = give_back
        self._lane = lane
        self._seq = seq

    @property
    def done(self) -> bool:
        return self._give_back is None

    def __call__(self) -> None:
        give_back = self._give_back
        if give_back is not None:
            self._give_back = None
            give_back(self._lane, self._seq)


class Delivery(msgspec.Struct, gc=False):
    """A payload that arrived. `release` as in `StageInput`."""

    edge: Edge
    payload: object
    speech: bool
    submitted: float
    release: Release
    nodes: dict[Stage, str] = {}
    """As in `DataReady`."""


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
        self._lanes: dict[Edge, _Lane] = {}
        self.stale = 0
        """Payloads of turns that were over."""
        self.repeated = 0
        """Payloads that came twice."""

    def ready(self, message: DataReady | DataInSlot) -> None:
        """Take what a sender announced."""
        edge, seq = message.edge, message.seq
        lane = self._lanes.get(edge) or self._open_lane(edge, message.sender)
        if lane is None or lane.ended:
            self.stale += 1
            self._acknowledge(message.sender, DataAck(edge, (seq,)))
            return
        with self._lock:
            arrival = lane.arrivals.accept(seq)
        if arrival is Arrival.FRESH:
            self._take(lane, message)
        elif arrival is Arrival.AGAIN:
            self.repeated += 1
        else:
            lost = f"{edge.source or 'client'} → {edge.target or 'client'}: a payload before {seq} was lost"
            self._fail(edge.turn, TransferFailed(lost))

    def asked(self, request: AckRequest) -> None:
        """Answer a sender that misses acks. What a consumer still holds is not answered."""
        edge = request.edge
        with self._lock:
            lane = self._lanes.get(edge)
            if lane is not None:
                done, lost = lane.arrivals.answer(request.seqs)
            elif self._fence.admits(edge.turn):
                done, lost = (), request.seqs  # Nothing ever came.
            else:
                done, lost = request.seqs, ()  # The turn is over and nothing of it is held.
        if done:
            self._acknowledge(request.sender, DataAck(edge, done))
        if lost:
            self._acknowledge(request.sender, DataAck(edge, lost, "lost"))

    def ended(self, turn: TurnId) -> None:
        """The turn is over (its fence is up): forget it, but for slots that are still read."""
        with self._lock:
            for lane in [lane for lane in self._lanes.values() if lane.edge.turn == turn]:
                lane.ended = True
                if not lane.in_slots:
                    del self._lanes[lane.edge]

    def peer_down(self, node: str) -> None:
        """The process `node` is gone."""
        self._fetching.end(node)
        self._incoming.forget(node)

    def __len__(self) -> int:
        return len(self._lanes)

    def _open_lane(self, edge: Edge, sender: str) -> _Lane | None:
        if not self._fence.admits(edge.turn):
            return None
        lane = self._lanes[edge] = _Lane(edge, sender, Arrivals(window_limit(edge.source, edge.target)))
        return lane

    def _take(self, lane: _Lane, message: DataReady | DataInSlot) -> None:
        """Open it: at once, or where waiting for it holds nothing else up."""
        waits = lane.waiting > 0
        if isinstance(message, DataInSlot):
            waits = waits or self._incoming.waits(message.slot)
            with self._lock:
                lane.in_slots[message.seq] = message.slot
        if not waits:
            self._open(lane, message)
            return
        with self._lock:
            lane.waiting += 1
        self._fetching.put(lane.sender, functools.partial(self._open_aside, lane, message))

    def _open_aside(self, lane: _Lane, message: DataReady | DataInSlot) -> None:
        try:
            if not lane.ended:
                self._open(lane, message)
            elif isinstance(message, DataInSlot):
                self._consumed_slot(lane, message.seq)
        finally:
            with self._lock:
                lane.waiting -= 1

    def _open(self, lane: _Lane, message: DataReady | DataInSlot) -> None:
        seq = message.seq
        if isinstance(message, DataReady):
            payload, give_back = message.payload, self._consumed_inline
        else:
            give_back = self._consumed_slot
            try:
                payload = self._incoming.open(Parcel(head=message.head, slot=message.slot))
            except TransferFailed as error:
                self._refuse(lane, seq, error.message)
                return
        release = Release(give_back, lane, seq)
        self._deliver(Delivery(lane.edge, payload, message.speech, message.submitted, release, message.nodes))

    def _consumed_inline(self, lane: _Lane, seq: int) -> None:
        with self._lock:
            due = lane.arrivals.consumed(seq, at_once=False)
        if due and not lane.ended:
            self._acknowledge(lane.sender, DataAck(lane.edge, due))

    def _consumed_slot(self, lane: _Lane, seq: int) -> None:
        self._acknowledge(lane.sender, DataAck(lane.edge, self._slot_free(lane, seq)))

    def _refuse(self, lane: _Lane, seq: int, reason: str) -> None:
        others = tuple(s for s in self._slot_free(lane, seq) if s != seq)
        self._acknowledge(lane.sender, DataAck(lane.edge, (seq,), "failed", reason))
        if others:
            self._acknowledge(lane.sender, DataAck(lane.edge, others))

    def _slot_free(self, lane: _Lane, seq: int) -> tuple[int, ...]:
        self._incoming.done(lane.in_slots[seq])
        with self._lock:
            del lane.in_slots[seq]
            if lane.ended and not lane.in_slots:
                self._lanes.pop(lane.edge, None)
            return lane.arrivals.consumed(seq, at_once=True)
