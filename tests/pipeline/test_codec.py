"""Arrays in messages: within, and set aside."""

import struct

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from voice_app import messages as m
from voice_app.messages import Stage, TurnId
from voice_app.pipeline.control import (
    INLINE_LIMIT,
    DataReady,
    Edge,
    Lane,
    Malformed,
    from_bytes,
    lane_key,
    read_lane,
    to_bytes,
)
from voice_app.pipeline.transport.codec import ALIGN, Aside, AsideDecoder, TooLargeInline, set_aside

_DTYPES = st.sampled_from(["f2", "<f4", ">f4", "f8", "i8", "i4", ">u2", "u1", "i1", "?", "c8"])
_ARRAYS = hnp.arrays(_DTYPES, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9))
_MEDIA = m.Media("k", "audio")
_LANE = Lane(
    Edge(TurnId("s", "t"), Stage.AUDIO_ENCODER, Stage.THINKER), "sender", True, 1.5, {Stage.THINKER: "t.1"}
)


def _embeddings(rows: np.ndarray, deepstack: np.ndarray | None = None, text: str = "ü") -> m.Embeddings:
    return m.Embeddings(_MEDIA, rows, ids=(1, 2), deepstack=deepstack, text=text, grid=(1, 2, 3))


def _ready(payload: m.Embeddings) -> DataReady:
    return DataReady(lane_key(_LANE), 7, payload)


def _through_message(payload: m.Embeddings) -> m.Embeddings:
    back = from_bytes(to_bytes(_ready(payload)))
    assert isinstance(back, DataReady)
    assert isinstance(back.payload, m.Embeddings)
    assert (read_lane(back.lane), back.seq) == (_LANE, 7)
    return back.payload


def _written(aside: Aside) -> bytearray:
    slot = bytearray(aside.size)
    aside.write(slot)
    return slot


def _through_slot(payload: m.Embeddings) -> m.Embeddings:
    aside = set_aside(payload)
    back = AsideDecoder(m.StagePayload).decode(aside.head, _written(aside))
    assert isinstance(back, m.Embeddings)
    return back


@given(_ARRAYS, st.none() | _ARRAYS)
def test_arrays_come_back_equal_either_way(rows: np.ndarray, deepstack: np.ndarray | None) -> None:
    payload = _embeddings(rows, deepstack)
    for back in (_through_message(payload), _through_slot(payload)):
        for got, sent in ((back.rows, rows), (back.deepstack, deepstack)):
            assert (got is None) == (sent is None)
            if got is not None and sent is not None:
                assert got.dtype == sent.dtype
                assert got.shape == sent.shape
                assert got.tobytes() == sent.tobytes()
        assert (back.media, back.ids, back.text, back.grid) == (_MEDIA, (1, 2), "ü", (1, 2, 3))


def test_arrays_in_any_memory_order_come_back() -> None:
    base = np.arange(60, dtype=np.float32).reshape(6, 10)
    for rows in (base.T, base[::2, ::3], base[::-1]):
        assert (_through_message(_embeddings(rows)).rows == rows).all()
        assert (_through_slot(_embeddings(rows)).rows == rows).all()


def test_arrays_set_aside_are_aligned_views_without_a_copy() -> None:
    aside = set_aside(_embeddings(np.ones(3, np.uint8), np.ones((2, 5), np.float64)))
    slot = _written(aside)
    back = AsideDecoder(m.EdgePayload).decode(aside.head, slot)
    assert isinstance(back, m.Embeddings)
    assert back.deepstack is not None
    assert [offset % ALIGN for offset, _ in aside.arrays] == [0, 0]
    slot[:] = bytes(len(slot))
    assert not back.rows.any()
    assert not back.deepstack.any()


def test_arrays_in_messages_are_aligned_and_cannot_be_written() -> None:
    for text in ("", "x", "yy", "a longer one"):
        rows = _through_message(_embeddings(np.ones((7, 3), np.float32), text=text)).rows
        assert rows.ctypes.data % 16 == 0
        with pytest.raises(ValueError, match="read-only"):
            rows[0] = 0


def test_large_arrays_do_not_travel_within_a_message_unless_asked() -> None:
    most = _embeddings(np.zeros(INLINE_LIMIT, np.uint8))
    assert _through_message(most).rows.nbytes == INLINE_LIMIT
    more = _ready(_embeddings(np.zeros(INLINE_LIMIT + 1, np.uint8)))
    with pytest.raises(TooLargeInline):
        to_bytes(more)
    back = from_bytes(to_bytes(more, any_size=True))
    assert isinstance(back, DataReady)


