"""How an outlet's payloads get to their target: by reference within the process, else over the wire."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from voice_app.errors import TransferFailed
from voice_app.pipeline.control import AckRequest, DataInSlot, DataReady, Edge, LaneKey
from voice_app.pipeline.inlet import Delivery, Release
from voice_app.pipeline.outlet import ACK_PATIENCE_S, LaneOut, Outlet
from voice_app.pipeline.transport.base import Outgoing, SlotRef
from voice_app.pipeline.transport.codec import TooLargeInline
from voice_app.pipeline.wire import Wire

Deliver = Callable[[Delivery], None]


class LocalCarrier:
    """To a stage of the same process, by reference."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self.outlet: Outlet | None = None
        """Where the credit goes back to; set once the outlet exists."""

    def carry(self, out: LaneOut, seq: int, payload: object, *, inline: bool) -> bool:
        assert self.outlet is not None
        self._deliver(Delivery(out.lane, payload, Release(self.outlet.consumed, out.lane.edge, seq)))
        return True

    def acked(self, edge: Edge, seq: int) -> None:
        return None

    def ended(self, out: LaneOut, now: float) -> None:
        return None

    def tick(self, now: float) -> None:
        return None

    def node_gone(self, node: str) -> None:
        return None

    def request_acks(self, key: LaneKey, seqs: tuple[int, ...]) -> None:
        return None


class _Lease(NamedTuple):
    """A slot that is with the receiver."""

    pool: Outgoing
    slot: SlotRef


@dataclass(slots=True, eq=False)
class _Ended:
    """A lane whose turn is over, with slots still out; `asked`: when they were last asked after."""

    key: LaneKey
    asked: float


class RemoteCarrier:
    """To the process `node`. Used under its outlet's lock. Large payloads lie in `pool`; None: they travel
    within their messages."""

    def __init__(self, node: str, wire: Wire, pool: Outgoing | None) -> None:
        self.node = node
        self._wire = wire
        self._pool = pool
        self._leases: dict[Edge, dict[int, _Lease]] = {}
        self._ended: dict[Edge, _Ended] = {}
        self.refused = False
        """A payload found no slot since this was last reset."""

    def carry(self, out: LaneOut, seq: int, payload: Any, *, inline: bool) -> bool:
        if self._pool is not None and not inline and self._pool.wants(payload):
            return self._carry_in_slot(out, seq, payload)
        message = DataReady(out.key, seq, payload)
        try:
            self._wire.send(self.node, message, any_size=inline or self._pool is None)
        except TooLargeInline:
            return self._carry_in_slot(out, seq, payload)
        return True

    def _carry_in_slot(self, out: LaneOut, seq: int, payload: object) -> bool:
        pool = self._pool
        assert pool is not None
        parcel = pool.pack(payload)
        if parcel is None:
            self.refused = True
            return False
        try:
            self._wire.send(self.node, DataInSlot(out.key, seq, parcel.head, parcel.slot))
        except TransferFailed:
            pool.free(parcel.slot)  # Nobody was told of it.
            raise
        self._leases.setdefault(out.lane.edge, {})[seq] = _Lease(pool, parcel.slot)
        return True

    def acked(self, edge: Edge, seq: int) -> None:
        leases = self._leases.get(edge)
        lease = leases.pop(seq, None) if leases else None
        if lease is not None:
            lease.pool.free(lease.slot)
        if not leases:
            self._leases.pop(edge, None)
            self._ended.pop(edge, None)

    def ended(self, out: LaneOut, now: float) -> None:
        leases = self._leases.get(out.lane.edge)
        if leases is not None:
            for lease in leases.values():
                lease.pool.quarantine(lease.slot)
            self._ended[out.lane.edge] = _Ended(out.key, now)

    def request_acks(self, key: LaneKey, seqs: tuple[int, ...]) -> None:
        try:
            self._wire.send(self.node, AckRequest(key, seqs))
        except TransferFailed:
            return  # The node is gone or stuck; its end, or the turn's deadline, settles it.

    def tick(self, now: float) -> None:
        for edge, ended in self._ended.items():
            if now - ended.asked >= ACK_PATIENCE_S:
                ended.asked = now
                self.request_acks(ended.key, tuple(self._leases[edge]))

    def node_gone(self, node: str) -> None:
        if node != self.node:
            return
        # It cannot be reading any more.
        for leases in self._leases.values():
            for lease in leases.values():
                lease.pool.free(lease.slot)
        self._leases.clear()
        self._ended.clear()

    @property
    def lent(self) -> int:
        """Slots that are with the receiver."""
        return sum(len(leases) for leases in list(self._leases.values()))

    @property
    def quarantined(self) -> int:
        """Those of them whose turns are over."""
        return sum(len(self._leases.get(edge, ())) for edge in list(self._ended))
