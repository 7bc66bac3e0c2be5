"""Mooncake: the sender's slots lie in registered memory, from which receivers on other hosts read.

    sender   memory of its own, registered with its engine      rpc port, data port
    receiver `open` reads a slot into a buffer of its own       transfer_sync_read

Over TCP, the peers finding each other without a metadata server ("P2PHANDSHAKE"). A read that has failed may
still write into its buffer for as long as the engine that began it lives (seen: 66 MB after the failure was
reported). Such a buffer is in quarantine until that engine is gone. So receivers read with engines of their
own, which can be replaced without taking away what is lent to others.

An engine listens on two ports of all interfaces, and whoever reaches them can read and write what is
registered: they belong into a private network.
"""

import importlib
import mmap
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import numpy as np

from voice_app.errors import ConfigError, TransferFailed
from voice_app.pipeline.credits import SlotClass, SlotState
from voice_app.pipeline.links import CUT_S
from voice_app.pipeline.transport.base import Parcel, SlotRef
from voice_app.pipeline.transport.codec import Aside, AsideDecoder
from voice_app.pipeline.transport.pool import KB, MB, SLOT_CLASSES, HostPool

PREFIX = "mooncake://"

STALL_S = 2
"""A transfer that makes no progress for so long has failed, in seconds."""

SETTINGS = {
    "MC_TCP_PROGRESS_TIMEOUT_SEC": str(STALL_S),
    "MC_TCP_STATUS_TIMEOUT_SEC": str(STALL_S),
    "MC_HANDSHAKE_CONNECT_TIMEOUT": str(STALL_S),
    # Must be above the others: what it ends goes on in the background, and writes later.
    "MC_TRANSFER_TIMEOUT": "15",
    "MC_LOG_LEVEL": "ERROR",
}
"""Environment of the library; what the operator has set stands."""

_SEGMENT = re.compile(re.escape(PREFIX) + r"([^/@]+)/([^/@]+)@(.+:\d+)/([0-9a-f]+)")
"""Run, node, the engine's address, the block's address in its process."""

_LEAST_BUFFER = 256 * KB

QUARANTINE_LIMIT = 256 * MB
"""When so much is in quarantine, the engine is replaced."""


class _TransferEngine(Protocol):
    """What of the library's engine is used. 0 is success."""

    def initialize(self, host: str, metadata: str, protocol: str, devices: str, /) -> int: ...
    def get_rpc_port(self) -> int: ...
    def register_memory(self, address: int, size: int, /) -> int: ...
    def unregister_memory(self, address: int, /) -> int: ...
    def transfer_sync_read(self, peer: str, into: int, address: int, size: int, /) -> int: ...


def load() -> Callable[[], _TransferEngine]:
    """What makes engines, its settings set. Raises ConfigError: the library, or one that it needs, is not
    there."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("mooncake.engine").TransferEngine
    except ImportError as error:
        raise ConfigError(
            f"stages on several hosts need Mooncake, which is not there ({error}): pip install "
            "'voice-app[mooncake]' and apt-get install libibverbs1 librdmacm1 libnuma1",
            param="layout",
        ) from error


def new_engine(host: str) -> _TransferEngine:
    """An engine that peers find at `host`. Raises ConfigError: as `load`, or it does not start there."""
    engine = load()()
    if engine.initialize(host, "P2PHANDSHAKE", "tcp", "") != 0:
        raise ConfigError(f"host {host}: Mooncake's transfer engine does not start there", param="layout")
    return engine


class _Memory:
    """`size` bytes outside the Python heap, given back with the last view."""

    def __init__(self, size: int) -> None:
        """Raises TransferFailed if the memory cannot be had."""
        flags = mmap.MAP_PRIVATE
        if sys.platform == "linux":
            flags |= mmap.MAP_POPULATE
        try:
            self.view = memoryview(mmap.mmap(-1, size, flags=flags))
        except OSError as error:
            raise TransferFailed(f"no memory for a buffer of {size // MB} MB: {error.strerror}") from error
        self.address: int = np.frombuffer(self.view, np.uint8).ctypes.data

    @property
    def size(self) -> int:
        return len(self.view)


# ------------------------------------------------------------------------------------------------- sender


class _Block:
    """The slots of one class in registered memory."""

    def __init__(self, engine: _TransferEngine, origin: str, size: int) -> None:
        self._engine = engine
        self._memory = _Memory(size)
        if engine.register_memory(self._memory.address, size) != 0:
            raise TransferFailed(f"Mooncake refuses a block of {size // MB} MB")
        self.name = f"{origin}/{self._memory.address:x}"

    def write(self, offset: int, aside: Aside) -> None:
        aside.write(self._memory.view[offset : offset + aside.size])

    def destroy(self) -> None:
        self._engine.unregister_memory(self._memory.address)


class MooncakeOut(HostPool[_Block]):
    """The sender's half. `host`: where receivers reach this process."""

    def __init__(
        self, run: str, node: str, host: str, *, classes: tuple[SlotClass, ...] = SLOT_CLASSES
    ) -> None:
        """Raises ConfigError."""
        super().__init__(classes)
        self._engine = new_engine(host)
        self._origin = f"{PREFIX}{run}/{node}@{_address(host, self._engine.get_rpc_port())}"

    def _make(self, kind: int, size: int) -> _Block:
        return _Block(self._engine, self._origin, size)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# ----------------------------------------------------------------------------------------------- receiver


