"""The transports of one worker: those that its edges need, as the router says."""

import importlib
import logging
from collections.abc import Callable, Mapping

from voice_app.errors import TransferFailed
from voice_app.messages import Stage, StagePayload
from voice_app.pipeline import graph, layout
from voice_app.pipeline.layout import Crossing, Layout
from voice_app.pipeline.transport import cuda_ipc, mooncake, shm
from voice_app.pipeline.transport.base import Incoming, Outgoing, Parcel, SlotRef, TransportKind
from voice_app.pipeline.transport.cuda_ipc import CudaIpcIn, CudaIpcOut, Device, DeviceError
from voice_app.pipeline.transport.mooncake import MooncakeIn, MooncakeOut
from voice_app.pipeline.transport.shm import SharedMemoryIn, SharedMemoryOut

log = logging.getLogger(__name__)


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


class ArrivingOnGpus:
    """An `Incoming` by CUDA IPC: a payload comes to be on the GPU of the stage that it is for."""

    def __init__(self, run: str, devices: Mapping[Stage, Device]) -> None:
        each = {id(device): CudaIpcIn(run, StagePayload, device) for device in devices.values()}
        self._each = tuple(each.values())
        self._of = {stage: each[id(device)] for stage, device in devices.items()}

    def waits(self, slot: SlotRef) -> bool:
        return False

    def open(self, parcel: Parcel) -> object:
        incoming = self._of.get(parcel.target) if parcel.target is not None else None
        if incoming is None:
            raise TransferFailed(f"nothing comes to {parcel.target or 'the client'} from GPU to GPU")
        return incoming.open(parcel)

    def done(self, slot: SlotRef) -> None:
        return None  # What was opened is a copy.

    def forget(self, sender: str) -> None:
        for incoming in self._each:
            incoming.forget(sender)

    def close(self) -> None:
        for incoming in self._each:
            incoming.close()


def _open_gpu(index: int) -> Device:
    # Imports torch, which a worker without a GPU may not need.
    return importlib.import_module("voice_app.pipeline.transport.cuda_device").CudaDevice(index)


class Transports:
    """`node` is this worker's name in `places`, `host` where other hosts reach it."""

    def __init__(
        self,
        run: str,
        node: str,
        incarnation: int,
        places: Layout,
        host: str,
        open_gpu: Callable[[int], Device] = _open_gpu,
    ) -> None:
        self._run = run
        self._label = f"{node}.{incarnation}"
        self._open_gpu = open_gpu
        self._gpus: dict[int, Device] = {}
        crossings = [c for edge in graph.EDGES for c in layout.crossings(edge, places)]
        self._out = [c for c in crossings if c.source.node == node]
        self._in = [c for c in crossings if c.target.node == node]
        self._kinds = {c.transport for c in self._out + self._in}
        self._host = host
        self._shared_memory = SharedMemoryOut(run, self._label)
        self._mooncake: MooncakeOut | None = None
        self._cuda: dict[int, CudaIpcOut | None] = {}
        """By GPU; None: it shares no memory."""
        self._warned: set[str] = set()
        self._pools: dict[tuple[Stage, Stage, str], Outgoing] = {}
        """By the edge's stages and the target's node."""
        self.incoming = Arriving()
        self.incoming.add(shm.PREFIX, SharedMemoryIn(run, StagePayload))

    def start(self) -> None:
        """Open what has to be opened before anything is sent or arrives. Raises ConfigError: this machine
        lacks what a transport needs."""
        if TransportKind.MOONCAKE in self._kinds:
            self._mooncake = MooncakeOut(self._run, self._label, self._host)
            self.incoming.add(mooncake.PREFIX, MooncakeIn(self._run, StagePayload, self._host))
        devices = {
            c.edge.target: self._gpu(c.target.gpu) for c in self._in if c.transport is TransportKind.CUDA_IPC
        }
        if devices:
            self.incoming.add(cuda_ipc.PREFIX, ArrivingOnGpus(self._run, devices))
        for crossing in self._out:
            pool = self._pool(crossing)
            if pool is not None:
                self._pools[crossing.edge.source, crossing.edge.target, crossing.target.node] = pool

    def pool(self, source: Stage | None, target: Stage, node: str) -> Outgoing:
        """As `exchange.Pools`."""
        assert source is not None
        return self._pools[source, target, node]

    def close(self) -> None:
        """Give all memory back. What only listens goes with the process."""
        self._shared_memory.close()
        for pool in self._cuda.values():
            if pool is not None:
                pool.close()
        if self._mooncake is not None:
            self._mooncake.close()

    def _pool(self, crossing: Crossing) -> Outgoing | None:
        match crossing.transport:
            case TransportKind.REFERENCE:
                return None
            case TransportKind.MOONCAKE:
                return self._mooncake
            case TransportKind.CUDA_IPC:
                return self._cuda_pool(crossing) or self._shared_memory
            case TransportKind.SHARED_MEMORY:
                return self._shared_memory

    def _cuda_pool(self, crossing: Crossing) -> CudaIpcOut | None:
        """None, and a warning, where the two GPUs share no memory."""
        source, target = crossing.source.gpu, crossing.target.gpu
        device = self._gpu(source)
        if not device.reaches(target):
            self._warn(f"GPUs {source} and {target} do not reach each other's memory")
            return None
        if source not in self._cuda:
            try:
                self._cuda[source] = CudaIpcOut(self._run, self._label, device)
            except DeviceError as error:
                self._cuda[source] = None
                self._warn(f"GPU {source} shares no memory ({error})")
        return self._cuda[source]

    def _gpu(self, index: int) -> Device:
        if index not in self._gpus:
            self._gpus[index] = self._open_gpu(index)
        return self._gpus[index]

    def _warn(self, reason: str) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            log.warning("%s: what crosses from there to another process goes by shared memory", reason)
