"""Ray as a way of crossing an edge: an array as the argument of an actor's method. Importing this raises
ConfigError if Ray is not installed."""

import logging
import os
import subprocess
import sys
import time
from typing import Protocol, cast

import numpy as np

from voice_app.arrays import Array
from voice_app.bench.edge_ways import TIMEOUT_S, Payload, array_of
from voice_app.errors import ConfigError

try:
    import ray
except ImportError as missing:
    raise ConfigError(f"Ray is not installed ({missing}): pip install 'voice-app[ray]'") from missing

_START = "import ray; ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)"
_START_S = 60.0

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


class _Taker:
    def take(self, array: Array) -> int:
        return time.monotonic_ns()


class _Take(Protocol):
    def remote(self, array: Array) -> "ray.ObjectRef[int]": ...


class _RemoteTaker(Protocol):
    """`_Taker`, as another process sees it."""

    take: _Take


class Ray:
    """Above 100 KB an array passes through Ray's object store. Raises ConfigError if Ray does not start."""

    name = "ray"

    def __init__(self) -> None:
        _try_start()
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        self._taker = cast(_RemoteTaker, ray.remote(_Taker).remote())
        self._result = self._taker.take.remote(np.ones(1))
        self.arrived()

    def takes(self, size: int) -> bool:
        return True

    def prepare(self) -> None:
        return None

    def send(self, payload: Payload) -> None:
        self._result = self._taker.take.remote(array_of(payload))

    def arrived(self) -> int:
        return ray.get(self._result, timeout=TIMEOUT_S)

    def close(self) -> None:
        ray.shutdown()


def _try_start() -> None:
    """In a process of its own, because `ray.init` documents no exception that says it could not start."""
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _START], capture_output=True, text=True, timeout=_START_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"Ray did not start within {_START_S:.0f} s") from error
    if tried.returncode:
        last = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ConfigError(f"Ray does not start: {last}")