@dataclass(slots=True, eq=False)
class _Reader:
    """An engine for one read at a time, the addresses of the buffers registered with it, and those buffers
    that a read which failed may still write to."""

    engine: _TransferEngine
    registered: set[int] = field(default_factory=set)
    failed: list[_Memory] = field(default_factory=list)

    def read(self, peer: str, address: int, buffer: _Memory, size: int) -> bool:
        """Whether `buffer` holds it; if not, the buffer is in quarantine."""
        if buffer.address not in self.registered:
            if self.engine.register_memory(buffer.address, buffer.size) != 0:
                raise TransferFailed(f"Mooncake refuses a buffer of {buffer.size / MB:.1f} MB")
            self.registered.add(buffer.address)
        done = False
        try:
            done = self.engine.transfer_sync_read(peer, buffer.address, address, size) == 0
        finally:
            # Also of a call that raised nobody knows what it began.
            if not done:
                self.failed.append(buffer)
        return done

    def close(self) -> list[_Memory]:
        """End the engine; returns the buffers that were in quarantine. Its destructor holds all of Python up
        for as long as a second."""
        del self.engine
        return self.failed

    @property
    def quarantined(self) -> int:
        """Bytes of the buffers in quarantine."""
        return sum(buffer.size for buffer in self.failed)


class MooncakeIn:
    """The receiver's half. `open` waits for the network; several threads may be in it at once, each with an
    engine of its own, because an engine that waits for one peer lets nobody speak to another.

    There is a buffer for each slot that senders have lent to this process: their pools are its bound."""

    def __init__(self, run: str, kind: object, host: str) -> None:
        """`kind` as in `SharedMemoryIn`. Raises ConfigError."""
        self._run = run
        self._kind = kind
        self._host = host
        self._lock = threading.Lock()
        self._readers = [_Reader(new_engine(host))]
        """Those that nobody reads with now."""
        self._idle: list[_Memory] = []
        self._held: dict[tuple[str, int], _Memory] = {}
        self._closed = False

    def waits(self, slot: SlotRef) -> bool:
        return True

    def open(self, parcel: Parcel) -> object:
        slot = parcel.slot
        peer, address = self._locate(slot)
        buffer = self._fetch(peer, address, slot.size)
        with self._lock:
            self._held[slot.key] = buffer
        try:
            return AsideDecoder(self._kind).decode(parcel.head, buffer.view[: slot.size].toreadonly())
        except msgspec.DecodeError as error:
            raise TransferFailed(f"a payload could not be read: {error}") from error

    def done(self, slot: SlotRef) -> None:
        with self._lock:
            buffer = self._held.pop(slot.key, None)
        if buffer is not None:
            self._give_back(buffer)

    def forget(self, sender: str) -> None:
        return None  # What was fetched from it is ours.

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._readers.clear()
            self._idle.clear()
            self._held.clear()

    def count(self, state: SlotState) -> int:
        """Buffers in `state`, while nobody reads."""
        with self._lock:
            return {
                SlotState.FREE: len(self._idle),
                SlotState.LENT: len(self._held),
                SlotState.QUARANTINED: sum(len(reader.failed) for reader in self._readers),
            }[state]

    def _locate(self, slot: SlotRef) -> tuple[str, int]:
        """The engine that has `slot`, and the slot's address in its process."""
        found = _SEGMENT.fullmatch(slot.segment)
        if found is None or found[1] != self._run:
            raise TransferFailed(f"{slot.segment!r} is not memory of this run")
        # Whether its end lies within registered memory is for the sender's engine to say.
        if slot.offset < 0 or slot.size < 0:
            raise TransferFailed(f"{slot.segment}: slot {slot.index} lies outside the block")
        return found[3], int(found[4], 16) + slot.offset

    def _fetch(self, peer: str, address: int, size: int) -> _Memory:
        """A buffer with what lies at `address`. A read that stalls is begun anew, as long as the link may
        come back; one that is refused is not."""
        if not size:
            return self._take(size)
        reader = self._borrow()
        # After several stalls an engine may refuse what comes next, though the link is back; of one that
        # broke nothing is known.
        stalled, sound, began = False, False, time.monotonic()
        try:
            while True:
                tried, buffer = time.monotonic(), self._take(size)
                if reader.read(peer, address, buffer, size):
                    sound = True
                    return buffer
                now = time.monotonic()
                refused = now - tried < STALL_S
                stalled = stalled or not refused
                if refused or now - began >= CUT_S:
                    sound = not stalled
                    raise TransferFailed(f"{size / MB:.1f} MB could not be read from {peer} over Mooncake")
        finally:
            self._return(reader, replace=not sound)

    def _borrow(self) -> _Reader:
        with self._lock:
            if self._closed:
                raise TransferFailed("this process is ending")
            if self._readers:
                return self._readers.pop()
        try:
            return _Reader(new_engine(self._host))
        except ConfigError as error:
            raise TransferFailed(error.message) from error

    def _return(self, reader: _Reader, *, replace: bool) -> None:
        if replace or reader.quarantined > QUARANTINE_LIMIT:
            self._give_back(*reader.close())
            return
        with self._lock:
            if not self._closed:
                self._readers.append(reader)

    def _take(self, size: int) -> _Memory:
        wanted = _buffer_size(size)
        with self._lock:
            for buffer in self._idle:
                if buffer.size == wanted:
                    self._idle.remove(buffer)
                    return buffer
        return _Memory(wanted)

    def _give_back(self, *buffers: _Memory) -> None:
        with self._lock:
            if not self._closed:
                self._idle.extend(buffers)


def _buffer_size(size: int) -> int:
    """Few sizes, so that buffers are used again: the powers of two."""
    return max(_LEAST_BUFFER, 1 << (size - 1).bit_length()) if size else _LEAST_BUFFER