@pytest.mark.parametrize("foreign", [np.array([object()]), np.array(["text"]), np.zeros(2, "i4,f4")])
def test_only_plain_numbers_cross(foreign: np.ndarray) -> None:
    with pytest.raises(TypeError, match="plain numbers"):
        set_aside(_embeddings(foreign))
    with pytest.raises(TypeError, match="plain numbers"):
        to_bytes(_ready(_embeddings(foreign)))


_MEL_FRAMES = m.MelFrames(_MEDIA, np.arange(4, dtype=np.float32), 1.0)


def _spoilt_head(reference: object) -> bytes:
    """The head of _MEL_FRAMES with another reference to its array."""
    head = msgspec.msgpack.decode(set_aside(_MEL_FRAMES).head)
    return msgspec.msgpack.encode(head | {"frames": reference})


def _spoilt_message(array: object) -> bytes:
    """A message of _MEL_FRAMES with something else in place of its array."""
    whole = msgspec.msgpack.decode(to_bytes(DataReady(lane_key(_LANE), 7, _MEL_FRAMES)))
    return msgspec.msgpack.encode(whole | {"payload": whole["payload"] | {"frames": array}})


_CODE, _OFFSET, _LENGTH = msgspec.msgpack.decode(set_aside(_MEL_FRAMES).head)["frames"]
_NUMBERS = msgspec.msgpack.decode(to_bytes(DataReady(b"", 7, _MEL_FRAMES)))["payload"]["frames"]
_NO_ARRAY = [[], "text", None, {"a": 1}, 3, b""]


@pytest.mark.parametrize(
    "reference",
    [
        *_NO_ARRAY,
        [_CODE],
        ["<f4", _OFFSET, _LENGTH],
        [255, _OFFSET, _LENGTH],
        [-1, _OFFSET, _LENGTH],
        [_CODE, _OFFSET, "four"],
        [_CODE, _OFFSET, [_LENGTH]],
        [_CODE, _OFFSET, -1],
        [_CODE, _OFFSET, 1.5],
        [_CODE, _OFFSET, 1000],
        [_CODE, _OFFSET, 1 << 63],
        [_CODE, _OFFSET, 1 << 40, 1 << 40],
        [_CODE, 4, _LENGTH],
        [_CODE, 1 << 40, _LENGTH],
        [_CODE, 1 << 63, _LENGTH],
        [_CODE, -4, _LENGTH],
    ],
)
def test_references_that_make_no_sense_are_refused(reference: object) -> None:
    decoder = AsideDecoder(m.EdgePayload)
    assert isinstance(decoder.decode(_spoilt_head([_CODE, _OFFSET, _LENGTH]), bytes(16)), m.MelFrames)
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(_spoilt_head(reference), bytes(16))


@pytest.mark.parametrize(
    "array",
    [
        *_NO_ARRAY,
        ["<f4", [4], bytes(16)],
        _NUMBERS[:15],
        _NUMBERS[:-1],
        b"\xff" + _NUMBERS[1:],
        # Two dimensions: with no shape, one that is cut off, too large ones.
        _NUMBERS[:1] + b"\x02" + _NUMBERS[2:16],
        _NUMBERS[:1] + b"\x02" + _NUMBERS[2:16] + bytes(15),
        _NUMBERS[:1] + b"\x02" + _NUMBERS[2:16] + struct.pack("<QQ", 2, 3) + bytes(16),
        _NUMBERS[:1] + b"\x02" + _NUMBERS[2:16] + struct.pack("<QQ", 1 << 63, 2) + bytes(16),
        _NUMBERS[:1] + b"\x02" + _NUMBERS[2:16] + struct.pack("<QQ", 1 << 62, 4) + bytes(16),
        _NUMBERS[:1] + b"\xff" + _NUMBERS[2:16] + bytes(8 * 256),
    ],
)
def test_arrays_that_make_no_sense_are_malformed(array: object) -> None:
    assert isinstance(from_bytes(_spoilt_message(_NUMBERS)), DataReady)
    shaped = _NUMBERS[:1] + b"\x02" + _NUMBERS[2:16] + struct.pack("<QQ", 2, 2) + bytes(16)
    assert isinstance(from_bytes(_spoilt_message(shaped)), DataReady)
    with pytest.raises(Malformed):
        from_bytes(_spoilt_message(array))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        from_bytes(data)
