"""The packaged brain's engine: `brain_dense`, and `paged_attention` between its parts."""

from collections.abc import Sequence

import numpy as np

from voice_app.models.local.brain_dense import BrainDense
from voice_app.models.local.brain_files import BrainFiles
from voice_app.models.local.engine import Chunk, Layout
from voice_app.models.local.paged_attention import (
    HEAD_DIM,
    PAGE_SIZE,
    attend,
    rotary_table,
    rotate_and_store,
    scratch,
)


class OnnxEngine:
    """An `Engine` in 8 bits, with float32 KV."""

    page_size = PAGE_SIZE
    exact = True

    def __init__(self, files: BrainFiles, kv_bytes: int, max_positions: int) -> None:
        """`kv_bytes`: memory for KV pages; at least a page is made. Raises ModelFileError."""
        self.shape = shape = files.shape
        self.width, self.vocab = shape.width, shape.vocab
        self.max_positions = max_positions
        page_bytes = 2 * 4 * shape.layers * shape.kv_heads * PAGE_SIZE * HEAD_DIM
        self.num_pages = max(1, kv_bytes // page_bytes)
        self._table = files.embedding()
        self._dense = BrainDense(files)
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
        x = x.copy()
        qkv = self._dense.first(x)
        for layer in range(self.shape.layers):
            pool = layer, self._keys, self._values
            rotate_and_store(qkv, cosine, sine, heads, kv_heads, where.row_pages, where.row_slots, *pool)
            attend(
                qkv, heads, kv_heads, where.firsts, where.starts, where.counts, where.tables,
                *pool, *self._scratch, attended,
            )  # fmt: skip
            qkv = self._dense.between(layer, x, attended)
        # After the last layer, it is the model's output.
        return qkv

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        return self._dense.logits(hidden)
