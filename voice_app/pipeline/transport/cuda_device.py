"""A GPU of this machine, for CUDA IPC: tensors and streams by torch, memory that can be shared by the driver.

Torch's own sharing keeps a count in a file of /dev/shm for each tensor, which a killed process leaves; and
memory of its allocator is a part of a larger piece, or of a kind that cannot be exported.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from voice_app.errors import ConfigError
from voice_app.pipeline.transport.cuda_ipc import ITEM_SIZES, Described, DeviceError

_HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1
"""The flag of cuIpcOpenMemHandle."""

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.float16,
        torch.bfloat16,
        torch.int32,
        torch.float32,
        torch.int64,
        torch.float64,
    )
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
assert set(_DTYPES) == set(ITEM_SIZES)


class _Handle(ctypes.Structure):
    """CUipcMemHandle, which the driver takes by value."""

    _fields_ = (("bytes", ctypes.c_ubyte * _HANDLE_BYTES),)


class CudaDevice:
    """A `Device`. `index`: as in "cuda:N"."""

    def __init__(self, index: int) -> None:
        """Raises ConfigError: there is no such GPU."""
        count = torch.cuda.device_count()
        if index >= count:
            raise ConfigError(
                f"device cuda:{index}: this machine has {count} CUDA devices; choose another layout, "
                "such as cpu",
                param="layout",
            )
        self.index = index
        self._device = torch.device("cuda", index)
        # Also makes torch's context of the GPU, which the driver's calls share.
        self._stream = torch.cuda.Stream(self._device)
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._context = ctypes.c_void_p()
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def reaches(self, index: int) -> bool:
        return index == self.index or (
            torch.cuda.can_device_access_peer(self.index, index)
            and torch.cuda.can_device_access_peer(index, self.index)
        )

    def describe(self, value: object) -> Described | None:
        if not isinstance(value, torch.Tensor) or value.device != self._device:
            return None
        name = _NAMES.get(value.dtype)
        return Described(name, tuple(value.shape)) if name is not None else None

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        with self._current():
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def release(self, address: int) -> None:
        with self._current():
            self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def export(self, address: int) -> bytes:
        handle = _Handle()
        with self._current():
            self._call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(address))
        return bytes(handle)

    def attach(self, handle: bytes) -> int:
        if len(handle) != _HANDLE_BYTES:
            raise DeviceError(f"a handle of {len(handle)} bytes")
        address = ctypes.c_uint64()
        with self._current():
            self._call(
                "cuIpcOpenMemHandle_v2",
                ctypes.byref(address),
                _Handle.from_buffer_copy(handle),
                ctypes.c_uint(_LAZY_PEER_ACCESS),
            )
        return address.value

    def detach(self, address: int) -> None:
        with self._current():
            self._call("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def store(self, address: int, tensors: Sequence[tuple[int, object]]) -> None:
        with self._current(), torch.cuda.stream(self._stream):
            for offset, tensor in tensors:
                assert isinstance(tensor, torch.Tensor)
                with _out_of_memory():
                    flat = tensor.contiguous()
                self._copy(address + offset, flat.data_ptr(), flat.nbytes)
            self._wait()

    def load(self, address: int, size: int) -> object:
        with self._current(), torch.cuda.stream(self._stream):
            with _out_of_memory():
                loaded = torch.empty(size, dtype=torch.uint8, device=self._device)
            self._copy(loaded.data_ptr(), address, size)
            self._wait()
        return loaded

    def view(self, loaded: object, offset: int, described: Described) -> object:
        assert isinstance(loaded, torch.Tensor)
        dtype = _DTYPES[described.dtype]
        if not described.nbytes:
            return loaded.new_empty(described.shape, dtype=dtype)
        return loaded[offset : offset + described.nbytes].view(dtype).reshape(described.shape)

    def _copy(self, target: int, source: int, size: int) -> None:
        if size:
            self._call(
                "cuMemcpyAsync",
                ctypes.c_uint64(target),
                ctypes.c_uint64(source),
                ctypes.c_size_t(size),
                ctypes.c_void_p(self._stream.cuda_stream),
            )

    def _wait(self) -> None:
        """Until what this thread gave the stream is done."""
        done = torch.cuda.Event()
        done.record(self._stream)
        done.synchronize()

    @contextmanager
    def _current(self) -> Iterator[None]:
        """The driver takes the context from the thread; torch leaves it be where it has nothing to do."""
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _call(self, name: str, *arguments: object) -> None:
        code = self._driver[name](*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self._driver["cuGetErrorName"](ctypes.c_int(code), ctypes.byref(text))
            raise DeviceError(f"{name}: {(text.value or b'unknown').decode()}")


@contextmanager
def _out_of_memory() -> Iterator[None]:
    """What torch raises for a full GPU, as the transport knows it: one transfer fails."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise DeviceError(f"the GPU is full: {str(error).partition(chr(10))[0]}") from error
