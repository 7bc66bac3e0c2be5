"""The packaged brain's engine: ONNX graphs for the dense parts, `paged_attention` between them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from voice_app.models.local.brain_files import BrainFiles
from voice_app.models.local.engine import Chunk, Layout
from voice_app.models.local.onnx_session import onnx_session
from voice_app.models.local.paged_attention import HEAD_DIM, PAGE_SIZE, attend, rotate_and_store, scratch


class OnnxEngine:
    """An `Engine` with 8-bit weights and float32 KV."""

    page_size = PAGE_SIZE
    exact = True

    def __init__(self, files: BrainFiles, kv_bytes: int, max_positions: int, threads: int) -> None:
        """`kv_bytes`: memory for KV pages; at least a page is made. Raises ModelFileError."""
        self.shape = shape = files.shape
        self.width, self.vocab = shape.width, shape.vocab
        self.max_positions = max_positions
        page_bytes = 2 * 4 * shape.layers * shape.kv_heads * PAGE_SIZE * HEAD_DIM
        self.num_pages = max(1, kv_bytes // page_bytes)
        self._table = files.embedding()
        self._first, self._head = graph(files.first, threads), graph(files.head, threads)
        self._between = [graph(files.between(layer), threads) for layer in range(shape.layers)]
        # Page by page, so that memory is taken as pages come into use.
        pool = (self.num_pages, shape.layers, shape.kv_heads, PAGE_SIZE, HEAD_DIM)
        self._keys = np.zeros(pool, np.float32)
        self._values = np.zeros(pool, np.float32)
        self._scratch = scratch(shape.heads // shape.kv_heads, max_positions)
        self._cosine, self._sine = rotary_table(shape.rope_base, max_positions)

    def embed(self, ids: Sequence[int]) -> np.ndarray:
        return self._table[np.asarray(ids, np.int64)].astype(np.float32)

    def forward(self, x: np.ndarray, chunks: Sequence[Chunk]) -> np.ndarray:
        where = Layout.of(chunks, PAGE_SIZE)
        cosine, sine = self._cosine[where.positions], self._sine[where.positions]
        heads, kv_heads = self.shape.heads, self.shape.kv_heads
        attended = np.empty((len(x), heads * HEAD_DIM), np.float32)
        (qkv,) = self._first(x)
        for layer, dense in enumerate(self._between):
            pool = layer, self._keys, self._values
            rotate_and_store(qkv, cosine, sine, heads, kv_heads, where.row_pages, where.row_slots, *pool)
            attend(
                qkv, heads, kv_heads, where.firsts, where.starts, where.counts, where.tables,
                *pool, *self._scratch, attended,
            )  # fmt: skip
            x, *qkv_next = dense(x, attended)
            qkv = qkv_next[0] if qkv_next else qkv
        return x

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        return self._head(hidden)[0]


def rotary_table(base: float, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine [positions, HEAD_DIM / 2] of the rotary embedding's angles."""
    inverse = base ** (-np.arange(HEAD_DIM // 2) * 2 / HEAD_DIM)
    angles = np.outer(np.arange(positions), inverse)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def graph(path: Path, threads: int) -> Callable[..., list[np.ndarray]]:
    """The graph at `path` as a function of its inputs in order."""
    session = onnx_session(path, threads, arena=False)
    names = [value.name for value in session.get_inputs()]

    def run(*inputs: np.ndarray) -> list[np.ndarray]:
        return cast(list[np.ndarray], session.run(None, dict(zip(names, inputs, strict=True))))

    return run
