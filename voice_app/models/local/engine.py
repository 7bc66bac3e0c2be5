"""What a brain's model offers to the thinker: packed rows in, hidden rows and logits out, KV in pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class Chunk:
    """`count` new positions of one sequence, from position `start` on; position p has its KV in page
    `pages[p // page_size]`."""

    start: int
    count: int
    pages: Sequence[int]


class Engine(Protocol):
    """Weights and KV pages. Not for two threads at once."""

    page_size: int
    num_pages: int
    max_positions: int
    width: int
    vocab: int
    exact: bool
    """Whether a row is the same bit for bit whatever else is computed with it."""

    def embed(self, ids: Sequence[int]) -> np.ndarray:
        """float32 [n, width]: the input embeddings of `ids`; the caller's own."""
        ...

    def forward(self, x: np.ndarray, chunks: Sequence[Chunk]) -> np.ndarray:
        """The model's last hidden rows [n, width], float32, for the inputs `x` [n, width]: the chunks'
        positions one after the other. Writes their KV; that of the positions before each chunk is there."""
        ...

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """float32 [n, vocab] for rows that `forward` gave."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the rows of a packed batch belong. Per chunk s: its first row, its first position, its count and
    its page table, padded; per row: its position, its page and its slot in that page."""

    firsts: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    tables: np.ndarray
    positions: np.ndarray
    row_pages: np.ndarray
    row_slots: np.ndarray

    @classmethod
    def of(cls, chunks: Sequence[Chunk], page_size: int) -> "Layout":
        counts = np.array([chunk.count for chunk in chunks])
        starts = np.array([chunk.start for chunk in chunks])
        tables = np.zeros((len(chunks), max(len(chunk.pages) for chunk in chunks)), np.int64)
        for row, chunk in enumerate(chunks):
            tables[row, : len(chunk.pages)] = chunk.pages
        firsts = np.cumsum(counts) - counts
        owner = np.repeat(np.arange(len(chunks)), counts)
        positions = np.arange(len(owner)) - firsts[owner] + starts[owner]
        row_pages = tables[owner, positions // page_size]
        return cls(firsts, starts, counts, tables, positions, row_pages, positions % page_size)
