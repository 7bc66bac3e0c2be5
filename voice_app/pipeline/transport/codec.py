"""Arrays in messages: as bytes within the msgpack, or set aside in a buffer of their own.

    in the message   bytes: a head of dtype and shape, the numbers   small arrays; `inliner`, `read_inline`
    set aside        [dtype, offset, *shape]   the numbers lie in one buffer; `set_aside` and `AsideDecoder`

Arrays set aside are read back as views of their buffer. Nothing is ever pickled: only plain numbers cross.
"""

import struct
import threading
from collections.abc import Callable

import msgspec
import numpy as np

from voice_app.arrays import Array, on_host

ALIGN = 64
"""Arrays start at multiples of this within their buffer: a cache line, and what SIMD loads like."""

_KINDS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
_DTYPES = tuple(dict.fromkeys(np.dtype(order + kind) for order in "<>" for kind in _KINDS))
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
"""Plain numbers. Object and structured dtypes never cross a process boundary."""

_ALIGN_INLINE = 16
_VECTOR = struct.Struct(f"<BB{_ALIGN_INLINE - 2}x")
"""Head of an array in a message: the dtype's number, and that of the dimensions. A vector has as many numbers
as follow; for others the shape comes next, and a head is always a multiple of _ALIGN_INLINE long."""
_VECTORS = {dtype: _VECTOR.pack(code, 1) for dtype, code in _CODES.items()}

Bytes = bytes | bytearray | memoryview


_SMALL = 64 * 1024
"""An array of up to so many bytes is copied twice: that takes less than having numpy look at a slot."""


class TooLargeInline(Exception):
    """An array is larger than what may travel within a message."""


def inliner(limit: int | None = None) -> Callable[[object], bytes]:
    """An encoder's `enc_hook` that puts arrays with their numbers into the message. It raises TooLargeInline
    above `limit` bytes, TypeError for what is no array of plain numbers."""

    def inline(value: object) -> bytes:
        array = value if isinstance(value, np.ndarray) else on_host(value)
        head = _VECTORS.get(array.dtype)
        if head is None:
            raise _foreign(array)
        if limit is not None and array.nbytes > limit:
            raise TooLargeInline
        if array.ndim != 1:
            head = _shaped_head(array)
        return head + array.tobytes()

    return inline


def read_inline(kind: type, value: object) -> Array:
    """For a decoder's `dec_hook`: the array again, read-only."""
    # ValueError comes out of msgspec as a ValidationError that names the field.
    if kind is not np.ndarray or not isinstance(value, bytes) or len(value) < _ALIGN_INLINE:
        raise ValueError("not an array")
    if value[0] >= len(_DTYPES):
        raise ValueError("not an array of plain numbers")
    dtype = _DTYPES[value[0]]
    if value[1] == 1:
        return np.frombuffer(value, dtype, -1, _ALIGN_INLINE)
    return _read_shaped(value, dtype)


def _shaped_head(array: Array) -> bytes:
    shape = struct.pack(f"<{array.ndim}Q", *array.shape)
    return _VECTOR.pack(_CODES[array.dtype], array.ndim) + shape + bytes(-len(shape) % _ALIGN_INLINE)


def _read_shaped(value: bytes, dtype: np.dtype) -> Array:
    dimensions = value[1]
    start = _ALIGN_INLINE + -(-8 * dimensions // _ALIGN_INLINE) * _ALIGN_INLINE
    if len(value) < start:
        raise ValueError("an array's shape is missing")
    shape = struct.unpack_from(f"<{dimensions}Q", value, _ALIGN_INLINE)
    return np.frombuffer(value, dtype, -1, start).reshape(shape)


class Aside(msgspec.Struct, gc=False):
    """A payload's `head`, and its `arrays` by their offset in a buffer of `size` bytes."""

    head: bytes
    arrays: list[tuple[int, Array]]
    size: int

    def write(self, buffer: bytearray | memoryview) -> None:
        """Copy the arrays into `buffer`, which holds at least `size` bytes."""
        for offset, array in self.arrays:
            if array.nbytes <= _SMALL:
                buffer[offset : offset + array.nbytes] = array.tobytes()
            else:
                np.ndarray(array.shape, array.dtype, buffer, offset)[...] = array


def set_aside(payload: object) -> Aside:
    """Encode a message struct without its arrays. Raises TypeError for what is not plain numbers."""
    return _this_thread.encoder.set_aside(payload)


class _AsideEncoder:
    """`set_aside`, for one thread."""

    def __init__(self) -> None:
        self._arrays: list[tuple[int, Array]] = []
        self._size = 0
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._take)

    def set_aside(self, payload: object) -> Aside:
        self._arrays = arrays = []
        self._size = 0
        try:
            head = self._encoder.encode(payload)
            return Aside(head, arrays, self._size)
        finally:
            self._arrays = []

    def _take(self, value: object) -> tuple[int, ...]:
        array = value if isinstance(value, np.ndarray) else on_host(value)
        code = _CODES.get(array.dtype)
        if code is None:
            raise _foreign(array)
        offset = aligned(self._size)
        self._arrays.append((offset, array))
        self._size = offset + array.nbytes
        return (code, offset, *array.shape)


class _ThisThread(threading.local):
    def __init__(self) -> None:
        self.encoder = _AsideEncoder()


_this_thread = _ThisThread()
"""Making an encoder takes longer than using it."""


class AsideDecoder:
    """Undoes `set_aside` for payloads of type `kind`: a struct, or a union of tagged ones. Not for several
    threads."""

    def __init__(self, kind: object) -> None:
        self._buffer: Bytes = b""
        self._decoder = msgspec.msgpack.Decoder(kind, dec_hook=self._view)

    def decode(self, head: Bytes, buffer: Bytes) -> object:
        """The payload, its arrays views of `buffer` (read-only if that is). Raises msgspec.DecodeError for
        anything malformed."""
        self._buffer = buffer
        try:
            return self._decoder.decode(head)
        finally:
            self._buffer = b""

    def _view(self, kind: type, value: object) -> object:
        if kind is not np.ndarray or not isinstance(value, list) or len(value) < 2:
            raise ValueError("not an array reference")
        for number in value:
            # numpy checks a shape against the buffer, but takes negative lengths.
            if not isinstance(number, int) or number < 0:
                raise ValueError("an array reference has lengths and positions only")
        code, offset, *shape = value
        if code >= len(_DTYPES):
            raise ValueError("not an array of plain numbers")
        if offset > len(self._buffer):
            raise ValueError("an array reference points beyond its buffer")
        return np.ndarray(shape, _DTYPES[code], self._buffer, offset)


def aligned(size: int) -> int:
    """Where the next array starts after `size` bytes."""
    return -(-size // ALIGN) * ALIGN


def _foreign(array: Array) -> TypeError:
    return TypeError(f"an array of {array.dtype} cannot cross an edge; send arrays of plain numbers")
