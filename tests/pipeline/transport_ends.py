"""Both ends of every transport, for the contract's tests; run as a module, a sender in a process of its own:
`python -m transport_ends KIND RUN FOLDER VALUES COUNT`.

The latter packs COUNT payloads of VALUES numbers each, number n all n, says where they lie, one line of
JSON each, and lives until its stdin closes.
"""

import mmap
import os
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np
import torch

from voice_app import messages as m
from voice_app.arrays import Array
from voice_app.models.qwen3_omni import arrays  # noqa: F401  (tensors have a way to the host)
from voice_app.pipeline.carriers import LocalCarrier
from voice_app.pipeline.control import Edge, Lane, lane_key
from voice_app.pipeline.credits import SlotClass, Window
from voice_app.pipeline.inlet import Delivery
from voice_app.pipeline.outlet import LaneOut
from voice_app.pipeline.transport import shm
from voice_app.pipeline.transport.base import Incoming, Outgoing, Parcel, SlotRef
from voice_app.pipeline.transport.cuda_device import CudaDevice
from voice_app.pipeline.transport.cuda_ipc import CudaIpcIn, CudaIpcOut, Described, Device, DeviceError
from voice_app.pipeline.transport.mooncake import MooncakeIn, MooncakeOut
from voice_app.pipeline.transport.shm import SharedMemoryIn, SharedMemoryOut

NODE = "sender.0"
HERE, THERE = "127.0.0.1", "127.0.0.2"
CLASSES = (SlotClass(4096, 2), SlotClass(65536, 1))
LARGE_CLASSES = (SlotClass(64 * 1024, 2), SlotClass(32 * 1024 * 1024, 3))


class Ends(ABC):
    """One transport. `folder` is a private one."""

    lends = True
    """Its data lie in slots."""

    def __init__(self, run: str, folder: Path) -> None:
        self.run = run
        self.folder = folder

    @abstractmethod
    def outgoing(self, classes: tuple[SlotClass, ...] = CLASSES) -> Outgoing: ...

    @abstractmethod
    def incoming(self, kind: object = m.StagePayload) -> Incoming: ...

    def array(self, values: np.ndarray) -> Array:
        """As stages that use this transport emit them."""
        return values

    def leftovers(self) -> list[str]:
        """What of the transport other processes can see."""
        return []

    def remove(self) -> None:
        """Do for a killed sender what the launcher, or the driver, does."""
        assert self.leftovers() == []


class SharedMemory(Ends):
    def outgoing(self, classes: tuple[SlotClass, ...] = CLASSES) -> Outgoing:
        return SharedMemoryOut(self.run, NODE, classes=classes)

    def incoming(self, kind: object = m.StagePayload) -> Incoming:
        return SharedMemoryIn(self.run, kind)

    def leftovers(self) -> list[str]:
        return [path.name for path in shm.FOLDER.glob(f"*{self.run}*")]

    def remove(self) -> None:
        shm.remove(self.run, NODE)


class Mooncake(Ends):
    def outgoing(self, classes: tuple[SlotClass, ...] = CLASSES) -> Outgoing:
        return MooncakeOut(self.run, NODE, THERE, classes=classes)

    def incoming(self, kind: object = m.StagePayload) -> Incoming:
        return MooncakeIn(self.run, kind, HERE)


class CudaIpc(Ends):
    def device(self) -> Device:
        return LoopbackDevice(0)

    def outgoing(self, classes: tuple[SlotClass, ...] = CLASSES) -> Outgoing:
        return CudaIpcOut(self.run, NODE, self.device(), classes=classes)

    def incoming(self, kind: object = m.StagePayload) -> Incoming:
        return CudaIpcIn(self.run, kind, self.device())

    def array(self, values: np.ndarray) -> Array:
        return torch.from_numpy(values.copy()).to("cuda:0")  # type: ignore[return-value]


class LoopbackDevice(CudaDevice):
    """CUDA opens no handle in the process that made it; the tests have both ends in one."""

    _own: ClassVar[dict[bytes, int]] = {}

    def export(self, address: int) -> bytes:
        handle = super().export(address)
        self._own[handle] = address
        return handle

    def attach(self, handle: bytes) -> int:
        return self._own.get(handle) or super().attach(handle)

    def detach(self, address: int) -> None:
        if address not in self._own.values():
            super().detach(address)


