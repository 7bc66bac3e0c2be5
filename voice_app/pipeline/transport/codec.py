"""Arrays in messages: as bytes within the msgpack, or set aside in a buffer of their own.

    in the message   [dtype, shape, bytes]    small arrays; `inline` and `read_inline`
    set aside        [dtype, shape, offset]   the bytes lie in one buffer; `set_aside` and `AsideDecoder`

Arrays set aside are read back as views of their buffer. Nothing is ever pickled: only plain numbers cross.
"""

import msgspec
import numpy as np

from voice_app.messages import Array, on_host

ALIGN = 64
"""Arrays start at multiples of this within their buffer: a cache line, and what SIMD loads like."""

_KINDS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
_DTYPES = {dtype.str: dtype for order in "<>" for kind in _KINDS if (dtype := np.dtype(order + kind))}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
"""Plain numbers. Object and structured dtypes never cross a process boundary."""

Bytes = bytes | bytearray | memoryview


class TooLargeInline(Exception):
    """An array is larger than what may travel within a message."""


def inline(value: object, limit: int | None = None) -> tuple[str, tuple[int, ...], bytes]:
    """For an encoder's `enc_hook`: an array with its bytes. Raises TooLargeInline above `limit` bytes,
    TypeError for what is no array of plain numbers."""
    name, array = _host_array(value)
    if limit is not None and array.nbytes > limit:
        raise TooLargeInline
    return (name, array.shape, array.tobytes())


def read_inline(kind: type, value: object) -> object:
    """For a decoder's `dec_hook`: the array again, read-only."""
    # ValueError and TypeError come out of msgspec as a ValidationError that names the field.
    if kind is not np.ndarray or not isinstance(value, list) or len(value) != 3:
        raise ValueError("not an array")
    name, shape, data = value
    if not isinstance(data, bytes):
        raise ValueError("array without bytes")
    array = np.frombuffer(data, _dtype(name))
    # A vector, that is nearly always: its one length is right if it is that of the bytes.
    return array if shape == [array.size] else array.reshape(_lengths(shape))


class Aside(msgspec.Struct, gc=False):
    """A payload's `head`, and its `arrays` by their offset in a buffer of `size` bytes."""

    head: bytes
    arrays: list[tuple[int, Array]]
    size: int

    def write(self, buffer: Bytes) -> None:
        """Copy the arrays into `buffer`, which holds at least `size` bytes."""
        for offset, array in self.arrays:
            np.ndarray(array.shape, array.dtype, buffer, offset)[...] = array


def set_aside(payload: object) -> Aside:
    """Encode a message struct without its arrays. Raises TypeError for what is not plain numbers."""
    arrays: list[tuple[int, Array]] = []
    size = 0

    def take(value: object) -> object:
        nonlocal size
        name, array = _host_array(value)
        offset = aligned(size)
        arrays.append((offset, array))
        size = offset + array.nbytes
        return (name, array.shape, offset)

    head = msgspec.msgpack.Encoder(enc_hook=take).encode(payload)
    return Aside(head, arrays, size)


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
        if kind is not np.ndarray or not isinstance(value, list) or len(value) != 3:
            raise ValueError("not an array reference")
        name, shape, offset = value
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("array offset is not a position")
        return np.ndarray(_lengths(shape), _dtype(name), self._buffer, offset)


def aligned(size: int) -> int:
    """Where the next array starts after `size` bytes."""
    return -(-size // ALIGN) * ALIGN


def _host_array(value: object) -> tuple[str, Array]:
    array = value if isinstance(value, np.ndarray) else on_host(value)
    name = _NAMES.get(array.dtype)
    if name is None:
        raise TypeError(f"an array of {array.dtype} cannot cross an edge; send arrays of plain numbers")
    return name, array


def _dtype(name: object) -> np.dtype:
    dtype = _DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise ValueError(f"dtype {name} is not a plain number")
    return dtype


def _lengths(shape: object) -> list[int]:
    if not isinstance(shape, list):
        raise ValueError("array shape is not a list")
    for length in shape:
        # numpy checks them against the buffer, but takes negative ones.
        if not isinstance(length, int) or length < 0:
            raise ValueError("array shape is not of lengths")
    return shape
