"""The contract of the transports (`voice_app/pipeline/transport/base.py`): the same cases over all."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import needs
import numpy as np
import pytest
import torch
import transport_ends
from transport_ends import KINDS, Ends, payload

from voice_app import messages as m
from voice_app.arrays import on_host
from voice_app.errors import ConfigError, TransferFailed
from voice_app.pipeline.control import DataInSlot, from_bytes, to_bytes
from voice_app.pipeline.transport import mooncake
from voice_app.pipeline.transport.base import Incoming, Outgoing, Parcel, SlotRef

RUN = f"test{os.getpid()}"
MEDIA = m.Media("k", "audio")
RANDOM = np.random.default_rng(5)


def _numbers(*shape: int, dtype: str = "f4") -> np.ndarray:
    return (RANDOM.standard_normal(shape) * 100).astype(dtype)


PAYLOADS: dict[str, m.StagePayload] = {
    "request": m.TurnRequest(
        m.TurnId("s", "t", 3),
        (m.Message("user", (m.TextPart("ü"), m.AudioPart(_numbers(1000), 16_000), m.ImagePart(b"\xff"))),),
    ),
    "patches": m.ImagePatches(MEDIA, _numbers(64, 24), (1, 8, 8)),
    "frames of sound": m.MelFrames(MEDIA, _numbers(128, 100)[:, ::2], 1.0),
    "no frames": m.MelFrames(MEDIA, _numbers(128, 0), 0.0),
    "prompt": m.PromptIds((m.Span((1, 2)), m.Span(media=MEDIA)), m.PromptParams(max_frames=7)),
    "embeddings": m.Embeddings(MEDIA, _numbers(13, 64, dtype="f2"), text="heard", ids=(1, 2)),
    "deep embeddings": m.Embeddings(MEDIA, _numbers(13, 64), deepstack=_numbers(3, 13, 64), grid=(1, 2, 3)),
    "token": m.TokenId(7),
    "vector": m.TokenVector(7, _numbers(2048, dtype="f2")),
    "end": m.TokenVector(None, None, "stop"),
    "hidden": m.PromptHidden(_numbers(5, 64), _numbers(5, dtype="i8")),
    "codes": m.CodeFrames(_numbers(10, 16, dtype="i8"), last=True, marks=(m.FrameMark(3, 4),)),
}
HOSTILE = [
    SlotRef("../../etc/passwd", 0, 0, 10),
    SlotRef("voice-app-shm-0-another-run-0", 0, 0, 10),
    SlotRef("mooncake://another/me.0@127.0.0.1:1/7f00", 0, 0, 10),
    SlotRef("cuda-ipc://another/me.0/AAAA/0+1000", 0, 0, 10),
    SlotRef(f"cuda-ipc://{RUN}/me.0/AAAAA/0+1000", 0, 0, 10),
    SlotRef("", 0, 0, 10),
]


@pytest.fixture(
    params=[pytest.param(kind, marks=pytest.mark.gpu if kind == "CUDA IPC" else ()) for kind in KINDS]
)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "CUDA IPC" and not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    if request.param == "Mooncake":
        try:
            mooncake.load()
        except ConfigError as error:
            needs.missing("Mooncake", str(error))
    return request.param


@pytest.fixture
def ends(kind: str, tmp_path: Path) -> Ends:
    return KINDS[kind](RUN, tmp_path)


@pytest.fixture
def lending(ends: Ends) -> Ends:
    if not ends.lends:
        pytest.skip("nothing is lent")
    return ends


@pytest.fixture
def out(ends: Ends) -> Iterator[Outgoing]:
    out = ends.outgoing()
    yield out
    out.close()
    assert ends.leftovers() == []


@pytest.fixture
def into(ends: Ends) -> Iterator[Incoming]:
    into = ends.incoming()
    yield into
    into.close()


def _pack(out: Outgoing, ends: Ends, values: int = 1000, value: float = 1.0) -> Parcel:
    parcel = out.pack(payload(values, value, ends))
    assert parcel is not None
    return parcel


def _values(into: Incoming, parcel: Parcel) -> np.ndarray:
    opened = into.open(parcel)
    assert isinstance(opened, m.MelFrames)
    return on_host(opened.frames)


def _emitted(ends: Ends, value: Any) -> Any:
    """`value` with its own arrays as stages that use this transport emit them."""
    fields = msgspec.structs.asdict(value)
    arrays = {name: ends.array(array) for name, array in fields.items() if isinstance(array, np.ndarray)}
    return msgspec.structs.replace(value, **arrays)


def _plain(value: object) -> object:
    """`value` in Python's own types."""

    def numbers(array: object) -> object:
        host = on_host(array)
        return (str(host.dtype), host.shape, host.tobytes())

    return (type(value).__name__, msgspec.to_builtins(value, enc_hook=numbers))


