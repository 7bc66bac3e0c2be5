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
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from voice_app.errors import TransferFailed
from voice_app.pipeline.credits import SlotClass
from voice_app.pipeline.transport.base import Parcel, SlotRef
from voice_app.pipeline.transport.codec import Aside, AsideDecoder
from voice_app.pipeline.transport.pool import MB, SLOT_CLASSES, HostPool

FOLDER = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
PREFIX = "voice-app-shm-"

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

    @property
    def name(self) -> str:
        return self.path.name

    def write(self, offset: int, aside: Aside) -> None:
        aside.write(self.memory[offset : offset + aside.size])

    def destroy(self) -> None:
        self.path.unlink(missing_ok=True)
        # The mapping goes with its last view; unmapping under a view would be an error.
        self.memory = memoryview(b"")
        os.close(self.descriptor)


class SharedMemoryOut(HostPool[_Segment]):
    """The sender's half: a pool of slots in classes of growing size."""

    def __init__(
        self,
        run: str,
        node: str,
        *,
        classes: tuple[SlotClass, ...] = SLOT_CLASSES,
        folder: Path = FOLDER,
    ) -> None:
        super().__init__(classes)
        self._run = run
        self._node = node
        self._folder = folder

    def _make(self, kind: int, size: int) -> _Segment:
        try:
            return _Segment.create(self._folder / segment_name(self._run, self._node, kind), size)
        except OSError as error:
            raise TransferFailed(self._refusal(error, size)) from error

    def _refusal(self, error: OSError, size: int) -> str:
        needed = f"a segment of {size // MB} MB"
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

    def waits(self, slot: SlotRef) -> bool:
        return False

    def open(self, parcel: Parcel) -> object:
        view = self._view(parcel.slot)
        try:
            return self._decoder.decode(parcel.head, view)
        except msgspec.DecodeError as error:
            raise TransferFailed(f"a payload could not be read: {error}") from error

    def done(self, slot: SlotRef) -> None:
        return None  # The ack says it all.

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
