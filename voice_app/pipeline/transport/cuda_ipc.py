"""CUDA IPC: slots in the memory of the sender's GPU, read by other processes of its host.

    sender    one allocation, exported by its handle    copies in, waits for the copy, then announces it
    receiver  opens the handle once                     `open` copies out, into memory of its own GPU

Each end waits for its own copy, by an event behind it: what is announced is there, and what is acknowledged
is read. So no event has to cross, and no model ever reads memory that goes with its owner's process.

Only tensors of the pool's GPU lie in slots. Arrays of the host travel in the payload's head.

Pure, but for the `Device` that it is given: nothing here imports torch, or needs CUDA.
"""

import base64
import binascii
import logging
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from voice_app.errors import TransferFailed
from voice_app.pipeline.credits import SlotClass
from voice_app.pipeline.transport.base import Parcel, SlotRef
from voice_app.pipeline.transport.codec import ALIGN, Bytes, aligned, inliner, read_inline
from voice_app.pipeline.transport.pool import KB, MB, SlotPool

log = logging.getLogger(__name__)

PREFIX = "cuda-ipc://"

SLOT_CLASSES = (
    SlotClass(16 * KB, 512),
    SlotClass(1 * MB, 8),
    SlotClass(4 * MB, 4),
    SlotClass(16 * MB, 4),
    SlotClass(64 * MB, 1),
)
"""A token's vector (4 KB) for eight whole windows; the photo's embeddings with its three deeper layers'
(12.5 MB); what the talker hears of a long prompt."""

ITEM_SIZES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
}
"""Types of numbers, by torch's names, and their bytes."""

_SEGMENT = re.compile(re.escape(PREFIX) + r"([^/]+)/([^/]+)/([A-Za-z0-9_=-]+)/([0-9a-f]+)\+([0-9a-f]+)")
"""Run, node, the allocation's handle, where in it the block starts, its size."""


class DeviceError(Exception):
    """CUDA refused; the text says what."""


class Described(NamedTuple):
    """A tensor's numbers: their type by its name in ITEM_SIZES."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return ITEM_SIZES[self.dtype] * math.prod(self.shape)


class Device(Protocol):
    """One GPU. Addresses are in its memory, or mapped into it. All may raise DeviceError."""

    def reaches(self, index: int) -> bool:
        """Whether GPU `index` and this one can read each other's memory."""
        ...

    def describe(self, value: object) -> Described | None:
        """None: `value` is no tensor of this GPU."""
        ...

    def allocate(self, size: int) -> int:
        """The address of `size` new bytes, which `export` takes."""
        ...

    def release(self, address: int) -> None:
        """Undo `allocate`."""
        ...

    def export(self, address: int) -> bytes:
        """The handle by which other processes `attach`."""
        ...

    def attach(self, handle: bytes) -> int:
        """The address of another process's memory, of this or another GPU."""
        ...

    def detach(self, address: int) -> None:
        """Undo `attach`."""
        ...

    def store(self, address: int, tensors: Sequence[tuple[int, object]]) -> None:
        """Copy each tensor to its offset from `address`. They are there when this returns."""
        ...

    def load(self, address: int, size: int) -> object:
        """A copy of the bytes at `address`, in this GPU's memory. It is there when this returns."""
        ...

    def view(self, loaded: object, offset: int, described: Described) -> object:
        """A tensor over a part of what `load` gave."""
        ...


# ------------------------------------------------------------------------------------------------- sender


@dataclass(frozen=True, slots=True)
class _Block:
    """The slots of one class: a part of the pool's allocation, which is its own."""

    name: str
    address: int

    def destroy(self) -> None:
        return None


class CudaIpcOut(SlotPool[_Block]):
    """The sender's half, for tensors of one GPU."""

    def __init__(
        self, run: str, node: str, device: Device, *, classes: tuple[SlotClass, ...] = SLOT_CLASSES
    ) -> None:
        """Raises DeviceError: no memory, or none that can be exported."""
        super().__init__(classes)
        self._device = device
        sizes = [slots.size * slots.count for slots in classes]
        self._starts = [sum(sizes[:kind]) for kind in range(len(sizes))]
        self._address: int | None = device.allocate(sum(sizes))
        try:
            handle = base64.urlsafe_b64encode(device.export(self._address)).decode()
        except DeviceError:
            device.release(self._address)
            raise
        self._origin = f"{PREFIX}{run}/{node}/{handle}"

    def wants(self, payload: object) -> bool:
        fields = msgspec.structs.asdict(payload) if isinstance(payload, msgspec.Struct) else {}
        return any(self._device.describe(value) for value in fields.values())

    def pack(self, payload: object) -> Parcel | None:
        try:
            aside = _set_aside(payload, self._device.describe)
        except TypeError as error:
            raise TransferFailed(f"{type(payload).__name__}: {error}") from error
        lent = self._lend(aside.size)
        if lent is None:
            return None
        block, slot = lent
        try:
            self._device.store(block.address + slot.offset, aside.tensors)
        except DeviceError as error:
            self.free(slot)
            raise TransferFailed(f"{type(payload).__name__}: {error}") from error
        return Parcel(head=aside.head, slot=slot)

    def close(self) -> None:
        super().close()
        if self._address is not None:
            self._device.release(self._address)
            self._address = None

    def _make(self, kind: int, size: int) -> _Block:
        assert self._address is not None
        start = self._starts[kind]
        return _Block(f"{self._origin}/{start:x}+{size:x}", self._address + start)


