"""Payloads to bytes and back."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from voice_app import messages as m
from voice_app.pipeline.transport.codec import ALIGN, Decoder, encode, pack_frame, unpack_frame

_DTYPES = st.sampled_from(["f2", "f4", "f8", "i8", "i4", "u2", "u1", "i1", "?", "c8"])
_ARRAYS = hnp.arrays(_DTYPES, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9))
_MEDIA = m.Media("k", "audio")


def _embeddings(rows: np.ndarray, deepstack: np.ndarray | None) -> m.Embeddings:
    return m.Embeddings(_MEDIA, rows, ids=(1, 2), deepstack=deepstack, text="ü", grid=(1, 2, 3))


@given(_ARRAYS, st.none() | _ARRAYS)
def test_arrays_come_back_equal_by_either_way(rows: np.ndarray, deepstack: np.ndarray | None) -> None:
    payload = _embeddings(rows, deepstack)
    encoded = encode(payload)
    slot = bytearray(encoded.size)
    encoded.write(slot)
    head, tail = unpack_frame(bytes(pack_frame(encoded.head, encoded)))
    for back in (
        Decoder(m.StagePayload).decode(encoded.head, slot),
        Decoder(m.StagePayload).decode(head, tail),
    ):
        assert isinstance(back, m.Embeddings)
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
        encoded = encode(_embeddings(rows, None))
        slot = bytearray(encoded.size)
        encoded.write(slot)
        back = Decoder(m.EdgePayload).decode(encoded.head, slot)
        assert isinstance(back, m.Embeddings)
        assert (back.rows == rows).all()


def test_arrays_are_aligned_views_without_a_copy() -> None:
    encoded = encode(_embeddings(np.ones(3, np.uint8), np.ones((2, 5), np.float64)))
    slot = bytearray(encoded.size)
    encoded.write(slot)
    back = Decoder(m.EdgePayload).decode(encoded.head, slot)
    assert isinstance(back, m.Embeddings)
    assert back.deepstack is not None
    assert [offset % ALIGN for offset, _ in encoded.arrays] == [0, 0]
    slot[:] = bytes(len(slot))
    assert not back.rows.any()
    assert not back.deepstack.any()


def test_inline_arrays_start_aligned_and_cannot_be_written() -> None:
    for text in ("", "x", "yy", "a longer one"):
        encoded = encode(m.Embeddings(_MEDIA, np.ones((7, 3), np.float32), text=text))
        head, tail = unpack_frame(bytes(pack_frame(encoded.head, encoded)))
        back = Decoder(m.EdgePayload).decode(head, tail)
        assert isinstance(back, m.Embeddings)
        assert back.rows.ctypes.data % 16 == 0
        with pytest.raises(ValueError, match="read-only"):
            back.rows[0] = 0


@pytest.mark.parametrize("foreign", [np.array([object()]), np.array(["text"]), np.zeros(2, "i4,f4")])
def test_only_plain_numbers_cross(foreign: np.ndarray) -> None:
    with pytest.raises(TypeError, match="plain numbers"):
        encode(_embeddings(foreign, None))


@pytest.mark.parametrize(
    "reference",
    [
        ["<f4", [1000], 0],
        ["<f4", [4], 1 << 40],
        ["<f4", [4], -4],
        ["<f4", [-1], 0],
        ["|O", [1], 0],
        ["nonsense", [1], 0],
        ["<f4", "four", 0],
        ["<f4", [4]],
        [],
        "text",
        None,
        {"a": 1},
        3,
    ],
)
def test_references_that_make_no_sense_are_refused(reference: object) -> None:
    head = msgspec.msgpack.encode(
        {"type": "mel_frames", "media": _MEDIA, "frames": reference, "seconds": 1.0}
    )
    with pytest.raises(msgspec.ValidationError):
        Decoder(m.EdgePayload).decode(head, bytes(64))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_a_value_error(data: bytes) -> None:
    try:
        head, tail = unpack_frame(data)
    except ValueError:
        return
    assert 4 + len(head) + len(tail) <= len(data)
