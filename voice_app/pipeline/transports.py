"""The transports of one worker: those that its edges need, as the router says."""

from voice_app.errors import TransferFailed
from voice_app.messages import Stage, StagePayload
from voice_app.pipeline import graph, layout
from voice_app.pipeline.layout import Layout
from voice_app.pipeline.transport import mooncake, shm
from voice_app.pipeline.transport.base import Incoming, Outgoing, Parcel, SlotRef, TransportKind
from voice_app.pipeline.transport.mooncake import MooncakeIn, MooncakeOut
from voice_app.pipeline.transport.shm import SharedMemoryIn, SharedMemoryOut


class Arriving:
    """An `Incoming` over several: a slot's segment says whose it is."""

    def __init__(self) -> None:
        self._by_prefix: dict[str, Incoming] = {}

    def add(self, prefix: str, incoming: Incoming) -> None:
        """Segments whose names begin with `prefix` are `incoming`'s. Before anything arrives."""
        self._by_prefix[prefix] = incoming

    def waits(self, slot: SlotRef) -> bool:
        incoming = self._of(slot)
        return incoming is not None and incoming.waits(slot)

    def open(self, parcel: Parcel) -> object:
        incoming = self._of(parcel.slot)
        if incoming is None:
            raise TransferFailed(f"{parcel.slot.segment!r} is of no transport of this worker")
        return incoming.open(parcel)

    def done(self, slot: SlotRef) -> None:
        incoming = self._of(slot)
        if incoming is not None:
            incoming.done(slot)

    def forget(self, sender: str) -> None:
        for incoming in self._by_prefix.values():
            incoming.forget(sender)

    def close(self) -> None:
        for incoming in self._by_prefix.values():
            incoming.close()

    def _of(self, slot: SlotRef) -> Incoming | None:
        for prefix, incoming in self._by_prefix.items():
            if slot.segment.startswith(prefix):
                return incoming
        return None


class Transports:
    """`node` is this worker's name in `places`, `host` where other hosts reach it."""

    def __init__(self, run: str, node: str, incarnation: int, places: Layout, host: str) -> None:
        self._run = run
        self._label = f"{node}.{incarnation}"
        crossings = [c for edge in graph.EDGES for c in layout.crossings(edge, places)]
        self._sent = {
            (c.edge.source, c.edge.target, c.target.node): c.transport
            for c in crossings
            if c.source.node == node
        }
        self._kinds = {c.transport for c in crossings if node in (c.source.node, c.target.node)}
        self._host = host
        self._pools: dict[TransportKind, Outgoing] = {
            TransportKind.SHARED_MEMORY: SharedMemoryOut(run, self._label)
        }
        self.incoming = Arriving()
        self.incoming.add(shm.PREFIX, SharedMemoryIn(run, StagePayload))

    def start(self) -> None:
        """Open what has to be opened before anything is sent or arrives. Raises ConfigError: this machine
        lacks what a transport needs."""
        if TransportKind.MOONCAKE in self._kinds:
            self._pools[TransportKind.MOONCAKE] = MooncakeOut(self._run, self._label, self._host)
            self.incoming.add(mooncake.PREFIX, MooncakeIn(self._run, StagePayload, self._host))

    def pool(self, source: Stage | None, target: Stage, node: str) -> Outgoing:
        """As `exchange.Pools`."""
        assert source is not None
        return self._pools[self._sent[source, target, node]]

    def close(self) -> None:
        """Give all memory back. What only listens goes with the process."""
        for pool in self._pools.values():
            pool.close()