def _crossed(parcel: Parcel) -> Parcel:
    """As it is after the wire."""
    sent = DataInSlot(b"lane", 0, parcel.head, parcel.slot)
    back = from_bytes(to_bytes(sent))
    assert isinstance(back, DataInSlot)
    return Parcel(head=back.head, slot=back.slot)


def test_there_is_a_case_of_each_type() -> None:
    assert {type(value) for value in PAYLOADS.values()} == set(get_args(m.StagePayload))


@pytest.mark.parametrize("name", PAYLOADS)
def test_every_payload_comes_back_as_it_was(ends: Ends, out: Outgoing, into: Incoming, name: str) -> None:
    before = _plain(PAYLOADS[name])
    sent = _emitted(ends, PAYLOADS[name])
    parcel = out.pack(sent)
    assert parcel is not None
    back = into.open(_crossed(parcel) if ends.lends else parcel)
    assert _plain(back) == before
    assert _plain(sent) == before, "the sender's own data changed"
    into.done(parcel.slot)
    assert out.free(parcel.slot)
    assert _plain(PAYLOADS[name]) == before


def test_a_full_pool_makes_the_sender_wait_until_an_ack(lending: Ends, out: Outgoing, into: Incoming) -> None:
    parcels = [_pack(out, lending, value=n) for n in range(3)]  # Two of their class, one of the next.
    assert out.pack(payload(1000, 9.0, lending)) is None
    assert [_values(into, parcel)[0] for parcel in parcels] == [0.0, 1.0, 2.0]
    into.done(parcels[1].slot)
    assert out.free(parcels[1].slot)
    again = _pack(out, lending, value=9.0)
    assert again.slot.key == parcels[1].slot.key
    assert out.pack(payload(1000, 9.0, lending)) is None
    assert [_values(into, parcel)[0] for parcel in (parcels[0], again, parcels[2])] == [0.0, 9.0, 2.0]


def test_an_ack_that_comes_twice_frees_nothing_more(ends: Ends, out: Outgoing, into: Incoming) -> None:
    first, second = _pack(out, ends, value=1.0), _pack(out, ends, value=2.0)
    into.open(first)
    into.done(first.slot)
    into.done(first.slot)
    assert out.free(first.slot)
    assert not out.free(first.slot)
    assert _values(into, second)[0] == 2.0
    assert out.free(second.slot)


def test_a_late_ack_does_not_free_the_slots_next_tenant_twice(lending: Ends, out: Outgoing) -> None:
    parcels = [_pack(out, lending) for _ in range(3)]
    assert out.free(parcels[0].slot)
    assert not out.free(parcels[0].slot)
    _pack(out, lending)
    assert out.pack(payload(1000, 1.0, lending)) is None


def test_a_quarantined_slot_is_lent_to_nobody_until_it_is_safe(lending: Ends, out: Outgoing) -> None:
    parcels = [_pack(out, lending) for _ in range(3)]
    for parcel in parcels:
        out.quarantine(parcel.slot)
    assert out.pack(payload(1000, 1.0, lending)) is None
    assert out.free(parcels[0].slot)
    assert not out.free(parcels[0].slot)
    assert _pack(out, lending).slot.key == parcels[0].slot.key


def test_what_fits_no_slot_fails_its_transfer_alone(lending: Ends, out: Outgoing, into: Incoming) -> None:
    with pytest.raises(TransferFailed, match="1 MB do not fit the largest slot of 0 MB"):
        out.pack(payload(250_000, 1.0, lending))
    assert _values(into, _pack(out, lending))[0] == 1.0


