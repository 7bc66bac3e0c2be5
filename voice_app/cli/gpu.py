"""Whether models can run on a GPU here, found out without torch, whose import takes seconds."""

import ctypes
import importlib.util
import runpy
from pathlib import Path


def usable() -> bool:
    """Whether the installed torch is built for CUDA and the driver shows a device (CUDA_VISIBLE_DEVICES
    counts)."""
    return _built_for_cuda() and _devices() > 0


def _built_for_cuda() -> bool:
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        return False
    return runpy.run_path(str(Path(torch.origin).with_name("version.py"))).get("cuda") is not None


def _devices() -> int:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value
