"""What is Mooncake's own: reads that stall, writes that come late, and a library that is not there."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import weakref
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
from voice_app.pipeline.transport import mooncake
from voice_app.pipeline.transport.base import Parcel
from voice_app.pipeline.transport.mooncake import STALL_S, MooncakeIn, MooncakeOut, load, new_engine

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


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A read has failed."""
    failed, read = threading.Event(), mooncake._Reader.read

    def watched(self: mooncake._Reader, peer: str, address: int, buffer: mooncake._Memory, size: int) -> bool:
        done = read(self, peer, address, buffer, size)
        if not done:
            failed.set()
        return done

    monkeypatch.setattr(mooncake._Reader, "read", watched)
    return failed


def _continues_after(given_up: threading.Event, process: subprocess.Popen[bytes]) -> threading.Thread:
    """The process, stopped now, goes on as soon as one read was given up: the next finds it well."""
    process.send_signal(signal.SIGSTOP)

    def heal() -> None:
        assert given_up.wait(60.0)
        process.send_signal(signal.SIGCONT)

    healing = threading.Thread(target=heal)
    healing.start()
    return healing


def test_a_read_that_stalls_heals_within_seconds_or_fails_its_payload_alone(
    sender: Callable[[int], Sender], into: MooncakeIn, given_up: threading.Event
) -> None:
    process, parcels = sender(2)
    assert (_values(into, parcels[1]) == 1.0).all()
    healing = _continues_after(given_up, process)
    assert (_values(into, parcels[0]) == 0.0).all(), "a short stall was not outlived"
    healing.join()
    assert into.count(SlotState.QUARANTINED) == 1, "that of the first attempt"
    into.done(parcels[0].slot)
    process.send_signal(signal.SIGSTOP)
    began = os.times().elapsed
    with pytest.raises(TransferFailed, match=rf"15.3 MB could not be read from {THERE}:\d+ over Mooncake"):
        into.open(parcels[0])
    assert STALL_S < os.times().elapsed - began < 15, "the whole transfer's limit, not the stall's"
    process.send_signal(signal.SIGCONT)
    assert (_values(into, parcels[0]) == 0.0).all()


@pytest.fixture
def gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is made to give a read up without ending it: it goes on when the sender does."""
    for name in ("PROGRESS", "STATUS"):
        monkeypatch.setenv(f"MC_TCP_{name}_TIMEOUT_SEC", "60")
    monkeypatch.setenv("MC_TRANSFER_TIMEOUT", "5")


def _learn(into: MooncakeIn, late: Sender) -> None:
    """The sender's engine is known."""
    _values(into, late.parcels[0])
    into.done(late.parcels[0].slot)


def test_a_late_write_meets_only_its_own_buffer(
    gives_up: None,
    sender: Callable[[int], Sender],
    monkeypatch: pytest.MonkeyPatch,
    given_up: threading.Event,
) -> None:
    monkeypatch.setattr(mooncake, "CUT_S", 60.0)
    into, late = MooncakeIn(RUN, m.StagePayload, HERE), sender(3)
    _learn(into, late)
    healing = _continues_after(given_up, late.process)
    taken = _values(into, late.parcels[2])
    healing.join()
    assert into.count(SlotState.QUARANTINED) == 1
    ((buffer,),) = (reader.failed for reader in into._readers)
    _until_written(np.frombuffer(buffer.view, np.float32, VALUES))
    assert (taken == 2.0).all()
    into.done(late.parcels[2].slot)
    assert (_values(into, late.parcels[1]) == 1.0).all()
    assert into.count(SlotState.QUARANTINED) == 1, "it was lent while its engine lived"
    into.close()


@pytest.mark.parametrize("engine", ["gone", "alive"])
def test_a_buffer_is_used_again_once_its_engine_is_gone(
    gives_up: None, sender: Callable[[int], Sender], monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """With the engine kept alive by the test, the buffer's next tenant is written over."""
    engines: list[object] = []

    def kept(host: str) -> mooncake._TransferEngine:
        engines.append(made := new_engine(host))
        return made

    if engine == "alive":
        monkeypatch.setattr(mooncake, "new_engine", kept)
    into, late, healthy = MooncakeIn(RUN, m.StagePayload, HERE), sender(3), sender(2)
    _learn(into, late)
    late.process.send_signal(signal.SIGSTOP)
    with pytest.raises(TransferFailed):
        into.open(late.parcels[2])
    assert (into.count(SlotState.QUARANTINED), into.count(SlotState.FREE)) == (0, 1)
    taken = _values(into, healthy.parcels[1])
    assert into.count(SlotState.FREE) == 0, "it is another buffer"
    late.process.send_signal(signal.SIGCONT)
    if engine == "alive":
        _until_written(taken)
    for _ in range(5):  # What would be written late would be written by the time that these are through.
        assert (_values(into, late.parcels[1]) == 1.0).all()
        into.done(late.parcels[1].slot)
    assert (taken == (1.0 if engine == "gone" else 2.0)).all()
    into.close()


def _until_written(values: np.ndarray) -> None:
    deadline = os.times().elapsed + 60
    while not (values == 2.0).all():
        assert os.times().elapsed < deadline, "nothing was written late: the test shows nothing"
        threading.Event().wait(0.01)


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


class Breaking:
    """An engine that raises where it should read, after it has begun to."""

    def register_memory(self, address: int, size: int) -> int:
        return 0

    def transfer_sync_read(self, peer: str, into: int, address: int, size: int) -> int:
        raise ZeroDivisionError


def test_a_read_that_breaks_gives_its_buffer_back_with_its_engine(into: MooncakeIn) -> None:
    out = MooncakeOut(RUN, "me.0", THERE)
    parcel = out.pack(transport_ends.payload(100_000, 1.0))
    assert parcel is not None
    engine = Breaking()
    gone = weakref.ref(engine)
    into._readers = [mooncake._Reader(engine)]  # type: ignore[arg-type]
    del engine
    with contextlib.suppress(ZeroDivisionError):
        into.open(parcel)
    assert gone() is None, "it may still write"
    assert (into.count(SlotState.QUARANTINED), into.count(SlotState.FREE)) == (0, 1)
    assert (_values(into, parcel) == 1.0).all()
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
