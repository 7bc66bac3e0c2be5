"""The packaged brain as a model: packed rows in, hidden rows and logits out, KV in pages."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from voice_app.models.local import paged_attention
from voice_app.models.local.brain_files import BrainFiles
from voice_app.models.local.paged_attention import HEAD_DIM, PAGE_SIZE, attend, rotate_and_store


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
        self._first = _session(files.first, threads)
        self._between = [_session(files.between(i), threads) for i in range(self.shape.layers)]
        self._head = _session(files.head, threads)
        pool = (self.shape.layers, num_pages, self.shape.kv_heads, PAGE_SIZE, HEAD_DIM)
        self._keys = np.zeros(pool, np.float32)
        self._values = np.zeros(pool, np.float32)
        self._scores = np.empty(max_positions, np.float32)
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
        (qkv,) = self._first.run(None, {"x": x})
        for layer, dense in enumerate(self._between):
            keys, values = self._keys[layer], self._values[layer]
            rotate_and_store(
                qkv, cosine, sine, heads, kv_heads, where.row_pages, where.row_slots, keys, values
            )
            attend(
                qkv, heads, kv_heads, where.firsts, where.starts, where.counts, where.tables,
                keys, values, self._scores, attended,
            )  # fmt: skip
            x, *rest = dense.run(None, {"x": x, "attended": attended})
            qkv = rest[0] if rest else qkv
        return x

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """[rows, vocab] for rows that `forward` gave."""
        return self._head.run(None, {"hidden": hidden})[0]


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
        row_pages = tables[owner, positions // paged_attention.PAGE_SIZE]
        return cls(
            firsts, starts, counts, tables, positions, row_pages, positions % paged_attention.PAGE_SIZE
        )


def _session(path, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
