"""Payloads as bytes: a msgpack head, and the arrays' bytes beside it.

An array in the head is only a reference (dtype, shape, offset); its bytes lie in one buffer, each
array aligned, and are read back as views of that buffer. Whoever keeps a view keeps the buffer.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from voice_app.messages import Array

ALIGN = 64
"""Arrays start at multiples of this within their buffer: a cache line, and what SIMD loads like."""

_KINDS = "biufc"
"""numpy's kinds of plain numbers. Object and structured dtypes never cross a process boundary."""

Bytes = bytes | bytearray | memoryview


def aligned(size: int) -> int:
    """`size` rounded up so that another array may follow."""
    return -(-size // ALIGN) * ALIGN


@dataclass(frozen=True, slots=True)
class Encoded:
    """A payload on its way: `head` names `arrays` by their offset in a buffer of `size` bytes."""

    head: bytes
    arrays: tuple[tuple[int, Array], ...]
    size: int

    def write(self, buffer: Bytes) -> None:
        """Copy the arrays into `buffer`, which holds at least `size` bytes."""
        for offset, array in self.arrays:
            np.ndarray(array.shape, array.dtype, buffer, offset)[...] = array


def encode(payload: object) -> Encoded:
    """Encode a message struct. Raises TypeError for an array of objects or another foreign value."""
    arrays: list[tuple[int, Array]] = []
    size = 0

    def set_aside(value: object) -> object:
        nonlocal size
        if not isinstance(value, np.ndarray) or value.dtype.kind not in _KINDS:
            raise TypeError(f"{type(value).__name__} cannot cross an edge; send arrays of plain numbers")
        offset = size
        arrays.append((offset, value))
        size = aligned(offset + value.nbytes)
        return (value.dtype.str, value.shape, offset)

    head = msgspec.msgpack.Encoder(enc_hook=set_aside).encode(payload)
    return Encoded(head, tuple(arrays), size)


class Decoder:
    """Decodes payloads of type `kind`: a struct, or a union of tagged ones. Not for several threads."""

    def __init__(self, kind: object) -> None:
        self._buffer: Bytes = b""
        hook: Callable[[type, object], object] = self._view
        self._decoder = msgspec.msgpack.Decoder(kind, dec_hook=hook)

    def decode(self, head: Bytes, buffer: Bytes) -> object:
        """The payload, its arrays read-only views of `buffer` (if that is itself read-only).
        Raises msgspec.ValidationError or msgspec.DecodeError for anything malformed."""
        self._buffer = buffer
        try:
            return self._decoder.decode(head)
        finally:
            self._buffer = b""

    def _view(self, kind: type, value: object) -> object:
        # ValueError and TypeError come out of msgspec as a ValidationError that names the field.
        if kind is not np.ndarray or not isinstance(value, list) or len(value) != 3:
            raise ValueError("not an array reference")
        name, shape, offset = value
        dtype = np.dtype(name)
        if dtype.kind not in _KINDS:
            raise ValueError(f"dtype {name} is not a plain number")
        # numpy checks the end against the buffer, but takes negative lengths and positions.
        if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in (*shape, offset)):
            raise ValueError("array shape or offset is not a count")
        return np.ndarray(shape, dtype, self._buffer, offset)


# ------------------------------------------------------------------------------------ frames on a wire

_LENGTH = struct.Struct("<I")
_FRAME_ALIGN = 16
"""A received `bytes` object starts at a multiple of 16 (less would slow SIMD loads of the arrays)."""


def pack_frame(head: bytes, tail: Encoded | None = None) -> bytes | bytearray:
    """One wire message: the length of `head`, `head`, then the arrays of `tail`."""
    if tail is None or not tail.arrays:
        return _LENGTH.pack(len(head)) + head
    start = _tail_start(len(head))
    frame = bytearray(start + tail.size)
    _LENGTH.pack_into(frame, 0, len(head))
    frame[_LENGTH.size : _LENGTH.size + len(head)] = head
    tail.write(memoryview(frame)[start:])
    return frame


def unpack_frame(frame: bytes) -> tuple[memoryview, memoryview]:
    """`pack_frame` undone: head and arrays, as views. Raises ValueError if the frame is cut short."""
    view = memoryview(frame)
    if len(view) < _LENGTH.size:
        raise ValueError("frame without a length")
    (length,) = _LENGTH.unpack_from(view)
    if _LENGTH.size + length > len(view):
        raise ValueError("frame cut short")
    return view[_LENGTH.size : _LENGTH.size + length], view[_tail_start(length) :]


def _tail_start(head_length: int) -> int:
    return -(-(_LENGTH.size + head_length) // _FRAME_ALIGN) * _FRAME_ALIGN
