"""Shared memory: slots in segments that the sender owns and receivers map read-only.

A segment is a file in /dev/shm (in the temporary folder where there is none), reserved in full when it
is made, because writing to a page that cannot be had ends the process. The owner holds `flock` on it:
a file with our prefix whose lock is free belongs to nobody and is swept at the next start.
`multiprocessing.shared_memory` is not used: there a process that only attached unlinks the segment.
"""

import errno
import fcntl
import mmap
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from voice_app.errors import TransferFailed
from voice_app.pipeline.credits import SlotClass, SlotState, SlotTable
from voice_app.pipeline.transport.base import Parcel, SlotRef
from voice_app.pipeline.transport.codec import AsideDecoder, set_aside

FOLDER = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
PREFIX = "voice-app-shm-"

_KB, _MB = 1024, 1024 * 1024
SLOT_CLASSES = (
    SlotClass(256 * _KB, 16),
    SlotClass(1 * _MB, 8),
    SlotClass(4 * _MB, 4),
    SlotClass(16 * _MB, 2),
    SlotClass(128 * _MB, 1),
)
"""The photo's patches (9.6 MB) and its embeddings (3.1 MB) have their classes; the largest takes ten
minutes of sound. A class's segment is made when it is first needed."""

_FLAGS = mmap.MAP_SHARED
if sys.platform == "linux":
    # Without it the first write into each page costs a fault: ten times the copy's own time.
    _FLAGS |= mmap.MAP_POPULATE

_UNSIZED_GRACE_S = 60.0
"""A file without size is one being made, between its creation and its lock."""


def segment_name(run: str, node: str, kind: int) -> str:
    """The file's name of class `kind` of `node` (a node's name, a dot, its incarnation)."""
    return f"{_prefix(run, node)}{kind}"


def remove(run: str, node: str, *, folder: Path = FOLDER) -> None:
    """Unlink all segments of `node`, whose process is known to be gone."""
    for path in folder.glob(f"{_prefix(run, node)}*"):
        path.unlink(missing_ok=True)


def sweep(*, folder: Path = FOLDER) -> list[str]:
    """Unlink this user's segments whose owner is gone, of whatever run; returns their names."""
    swept = []
    for path in folder.glob(f"{PREFIX}{os.getuid()}-*"):
        if _ownerless(path):
            path.unlink(missing_ok=True)
            swept.append(path.name)
    return swept


def _prefix(run: str, node: str = "") -> str:
    return f"{PREFIX}{os.getuid()}-{run}-{node}{'-' if node else ''}"


