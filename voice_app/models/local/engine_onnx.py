"""The packaged brain as a model: packed rows in, hidden rows and logits out, KV in pages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from voice_app.models.local.brain_files import BrainFiles
from voice_app.models.local.onnx_session import onnx_session
from voice_app.models.local.paged_attention import HEAD_DIM, PAGE_SIZE, attend, rotate_and_store, scratch


@dataclass(frozen=True, slots=True)
class Chunk:
    """`count` new positions of one sequence, from position `start` on; position p has its KV in page
    `pages[p // PAGE_SIZE]`."""

    start: int
    count: int
    pages: Sequence[int]


class Engine:
    """Weights and KV pages. Not for two threads at once."""

    page_size = PAGE_SIZE

    def __init__(self, files: BrainFiles, num_pages: int, max_positions: int, threads: int) -> None:
        self.shape = files.shape
        self.num_pages = num_pages
        self.max_positions = max_positions
        self._first, self._head = _graph(files.first, threads), _graph(files.head, threads)
        self._between = [_graph(files.between(layer), threads) for layer in range(self.shape.layers)]
        pool = (self.shape.layers, num_pages, self.shape.kv_heads, PAGE_SIZE, HEAD_DIM)
        self._keys = np.zeros(pool, np.float32)
        self._values = np.zeros(pool, np.float32)
        self._scratch = scratch(self.shape.heads // self.shape.kv_heads, max_positions)
        inverse = self.shape.rope_base ** (-np.arange(HEAD_DIM // 2) * 2 / HEAD_DIM)
        angles = np.outer(np.arange(max_positions), inverse)
        self._cosine, self._sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def forward(self, x: np.ndarray, chunks: Sequence[Chunk]) -> np.ndarray:
        """The model's normed output [rows, width] for the inputs `x` [rows, width], the chunks' positions
        one after the other. Writes their KV."""
        where = _Layout.of(chunks)
        cosine, sine = self._cosine[where.positions], self._sine[where.positions]
        heads, kv_heads = self.shape.heads, self.shape.kv_heads
        attended = np.empty((len(x), heads * HEAD_DIM), np.float32)
        (qkv,) = self._first(x)
        for layer, dense in enumerate(self._between):
            keys, values = self._keys[layer], self._values[layer]
            rotate_and_store(
                qkv, cosine, sine, heads, kv_heads, where.row_pages, where.row_slots, keys, values
            )
            attend(
                qkv, heads, kv_heads, where.firsts, where.starts, where.counts, where.tables,
                keys, values, *self._scratch, attended,
            )  # fmt: skip
            x, *qkv_next = dense(x, attended)
            qkv = qkv_next[0] if qkv_next else qkv
        return x

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """[rows, vocab] for rows that `forward` gave."""
        return self._head(hidden)[0]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the rows of a packed batch belong, as arrays for `paged_attention`."""

    firsts: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    tables: np.ndarray
    positions: np.ndarray
    row_pages: np.ndarray
    row_slots: np.ndarray

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> "_Layout":
        counts = np.array([chunk.count for chunk in chunks])
        starts = np.array([chunk.start for chunk in chunks])
        tables = np.zeros((len(chunks), max(len(chunk.pages) for chunk in chunks)), np.int64)
        for row, chunk in enumerate(chunks):
            tables[row, : len(chunk.pages)] = chunk.pages
        firsts = np.cumsum(counts) - counts
        owner = np.repeat(np.arange(len(chunks)), counts)
        positions = np.arange(len(owner)) - firsts[owner] + starts[owner]
        row_pages = tables[owner, positions // PAGE_SIZE]
        return cls(firsts, starts, counts, tables, positions, row_pages, positions % PAGE_SIZE)


def _graph(path: Path, threads: int) -> Callable[..., list[np.ndarray]]:
    """The graph at `path` as a function of its inputs in order."""
    session = onnx_session(path, threads, arena=False)
    names = [value.name for value in session.get_inputs()]

    def run(*inputs: np.ndarray) -> list[np.ndarray]:
        return cast(list[np.ndarray], session.run(None, dict(zip(names, inputs, strict=True))))

    return run