class _Aside(NamedTuple):
    """A payload's `head`, and its `tensors` by their offset in a slot of `size` bytes."""

    head: bytes
    tensors: list[tuple[int, object]]
    size: int


_inline = inliner()
"""For arrays that lie on the host."""


def _set_aside(payload: object, describe: Callable[[object], Described | None]) -> _Aside:
    tensors: list[tuple[int, object]] = []
    size = 0

    def take(value: object) -> object:
        nonlocal size
        described = describe(value)
        if described is None:
            return _inline(value)
        offset = aligned(size)
        tensors.append((offset, value))
        size = offset + described.nbytes
        return (described.dtype, described.shape, offset)

    head = msgspec.msgpack.Encoder(enc_hook=take).encode(payload)
    return _Aside(head, tensors, size)


# ----------------------------------------------------------------------------------------------- receiver


class CudaIpcIn:
    """The receiver's half: its tensors come to be on `device`."""

    def __init__(self, run: str, kind: object, device: Device) -> None:
        """`kind` as in `SharedMemoryIn`."""
        self._run = run
        self._device = device
        self._decoder = _Decoder(kind, device)
        self._attached: dict[tuple[str, str], int] = {}
        """Addresses by the sender and its handle."""

    def waits(self, slot: SlotRef) -> bool:
        return False

    def open(self, parcel: Parcel) -> object:
        slot = parcel.slot
        try:
            loaded = self._device.load(self._locate(slot), slot.size)
            return self._decoder.decode(parcel.head, loaded, slot.size)
        except DeviceError as error:
            raise TransferFailed(f"a payload could not be read from its sender's GPU: {error}") from error
        except msgspec.DecodeError as error:
            raise TransferFailed(f"a payload could not be read: {error}") from error

    def done(self, slot: SlotRef) -> None:
        return None  # What was opened is a copy.

    def forget(self, sender: str) -> None:
        for key in [key for key in self._attached if key[0].startswith(f"{sender}.")]:
            self._detach(key)

    def close(self) -> None:
        for key in list(self._attached):
            self._detach(key)

    def _detach(self, key: tuple[str, str]) -> None:
        try:
            self._device.detach(self._attached.pop(key))
        except DeviceError as error:
            # No turn needs it any more; what stays mapped goes with this process.
            log.warning("GPU memory of %s, which is gone, stays mapped: %s", key[0], error)

    def _locate(self, slot: SlotRef) -> int:
        found = _SEGMENT.fullmatch(slot.segment)
        if found is None or found[1] != self._run:
            raise TransferFailed(f"{slot.segment!r} is not memory of this run")
        start, size = int(found[4], 16), int(found[5], 16)
        # What lies outside would break the whole process's use of the GPU, not this transfer alone.
        if slot.offset < 0 or slot.size < 0 or slot.offset + slot.size > size:
            raise TransferFailed(f"{found[2]}: slot {slot.index} lies outside its block")
        key = (found[2], found[3])
        address = self._attached.get(key)
        if address is None:
            address = self._attached[key] = self._device.attach(_handle(found[3]))
        return address + start + slot.offset


def _handle(text: str) -> bytes:
    """Raises TransferFailed."""
    try:
        return base64.urlsafe_b64decode(text)
    except binascii.Error as error:
        raise TransferFailed(f"{text!r} is no handle of GPU memory: {error}") from error


class _Decoder:
    """Undoes `_set_aside`. Not for several threads."""

    def __init__(self, kind: object, device: Device) -> None:
        self._device = device
        self._found: list[tuple[np.ndarray, int, Described]] = []
        self._decoder = msgspec.msgpack.Decoder(kind, dec_hook=self._stand_in)

    def decode(self, head: Bytes, loaded: object, size: int) -> object:
        """Raises msgspec.DecodeError, DeviceError."""
        self._found.clear()
        payload = self._decoder.decode(head)
        for stand_in, offset, described in self._found:
            if offset + described.nbytes > size:
                raise msgspec.DecodeError("a tensor lies outside its slot")
            _replace(payload, stand_in, self._device.view(loaded, offset, described))
        return payload

    def _stand_in(self, kind: type, value: object) -> object:
        """msgspec checks that what it gets is of the field's type: an empty array keeps the place."""
        if isinstance(value, bytes):
            return read_inline(kind, value)
        try:
            dtype, shape, offset = msgspec.convert(value, tuple[str, tuple[int, ...], int])
        except msgspec.ValidationError as error:
            raise ValueError("not a tensor reference") from error
        if kind is not np.ndarray or dtype not in ITEM_SIZES or min((offset, *shape)) < 0 or offset % ALIGN:
            raise ValueError("not a tensor of plain numbers")
        stand_in = np.empty(0, np.uint8)
        self._found.append((stand_in, offset, Described(dtype, shape)))
        return stand_in


def _replace(payload: object, stand_in: np.ndarray, tensor: object) -> None:
    """Put `tensor` where `stand_in` is among the payload's own fields: it was just made, nobody has it."""
    assert isinstance(payload, msgspec.Struct)
    for field, value in msgspec.structs.asdict(payload).items():
        if value is stand_in:
            msgspec.structs.force_setattr(payload, field, tensor)
            return
    raise msgspec.DecodeError("a tensor is not one of the payload's own fields")