class FakeCudaIpc(CudaIpc):
    """CUDA IPC's own code over a device that is none."""

    def device(self) -> Device:
        return FakeDevice(self.folder)

    def array(self, values: np.ndarray) -> Array:
        return torch.from_numpy(values.copy())  # type: ignore[return-value]

    def leftovers(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]

    def remove(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()


class FakeDevice:
    """A `Device` with files for its memory, torch's CPU tensors for its tensors. It reaches GPUs 0 and 1."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._maps: dict[int, mmap.mmap] = {}
        self._paths: dict[int, Path] = {}

    def reaches(self, index: int) -> bool:
        return index < 2

    def describe(self, value: object) -> Described | None:
        if not isinstance(value, torch.Tensor):
            return None
        return Described(str(value.dtype).removeprefix("torch."), tuple(value.shape))

    def allocate(self, size: int) -> int:
        address = 1 << 40 | len(self._maps) << 32
        descriptor, name = tempfile.mkstemp(dir=self._folder)
        os.truncate(descriptor, size)
        os.close(descriptor)
        self._paths[address] = Path(name)
        return self._map(address, Path(name))

    def release(self, address: int) -> None:
        del self._maps[address]
        self._paths.pop(address).unlink()

    def export(self, address: int) -> bytes:
        return str(self._paths[address]).encode()

    def attach(self, handle: bytes) -> int:
        return self._map(1 << 41 | len(self._maps) << 32, Path(handle.decode()))

    def detach(self, address: int) -> None:
        del self._maps[address]

    def store(self, address: int, tensors: Sequence[tuple[int, object]]) -> None:
        for offset, tensor in tensors:
            assert isinstance(tensor, torch.Tensor)
            data = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
            base = self._base(address)
            self._maps[base][address + offset - base : address + offset - base + len(data)] = data

    def load(self, address: int, size: int) -> object:
        base = self._base(address)
        return torch.from_numpy(np.frombuffer(self._maps[base], np.uint8, size, address - base).copy())

    def view(self, loaded: object, offset: int, described: Described) -> object:
        assert isinstance(loaded, torch.Tensor)
        dtype = getattr(torch, described.dtype)
        if not described.nbytes:
            return loaded.new_empty(described.shape, dtype=dtype)
        return loaded[offset : offset + described.nbytes].view(dtype).reshape(described.shape)

    def _map(self, address: int, path: Path) -> int:
        try:
            with path.open("r+b") as file:
                self._maps[address] = mmap.mmap(file.fileno(), 0)
        except FileNotFoundError as error:
            raise DeviceError("its owner is gone") from error
        return address

    def _base(self, address: int) -> int:
        return max(base for base in self._maps if base <= address)


class Reference(Ends):
    """Nothing is lent: the carrier hands the object itself on."""

    lends = False

    def __init__(self, run: str, folder: Path) -> None:
        super().__init__(run, folder)
        self.carried = _Carried()

    def outgoing(self, classes: tuple[SlotClass, ...] = CLASSES) -> Outgoing:
        return self.carried

    def incoming(self, kind: object = m.StagePayload) -> Incoming:
        return self.carried


class _Carried:
    """The carrier, in the shape of both halves."""

    def __init__(self) -> None:
        self._carrier = LocalCarrier(self._deliver)
        self._carrier.outlet = self  # type: ignore[assignment]
        self._delivered: dict[int, Delivery] = {}
        self._consumed: list[int] = []
        self._lock = threading.Lock()

    def consumed(self, edge: Edge, seq: int) -> None:
        """What the carrier wants of an outlet."""
        self._consumed.append(seq)

    def _deliver(self, delivery: Delivery) -> None:
        self._delivered[len(self._delivered)] = delivery

    def wants(self, payload: object) -> bool:
        return False

    def pack(self, payload: object) -> Parcel | None:
        edge = Edge(m.TurnId("s", "t"), m.Stage.THINKER, m.Stage.TALKER_AR)
        lane = Lane(edge, "here", True, 0.0)
        out = LaneOut(lane, lane_key(lane), "here", self._carrier, Window(1), False)
        with self._lock:
            seq = len(self._delivered)
            assert self._carrier.carry(out, seq, payload, inline=False)
        return Parcel(head=b"", slot=SlotRef("reference", seq, 0, 0))

    def free(self, slot: SlotRef) -> bool:
        self._delivered[slot.index].release()
        fresh = slot.index in self._consumed
        self._consumed = [seq for seq in self._consumed if seq != slot.index]
        return fresh

    def quarantine(self, slot: SlotRef) -> None:
        return None

    def waits(self, slot: SlotRef) -> bool:
        return False

    def open(self, parcel: Parcel) -> object:
        return self._delivered[parcel.slot.index].payload

    def done(self, slot: SlotRef) -> None:
        return None

    def forget(self, sender: str) -> None:
        return None

    def close(self) -> None:
        return None


KINDS: dict[str, type[Ends]] = {
    "reference": Reference,
    "shared memory": SharedMemory,
    "Mooncake": Mooncake,
    "CUDA IPC": CudaIpc,
    "CUDA IPC without CUDA": FakeCudaIpc,
}


# ------------------------------------------------------------------------------- a process that lends


class _Lent(msgspec.Struct):
    head: bytes
    slot: SlotRef


class Sender(NamedTuple):
    """The process, and what it lends."""

    process: subprocess.Popen[bytes]
    parcels: list[Parcel]


def start(kind: str, run: str, folder: Path, values: int, count: int) -> Sender:
    """Start one and wait until it has packed."""
    command = [sys.executable, "-m", "transport_ends", kind, run, str(folder), str(values), str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(count)]
    assert all(lines), f"it ended with exit code {process.wait()}"
    lent = [msgspec.json.decode(line, type=_Lent) for line in lines]
    return Sender(process, [Parcel(head=one.head, slot=one.slot) for one in lent])


def payload(values: int, value: float, ends: Ends | None = None) -> m.MelFrames:
    """`values` numbers, all `value`."""
    numbers = np.full(values, value, np.float32)
    return m.MelFrames(m.Media("k", "audio"), ends.array(numbers) if ends else numbers, 1.0)


def _main(kind: str, run: str, folder: str, values: str, count: str) -> None:
    ends = KINDS[kind](run, Path(folder))
    pool = ends.outgoing(LARGE_CLASSES)
    for number in range(int(count)):
        parcel = pool.pack(payload(int(values), number, ends))
        assert parcel is not None
        print(msgspec.json.encode(_Lent(bytes(parcel.head), parcel.slot)).decode(), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _main(*sys.argv[1:])