def test_what_is_not_numbers_fails_its_transfer(lending: Ends, out: Outgoing) -> None:
    foreign = m.MelFrames(MEDIA, np.array([object()]), 1.0)
    with pytest.raises(TransferFailed, match=r"MelFrames: .* cannot cross an edge"):
        out.pack(foreign)
    for _ in range(3):
        _pack(out, lending)


def test_a_payload_of_another_edge_fails_its_transfer(lending: Ends, out: Outgoing) -> None:
    other = lending.incoming(m.StageEvent)
    with pytest.raises(TransferFailed, match="could not be read"):
        other.open(_pack(out, lending))
    other.close()


@pytest.mark.parametrize("slot", HOSTILE, ids=lambda slot: slot.segment.replace(RUN, "RUN"))
def test_slots_that_are_none_fail_the_transfer(
    lending: Ends, out: Outgoing, into: Incoming, slot: SlotRef
) -> None:
    with pytest.raises(TransferFailed):
        into.open(Parcel(head=_pack(out, lending).head, slot=slot))


@pytest.mark.parametrize(("offset", "size"), [(-64, 4000), (0, -1), (4096, 8192), (1 << 40, 4000)])
def test_what_lies_outside_of_its_block_fails_the_transfer(
    lending: Ends, out: Outgoing, into: Incoming, offset: int, size: int
) -> None:
    parcel = _pack(out, lending)
    slot = msgspec.structs.replace(parcel.slot, offset=offset, size=size)
    with pytest.raises(TransferFailed):
        into.open(Parcel(head=parcel.head, slot=slot))
    assert _values(into, parcel)[0] == 1.0


def test_the_receiver_cannot_change_what_the_sender_lent(
    lending: Ends, out: Outgoing, into: Incoming
) -> None:
    parcel = _pack(out, lending)
    opened = into.open(parcel)
    assert isinstance(opened, m.MelFrames)
    if isinstance(opened.frames, torch.Tensor):
        opened.frames[0] = 5.0
    else:
        with pytest.raises(ValueError, match="read-only"):
            opened.frames[0] = 5.0
    assert _values(into, parcel)[0] == 1.0


def test_a_closed_pool_sends_nothing_and_leaves_nothing(lending: Ends) -> None:
    out, into = lending.outgoing(), lending.incoming()
    parcel = _pack(out, lending)
    opened = _values(into, parcel)
    out.close()
    assert lending.leftovers() == []
    with pytest.raises(TransferFailed, match="ending"):
        out.pack(payload(1000, 1.0, lending))
    out.free(parcel.slot)
    assert opened[0] == 1.0
    into.close()
    out.close()


def test_a_killed_sender_fails_its_transfers_alone(
    lending: Ends, kind: str, tmp_path_factory: pytest.TempPathFactory, out: Outgoing, into: Incoming
) -> None:
    killed = KINDS[kind](lending.run + "x", tmp_path_factory.mktemp("killed"))
    process, parcels = transport_ends.start(kind, killed.run, killed.folder, 1000, 2)
    try:
        other = killed.incoming()
        assert _values(other, parcels[1])[0] == 1.0
    finally:
        process.kill()
        process.communicate()
        killed.remove()
    # Memory that outlives its owner may still be read; if not, the transfer says so.
    with contextlib.suppress(TransferFailed):
        assert _values(other, parcels[0])[0] == 0.0
    other.forget("sender")
    other.close()
    assert _values(into, _pack(out, lending, value=3.0))[0] == 3.0


def test_threads_send_at_once(ends: Ends, out: Outgoing, into: Incoming) -> None:
    """Four senders share three slots, each waiting for its turn; one receiver acknowledges."""
    ready: dict[int, Parcel] = {}
    freed = threading.Condition()

    def send(sender: int) -> None:
        for number in range(25):
            with freed:
                parcel = out.pack(payload(1000, 100 * sender + number, ends))
                while parcel is None:
                    assert freed.wait(60)
                    parcel = out.pack(payload(1000, 100 * sender + number, ends))
                ready[100 * sender + number] = parcel
                freed.notify_all()

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        with freed:
            assert freed.wait_for(lambda: ready, 60)
            value, parcel = ready.popitem()
        assert (_values(into, parcel) == value).all()
        into.done(parcel.slot)
        with freed:
            assert out.free(parcel.slot)
            freed.notify_all()
    for thread in threads:
        thread.join()
