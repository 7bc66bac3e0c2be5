"""Decode steps at fixed addresses, captured in CUDA graphs: one launch where there were thousands.

A captured call reads and writes the tensors that it had when it was captured. So each batch size has
inputs of its own, which are filled before each replay; rows beyond the real ones compute in the pool's
scratch page. Without CUDA the same call runs as it is, which is how its arithmetic is tested.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import numpy as np
import torch

from voice_app.models.paged_attention import Chunk, KVPool, PackedBatch, pack_decodes

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Batch sizes that are captured; a batch takes the smallest that holds it."""
_WARM_CALLS = 2
"""Before a capture: libraries set themselves up in their first calls, which must not be captured."""

T = TypeVar("T")


class Lane:
    """A stream of its own for one stage's work, where there are streams."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        on_cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if on_cuda else None
        self.memory = torch.cuda.graph_pool_handle() if on_cuda else None
        """Of all the stage's graphs: they run one at a time, and each result is read before the next run."""
        self._entered = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Within it, the stage's work goes to its stream; all of it must, or it is not in order."""
        if self._stream is None:
            yield
            return
        if not self._entered:
            # What was loaded before came on the default stream.
            torch.cuda.synchronize(self.device)
            self._entered = True
        with torch.cuda.stream(self._stream):
            yield


class Graph(Generic[T]):
    """`call`, which takes its inputs from fixed tensors and returns tensors, captured if there is CUDA.

    To be made within the lane that will run it."""

    def __init__(self, call: Callable[[], T], lane: Lane) -> None:
        self._call = call
        self._graph: torch.cuda.CUDAGraph | None = None
        self._out: T | None = None
        if lane.memory is not None:
            for _ in range(_WARM_CALLS):
                call()
            torch.cuda.synchronize(lane.device)
            self._graph = torch.cuda.CUDAGraph()
            # Other stages of the process go on allocating from threads of their own.
            with torch.cuda.graph(self._graph, pool=lane.memory, capture_error_mode="thread_local"):
                self._out = call()

    def run(self) -> T:
        """The call's result; the next `run` overwrites it."""
        if self._graph is None or self._out is None:
            return self._call()
        self._graph.replay()
        return self._out


class DecodeInputs:
    """Fixed tensors of one decode step for up to `size` sequences of up to `positions` positions."""

    def __init__(self, pool: KVPool, size: int, positions: int) -> None:
        self._pool = pool
        pages = min(pool.pages, -(-positions // pool.page_size))
        device = pool.device
        self._tables = torch.full((size, pages), pool.scratch, dtype=torch.int32, device=device)
        self._lengths = torch.ones(size, dtype=torch.int32, device=device)
        self.positions = torch.zeros((3, size), dtype=torch.int64, device=device)
        """Rope positions [3, size]."""

    def fill(self, chunks: Sequence[Chunk], positions: np.ndarray) -> None:
        """`chunks` of one row each; `positions` [3, n] int64."""
        count, widest = len(chunks), max(len(chunk.pages) for chunk in chunks)
        tables = np.zeros((count, widest), np.int32)
        for table, chunk in zip(tables, chunks, strict=True):
            table[: len(chunk.pages)] = chunk.pages
        lengths = np.array([chunk.start + 1 for chunk in chunks], np.int32)
        self._tables[:count, :widest].copy_(torch.from_numpy(tables))
        self._tables[count:, 0] = self._pool.scratch
        self._lengths.fill_(1)
        self._lengths[:count].copy_(torch.from_numpy(lengths))
        self.positions[:, :count].copy_(torch.from_numpy(np.ascontiguousarray(positions)))

    def packed(self) -> PackedBatch:
        """To be called within the captured call."""
        return pack_decodes(self._pool, self._tables, self._lengths)


def size_for(count: int) -> int | None:
    """The captured size that holds `count` rows; None if there is none so large."""
    return next((size for size in SIZES if size >= count), None)
