"""What is shared memory's own; the contract's cases are in test_transport_contract.py."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from voice_app import messages as m
from voice_app.errors import TransferFailed
from voice_app.pipeline.credits import SlotClass, SlotState
from voice_app.pipeline.transport import shm
from voice_app.pipeline.transport.base import Parcel, SlotRef
from voice_app.pipeline.transport.shm import SharedMemoryIn, SharedMemoryOut

RUN = f"test{os.getpid()}"
CLASSES = (SlotClass(4096, 2), SlotClass(65536, 1))
MEDIA = m.Media("k", "audio")


def payload(size: int, value: float = 1.0) -> m.MelFrames:
    return m.MelFrames(MEDIA, np.full(size // 4, value, np.float32), 1.0)


@pytest.fixture
def pool() -> Iterator[SharedMemoryOut]:
    out = SharedMemoryOut(RUN, "me.0", classes=CLASSES)
    yield out
    out.close()
    assert not list(shm.FOLDER.glob(f"*{RUN}*"))


def _pack(pool: SharedMemoryOut, size: int, value: float = 1.0) -> Parcel:
    parcel = pool.pack(payload(size, value))
    assert parcel is not None
    return parcel


def _frames(into: SharedMemoryIn, parcel: Parcel) -> np.ndarray:
    back = into.open(parcel)
    assert isinstance(back, m.MelFrames)
    return back.frames


def test_a_received_view_is_the_slot_and_cannot_be_written(pool: SharedMemoryOut) -> None:
    into = SharedMemoryIn(RUN, m.StagePayload)
    parcel = _pack(pool, 4000, 1.0)
    frames = _frames(into, parcel)
    with pytest.raises(ValueError, match="read-only"):
        frames[0] = 5
    pool.free(parcel.slot)
    _pack(pool, 4000, 2.0)
    assert frames[0] == 2.0, "the view is not of shared memory"
    into.close()
    assert frames.sum() == 2000.0, "a view must outlive the receiver's maps"


@pytest.mark.parametrize(
    ("segment", "offset", "size"),
    [
        (shm.segment_name(RUN, "gone.0", 0), 0, 10),
        (shm.segment_name(RUN, "me.0", 0), 4096, 8192),
        (shm.segment_name(RUN, "me.0", 0), -1, 10),
        (shm.segment_name(RUN, "me.0", 0), 0, -5),
    ],
)
def test_slots_that_make_no_sense_fail_the_transfer(
    pool: SharedMemoryOut, segment: str, offset: int, size: int
) -> None:
    parcel = _pack(pool, 4000)
    with pytest.raises(TransferFailed):
        SharedMemoryIn(RUN, m.StagePayload).open(
            Parcel(head=parcel.head, slot=SlotRef(segment, 0, offset, size))
        )


def test_no_memory_left_is_said_clearly_and_only_then(tmp_path: Path) -> None:
    """Real: the kernel is asked for more than the machine has."""
    free = os.statvfs(shm.FOLDER).f_bavail * os.statvfs(shm.FOLDER).f_frsize
    classes = (SlotClass(4096, 1), SlotClass(free + (1 << 30), 1))
    pool = SharedMemoryOut(RUN, "me.0", classes=classes)
    try:
        small = _pack(pool, 4000)
        with pytest.raises(TransferFailed, match=r"/dev/shm has no room for a segment of \d+ MB: enlarge it"):
            pool.pack(payload(8000))
        assert pool.free(small.slot)
        assert _pack(pool, 4000).slot is not None
        assert len(list(shm.FOLDER.glob(f"*{RUN}*"))) == 1
    finally:
        pool.close()


def test_another_refusal_names_the_reason(monkeypatch: pytest.MonkeyPatch, pool: SharedMemoryOut) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(TransferFailed, match="Operation not permitted"):
        pool.pack(payload(4000))
    assert pool.count(SlotState.LENT) == 0


# -------------------------------------------------------------------------------------------------- sweep

_OWNER = """
import sys
import numpy as np
from voice_app import messages as m
from voice_app.pipeline.transport.shm import SharedMemoryOut
pool = SharedMemoryOut(sys.argv[1], "owner.0")
pool.pack(m.MelFrames(m.Media("k", "audio"), np.ones(1000, np.float32), 1.0))
print("there", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owner() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", _OWNER, RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
    shm.remove(RUN, "owner.0")


def test_sweep_takes_what_a_killed_owner_left_and_nothing_else(
    owner: Callable[[], subprocess.Popen[bytes]],
) -> None:
    strangers = [shm.FOLDER / f"{RUN}-not-ours", shm.FOLDER / f"{shm.PREFIX}{os.getuid() + 1}-{RUN}-x.0-0"]
    being_made = shm.FOLDER / shm.segment_name(RUN, "new.0", 0)
    name = shm.segment_name(RUN, "owner.0", 0)
    try:
        for path in strangers:
            path.write_bytes(b"x")
        being_made.touch()
        process = owner()
        assert name not in shm.sweep(), "its owner lives"
        process.kill()
        process.wait()
        assert (shm.FOLDER / name).exists()
        assert name in shm.sweep()
        assert not (shm.FOLDER / name).exists()
        assert all(path.exists() for path in strangers)
        assert being_made.exists(), "just made, not locked yet"
        os.utime(being_made, (0, 0))
        assert being_made.name in shm.sweep()
    finally:
        for path in (*strangers, being_made):
            path.unlink(missing_ok=True)


def test_a_receivers_death_leaves_the_segment_alone(pool: SharedMemoryOut) -> None:
    parcel = _pack(pool, 4000, 7.0)
    reader = (
        "import sys\nfrom voice_app.pipeline.transport.shm import SharedMemoryIn\n"
        "from voice_app.pipeline.transport.base import Parcel, SlotRef\nfrom voice_app import messages as m\n"
        f"p = Parcel(head={bytes(parcel.head)!r}, slot={parcel.slot!r})\n"
        f"print(SharedMemoryIn({RUN!r}, m.StagePayload).open(p).frames.sum())"
    )
    for _ in range(2):
        result = subprocess.run([sys.executable, "-c", reader], capture_output=True, check=True)
        assert result.stdout == b"7000.0\n"
    assert _frames(SharedMemoryIn(RUN, m.StagePayload), parcel).sum() == 7000.0
