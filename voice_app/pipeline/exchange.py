"""A process's part in the hand-off: its outlets, its inlet, and the messages between them and others."""

import time
from collections.abc import Callable, Mapping
from typing import get_args

from voice_app.errors import TransferFailed, VoiceAppError
from voice_app.messages import Stage, StageEvent, StageTiming, TurnId, TurnRequest
from voice_app.pipeline import graph
from voice_app.pipeline.carriers import Deliver, LocalCarrier, RemoteCarrier
from voice_app.pipeline.control import (
    SERVER,
    AckRequest,
    Control,
    DataAck,
    DataInSlot,
    DataReady,
    HandOffStats,
    Malformed,
    PeerDown,
    PeerUp,
)
from voice_app.pipeline.fence import Fence
from voice_app.pipeline.inlet import Inlet
from voice_app.pipeline.links import BEAT_S, CUT_S
from voice_app.pipeline.outlet import Carrier, Outlet, Route
from voice_app.pipeline.transport.base import Incoming, Outgoing
from voice_app.pipeline.wire import Wire

Pools = Callable[[Stage | None, Stage, str], Outgoing | None]
"""Where large payloads lie on their way from a stage (None: the client) to one in another node; None: within
their messages."""

TICK_S = 0.25
"""How often deadlines are looked at while a turn is open. An idle process does not wake."""


class Exchange:
    """`places` names the nodes of each stage, several where it has replicas; `deliver` gets what arrives for
    a stage of this process (or for the client), `fail` the turns that the hand-off lost."""

    def __init__(
        self,
        node: str,
        places: Mapping[Stage, tuple[str, ...]],
        wire: Wire,
        pools: Pools,
        incoming: Incoming,
        deliver: Deliver,
        fail: Callable[[TurnId, VoiceAppError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._places = places
        self._wire = wire
        self._pools = pools
        self._deliver = deliver
        self._fail = fail
        self._clock = clock
        self._ticked = 0.0
        self._listens_since = 0.0
        self.cut_off: dict[str, float] = {}
        """Nodes on other hosts that were not heard of for longer than CUT_S, and for how many seconds."""
        self._outlets: dict[Stage | None, Outlet] = {}
        self._remote: list[RemoteCarrier] = []
        self.fence = Fence()
        self.inlet = Inlet(self.fence, incoming, self._acknowledge, deliver, fail)

    def outlet(self, source: Stage | None, wake: Callable[[], None]) -> Outlet:
        """Make the sending end of `source` (None: the client)."""
        routes = _routes(source)
        targets = {target for spoken in routes.values() for target in spoken[True]}
        carriers = {target: self._carriers(source, target) for target in targets}
        outlet = Outlet(self._node, source, carriers, routes, self.fence, self._clock, wake, self._fail)
        for carrier in (carrier for there in carriers.values() for carrier in there.values()):
            if isinstance(carrier, LocalCarrier):
                carrier.outlet = outlet
        self._outlets[source] = outlet
        return outlet

    def handle(self, message: Control) -> bool:
        """Take a message of the hand-off; False: it is for somebody else. For the receiving thread."""
        try:
            match message:
                case DataReady() | DataInSlot():
                    self.inlet.ready(message)
                case DataAck():
                    self._acked(message)
                case AckRequest():
                    self.inlet.asked(message)
                case PeerUp():
                    self._wire.connect(message.node, message.address)
                case PeerDown():
                    self.peer_down(message.node)
                case _:
                    return False
        except Malformed as error:
            self._wire.dropped(error)
        return True

    def end(self, turn: TurnId) -> dict[Stage, StageTiming]:
        """The turn is over: raise its fence, drop what waits; returns what its stages here took."""
        self.fence.raise_above(turn)
        timings = {source: outlet.end(turn) for source, outlet in self._outlets.items()}
        self.inlet.ended(turn)
        return {s: timing for s, timing in timings.items() if s is not None and timing is not None}

    def peer_down(self, node: str) -> None:
        """The process `node` is gone: what it was lent is free."""
        self._wire.disconnect(node)
        for outlet in self._outlets.values():
            outlet.node_gone(node)
        self.inlet.peer_down(node)
        self._retry()

    def tick(self) -> bool:
        """Look at deadlines; at most every TICK_S: True if it did."""
        now = self._clock()
        if now - self._ticked < TICK_S:
            return False
        if now - self._ticked > 2 * BEAT_S:
            # It may have been us who did not listen: the others get time to be heard again.
            self._listens_since = now
        self._ticked = now
        listened = now - self._listens_since > 2 * BEAT_S
        self.cut_off = self._wire.silent(CUT_S) if listened else {}
        for outlet in self._outlets.values():
            outlet.tick(now)
            for node, silent_s in self.cut_off.items():
                outlet.cut(node, silent_s)
        return True

    @property
    def busy(self) -> bool:
        """Whether there are deadlines to look at: `tick` wants to be called."""
        return any(len(outlet) for outlet in self._outlets.values()) or any(c.lent for c in self._remote)

    def stats(self) -> HandOffStats:
        """Current figures."""
        return HandOffStats(
            turns=sum(len(outlet) for outlet in self._outlets.values()),
            arriving=len(self.inlet),
            lent=sum(carrier.lent for carrier in self._remote),
            quarantined=sum(carrier.quarantined for carrier in self._remote),
            malformed=self._wire.malformed,
            stale=self.inlet.stale,
            repeated=self.inlet.repeated,
        )

    def _carriers(self, source: Stage | None, target: Stage | None) -> dict[str, Carrier]:
        nodes = (SERVER,) if target is None else self._places[target]
        # A turn that is in a replica is in it with all of the worker's stages.
        here = [node for node in nodes if node == self._node]
        return {node: self._carrier(source, target, node) for node in here or nodes}

    def _carrier(self, source: Stage | None, target: Stage | None, node: str) -> Carrier:
        if node == self._node:
            return LocalCarrier(self._deliver)
        # The client's consumer may hold an event as long as it likes: it must not hold a slot.
        pool = None if target is None else self._pools(source, target, node)
        carrier = RemoteCarrier(node, self._wire, pool)
        self._remote.append(carrier)
        return carrier

    def _acked(self, ack: DataAck) -> None:
        outlet = self._outlets.get(ack.edge.source)
        if outlet is not None:
            outlet.acked(ack)
            self._retry()

    def _retry(self) -> None:
        if any(carrier.refused for carrier in self._remote):
            for carrier in self._remote:
                carrier.refused = False
            for outlet in self._outlets.values():
                outlet.retry()

    def _acknowledge(self, node: str, ack: DataAck) -> None:
        try:
            self._wire.send(node, ack)
        except TransferFailed:
            return  # The sender is gone, or will ask again.


def _routes(source: Stage | None) -> dict[type, Route]:
    if source is None:
        return {TurnRequest: ((graph.ENTRY,), (graph.ENTRY,))}
    routes: dict[type, Route] = dict.fromkeys(get_args(StageEvent), ((None,), (None,)))
    for edge in graph.edges_out(source):
        for payload in edge.payloads:
            written = graph.targets(source, payload, speech=False)
            routes[payload] = (written, graph.targets(source, payload, speech=True))
    return routes
