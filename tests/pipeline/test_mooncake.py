"""What is Mooncake's own: reads that stall, writes that come late, and a library that is not there."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import needs
import numpy as np
import pytest
import transport_ends
from transport_ends import HERE, THERE, Sender

from voice_app import messages as m
from voice_app.errors import ConfigError, TransferFailed
from voice_app.pipeline.credits import SlotState
from voice_app.pipeline.transport.base import Parcel
from voice_app.pipeline.transport.mooncake import STALL_S, MooncakeIn, MooncakeOut, load

RUN = f"test{os.getpid()}"
VALUES = 4_000_000
"""16 MB: more than the sockets' buffers hold, so that a stopped sender leaves a read unfinished."""


@pytest.fixture(autouse=True, scope="module")
def library() -> None:
    try:
        load()
    except ConfigError as error:
        needs.missing("Mooncake", str(error))


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[Callable[[int], Sender]]:
    started: list[Sender] = []

    def start(count: int) -> Sender:
        started.append(transport_ends.start("Mooncake", RUN, tmp_path, VALUES, count))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


@pytest.fixture
def into() -> Iterator[MooncakeIn]:
    into = MooncakeIn(RUN, m.StagePayload, HERE)
    yield into
    into.close()


def _values(into: MooncakeIn, parcel: Parcel) -> np.ndarray:
    payload = into.open(parcel)
    assert isinstance(payload, m.MelFrames)
    return payload.frames


def test_a_stalled_read_fails_its_payload_and_the_next_succeeds(
    sender: Callable[[int], Sender], into: MooncakeIn
) -> None:
    process, parcels = sender(2)
    assert (_values(into, parcels[1]) == 1.0).all()
    into.done(parcels[1].slot)
    process.send_signal(signal.SIGSTOP)
    began = os.times().elapsed
    with pytest.raises(TransferFailed, match=rf"15.3 MB could not be read from {THERE}:\d+ over Mooncake"):
        into.open(parcels[0])
    assert STALL_S <= os.times().elapsed - began < 15, "the whole transfer's limit, not the stall's"
    process.send_signal(signal.SIGCONT)
    assert (_values(into, parcels[1]) == 1.0).all()
    assert into.count(SlotState.QUARANTINED) == 0
    assert into.count(SlotState.LENT) == 1
    assert into.count(SlotState.FREE) == 0, "the failed read's buffer was not used again"


def test_a_late_write_meets_only_its_own_buffer(
    sender: Callable[[int], Sender], into: MooncakeIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library is made to give a read up, and not to end it: it goes on when the sender does. Another
    read keeps the engine in use meanwhile."""
    for name, seconds in (("PROGRESS", "60"), ("STATUS", "60")):
        monkeypatch.setenv(f"MC_TCP_{name}_TIMEOUT_SEC", seconds)
    monkeypatch.setenv("MC_TRANSFER_TIMEOUT", "5")
    into = MooncakeIn(RUN, m.StagePayload, HERE)
    late, other, healthy = sender(3), sender(2), sender(2)
    for one in (late, other):
        _values(into, one.parcels[1])
        into.done(one.parcels[1].slot)
        one.process.send_signal(signal.SIGSTOP)
    failed = threading.Event()
    reads = [threading.Thread(target=_fails, args=(into, late.parcels[2], failed))]
    reads.append(threading.Timer(3.0, _fails, (into, other.parcels[0], threading.Event())))
    for read in reads:
        read.start()
    assert failed.wait(20)
    assert into.count(SlotState.QUARANTINED) == 1
    taken = [_values(into, parcel) for parcel in healthy.parcels]
    (quarantined,) = (buffer for reader in into._retired for buffer in reader.failed)
    before = np.frombuffer(quarantined.view, np.float32, VALUES).copy()
    late.process.send_signal(signal.SIGCONT)
    deadline = threading.Event()
    while (np.frombuffer(quarantined.view, np.float32, VALUES) == before).all():
        assert reads[1].is_alive(), "nothing was written late: the test shows nothing"
        deadline.wait(0.01)
    for read in reads:
        read.join()
    assert [set(np.unique(values)) for values in taken] == [{float(n)} for n in range(2)]
    assert into.count(SlotState.QUARANTINED) == 0
    into.close()


def _fails(into: MooncakeIn, parcel: Parcel, failed: threading.Event) -> None:
    with pytest.raises(TransferFailed):
        into.open(parcel)
    failed.set()


def test_a_killed_sender_fails_at_once(sender: Callable[[int], Sender], into: MooncakeIn) -> None:
    process, parcels = sender(2)
    _values(into, parcels[1])
    process.kill()
    process.wait()
    began = os.times().elapsed
    with pytest.raises(TransferFailed, match="could not be read"):
        into.open(parcels[0])
    assert os.times().elapsed - began < STALL_S


def test_buffers_are_used_again(into: MooncakeIn) -> None:
    out = MooncakeOut(RUN, "me.0", THERE)
    for number in range(5):
        parcel = out.pack(transport_ends.payload(100_000, number))
        assert parcel is not None
        assert (_values(into, parcel) == number).all()
        into.done(parcel.slot)
        out.free(parcel.slot)
    assert into.count(SlotState.FREE) == 1
    out.close()


@pytest.mark.parametrize("missing", ["mooncake", "mooncake.engine"])
def test_without_the_library_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.delitem(sys.modules, "mooncake.engine", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError) as caught:
        MooncakeOut(RUN, "me.0", HERE)
    message = str(caught.value)
    assert "\n" not in message
    assert "pip install 'voice-app[mooncake]'" in message
    assert "apt-get install libibverbs1 librdmacm1 libnuma1" in message