def _ownerless(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False  # Unlinked meanwhile, or not ours.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        return status.st_size > 0 or time.time() - status.st_mtime > _UNSIZED_GRACE_S
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


@dataclass(slots=True, eq=False)
class _Segment:
    """One file, locked and mapped by its owner."""

    path: Path
    descriptor: int
    memory: memoryview

    @classmethod
    def create(cls, path: Path, size: int) -> "_Segment":
        """Raises OSError; ENOSPC where the memory cannot be had."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if sys.platform == "linux":
                os.posix_fallocate(descriptor, 0, size)
            else:
                os.ftruncate(descriptor, size)
            memory = memoryview(mmap.mmap(descriptor, size, flags=_FLAGS))
        except OSError:
            path.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        return cls(path, descriptor, memory)

    def destroy(self) -> None:
        self.path.unlink(missing_ok=True)
        # The mapping goes with its last view; unmapping under a view would be an error.
        self.memory = memoryview(b"")
        os.close(self.descriptor)


class SharedMemoryOut:
    """The sender's half: a pool of slots in classes of growing size."""

    def __init__(
        self,
        run: str,
        node: str,
        *,
        classes: tuple[SlotClass, ...] = SLOT_CLASSES,
        folder: Path = FOLDER,
    ) -> None:
        self._names = [segment_name(run, node, kind) for kind in range(len(classes))]
        self._kinds = {name: kind for kind, name in enumerate(self._names)}
        self._folder = folder
        self._lock = threading.Lock()
        self._table = SlotTable(classes)
        self._segments: dict[int, _Segment] = {}
        self._closed = False

    def pack(self, payload: object) -> Parcel | None:
        try:
            aside = set_aside(payload)
        except TypeError as error:
            raise TransferFailed(f"{type(payload).__name__}: {error}") from error
        slot = self._lend(aside.size)
        if slot is None:
            return None
        start = slot.offset
        aside.write(self._segments[self._kinds[slot.segment]].memory[start : start + slot.size])
        return Parcel(head=aside.head, slot=slot)

    def free(self, slot: SlotRef) -> bool:
        with self._lock:
            return self._table.give_back(self._kinds[slot.segment], slot.index)

    def quarantine(self, slot: SlotRef) -> None:
        with self._lock:
            self._table.quarantine(self._kinds[slot.segment], slot.index)

    def count(self, state: SlotState) -> int:
        """Slots in `state`."""
        with self._lock:
            return self._table.count(state)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for segment in self._segments.values():
                segment.destroy()
            self._segments.clear()

    def _lend(self, size: int) -> SlotRef | None:
        with self._lock:
            if self._closed:
                raise TransferFailed("this process is ending")
            fitting = self._table.fitting(size)
            if not fitting:
                largest = self._table.classes[-1].size // _MB
                raise TransferFailed(f"{size / _MB:.0f} MB do not fit the largest slot of {largest} MB")
            for kind in fitting:
                index = self._table.lend(kind)
                if index is not None:
                    return self._slot(kind, index, size)
        return None

    def _slot(self, kind: int, index: int, size: int) -> SlotRef:
        slots = self._table.classes[kind]
        if kind not in self._segments:
            try:
                self._segments[kind] = _Segment.create(
                    self._folder / self._names[kind], slots.size * slots.count
                )
            except OSError as error:
                self._table.give_back(kind, index)
                raise TransferFailed(self._refusal(error, slots)) from error
        return SlotRef(self._names[kind], index, index * slots.size, size)

    def _refusal(self, error: OSError, slots: SlotClass) -> str:
        needed = f"a segment of {slots.size * slots.count // _MB} MB"
        if error.errno == errno.ENOSPC:
            return f"{self._folder} has no room for {needed}: enlarge it (Docker: --shm-size=1g)"
        return f"{self._folder} refuses {needed}: {error.strerror}"


class SharedMemoryIn:
    """The receiver's half: maps senders' segments when they are first named.

    `kind` is the type (a struct, or a union of tagged ones) of what arrives over an edge."""

    def __init__(self, run: str, kind: object, *, folder: Path = FOLDER) -> None:
        self._run_prefix = _prefix(run)
        self._folder = folder
        self._decoder = AsideDecoder(kind)
        self._maps: dict[str, memoryview] = {}

    def open(self, parcel: Parcel) -> object:
        view = self._view(parcel.slot)
        try:
            return self._decoder.decode(parcel.head, view)
        except msgspec.DecodeError as error:
            raise TransferFailed(f"a payload could not be read: {error}") from error

    def forget(self, sender: str) -> None:
        for name in [n for n in self._maps if n.startswith(f"{self._run_prefix}{sender}.")]:
            # Views that a runner still holds keep the mapping alive; it goes with the last of them.
            del self._maps[name]

    def close(self) -> None:
        self._maps.clear()

    def _view(self, slot: SlotRef) -> memoryview:
        memory = self._maps.get(slot.segment)
        if memory is None:
            memory = self._maps[slot.segment] = self._map(slot.segment)
        if slot.offset < 0 or slot.size < 0 or slot.offset + slot.size > len(memory):
            raise TransferFailed(f"{slot.segment}: slot {slot.index} lies outside the segment")
        return memory[slot.offset : slot.offset + slot.size]

    def _map(self, name: str) -> memoryview:
        if not name.startswith(self._run_prefix) or "/" in name:
            raise TransferFailed(f"{name!r} is not a segment of this run")
        try:
            descriptor = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise TransferFailed(f"{self._folder / name}: cannot be opened: {error.strerror}") from error
        try:
            size = os.fstat(descriptor).st_size
            return memoryview(mmap.mmap(descriptor, size, flags=_FLAGS, prot=mmap.PROT_READ))
        except (OSError, ValueError) as error:
            raise TransferFailed(f"{self._folder / name}: cannot be mapped: {error}") from error
        finally:
            os.close(descriptor)
