"""The receiving end of a process: fencing, order, decoding, and the acks that go back."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from voice_app.errors import TransferFailed, VoiceAppError
from voice_app.messages import TurnId
from voice_app.pipeline.control import AckRequest, DataAck, DataReady, Edge
from voice_app.pipeline.credits import Arrival, Arrivals, window_limit
from voice_app.pipeline.fence import Fence
from voice_app.pipeline.transport.base import Incoming, Parcel


class Release:
    """Gives one payload back, once; further calls do nothing."""

    __slots__ = ("_edge", "_give_back", "_seq", "done")

    def __init__(self, give_back: Callable[[Edge, int], None], edge: Edge, seq: int) -> None:
        self._give_back = give_back
        self._edge = edge
        self._seq = seq
        self.done = False

    def __call__(self) -> None:
        if not self.done:
            self.done = True
            self._give_back(self._edge, self._seq)


@dataclass(slots=True, eq=False)
class Delivery:
    """A payload that arrived. `release` as in `StageInput`."""

    edge: Edge
    payload: object
    speech: bool
    submitted: float
    release: Release


class Inlet:
    """All edges that enter this process from others.

    `ready`, `asked`, `ended` are for the one receiving thread; releases come from any."""

    def __init__(
        self,
        fence: Fence,
        incoming: Incoming,
        acknowledge: Callable[[DataAck], None],
        deliver: Callable[[Delivery], None],
        fail: Callable[[TurnId, VoiceAppError], None],
    ) -> None:
        self._fence = fence
        self._incoming = incoming
        self._acknowledge = acknowledge
        self._deliver = deliver
        self._fail = fail
        self._lock = threading.Lock()
        self._arrivals: dict[Edge, Arrivals] = {}
        self.stale = 0
        """Payloads of turns that were over."""
        self.repeated = 0
        """Payloads that came twice."""

    def ready(self, message: DataReady, tail: memoryview) -> None:
        """Take what a sender announced."""
        edge, seq = message.edge, message.seq
        if not self._fence.admits(edge.turn):
            self.stale += 1
            self._acknowledge(DataAck(edge, (seq,)))
            return
        with self._lock:
            arrivals = self._arrivals.get(edge)
            if arrivals is None:
                arrivals = self._arrivals[edge] = Arrivals(window_limit(edge.source, edge.target))
            arrival = arrivals.accept(seq)
        if arrival is Arrival.FRESH:
            self._open(message, tail)
        elif arrival is Arrival.AGAIN:
            self.repeated += 1
        else:
            lost = f"{edge.source or 'client'} → {edge.target or 'client'}: a payload before {seq} was lost"
            self._fail(edge.turn, TransferFailed(lost))

    def asked(self, request: AckRequest) -> None:
        """Answer a sender that misses acks. What a consumer still holds is not answered."""
        edge = request.edge
        with self._lock:
            arrivals = self._arrivals.get(edge)
            if arrivals is None:
                # Nothing ever came, or the turn is over and nothing of it is held.
                known = not self._fence.admits(edge.turn)
                done, lost = (request.seqs, ()) if known else ((), request.seqs)
            else:
                done, lost = arrivals.answer(request.seqs)
        if done:
            self._acknowledge(DataAck(edge, done))
        if lost:
            self._acknowledge(DataAck(edge, lost, "lost"))

    def ended(self, turn: TurnId) -> None:
        """The turn is over (its fence is up): forget it, but for what is still held."""
        with self._lock:
            for edge in [e for e in self._arrivals if e.turn == turn and not self._arrivals[e].holds]:
                del self._arrivals[edge]

    def __len__(self) -> int:
        return len(self._arrivals)

    def _open(self, message: DataReady, tail: memoryview) -> None:
        edge, seq = message.edge, message.seq
        try:
            payload = self._incoming.open(Parcel(head=message.payload, tail=tail, slot=message.slot))
        except TransferFailed as error:
            self._consumed(edge, seq, at_once=True, failed=error.message)
            return
        give_back = self._consumed_inline if message.slot is None else self._consumed_slot
        release = Release(give_back, edge, seq)
        self._deliver(Delivery(edge, payload, message.speech, message.submitted, release))

    def _consumed_inline(self, edge: Edge, seq: int) -> None:
        self._consumed(edge, seq, at_once=False)

    def _consumed_slot(self, edge: Edge, seq: int) -> None:
        self._consumed(edge, seq, at_once=True)

    def _consumed(self, edge: Edge, seq: int, *, at_once: bool, failed: str = "") -> None:
        with self._lock:
            arrivals = self._arrivals.get(edge)
            if arrivals is None:
                return
            due = arrivals.consumed(seq, at_once=at_once)
            if not arrivals.holds and not self._fence.admits(edge.turn):
                del self._arrivals[edge]
        if failed:
            self._acknowledge(DataAck(edge, (seq,), "failed", failed))
            due = tuple(s for s in due if s != seq)
        if due:
            self._acknowledge(DataAck(edge, due))
