"""The attention kernel: right against torch, and equal to the bit however a sequence is cut and batched."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from voice_app.models.local.engine import Chunk, Layout
from voice_app.models.local.paged_attention import (
    HEAD_DIM,
    PAGE_SIZE,
    _softmax,
    attend,
    rotate_and_store,
    scratch,
)

HEADS, KV_HEADS, PAGES, LONGEST = 6, 2, 100, 200
WIDTH = (HEADS + 2 * KV_HEADS) * HEAD_DIM


class Pool:
    """KV pages that held other things before."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.keys = rng.standard_normal((PAGES, 2, KV_HEADS, PAGE_SIZE, HEAD_DIM)).astype(np.float32)
        self.values = rng.standard_normal(self.keys.shape).astype(np.float32)
        self.scratch = scratch(HEADS // KV_HEADS, LONGEST)

    def run(self, qkv: np.ndarray, chunks: list[Chunk]) -> np.ndarray:
        """Without rotation: all angles are 0."""
        where = Layout.of(chunks, PAGE_SIZE)
        rows, out = qkv.copy(), np.empty((len(qkv), HEADS * HEAD_DIM), np.float32)
        cosine, sine = np.ones((len(qkv), HEAD_DIM // 2), np.float32), np.zeros((len(qkv), 32), np.float32)
        rotate_and_store(
            rows, cosine, sine, HEADS, KV_HEADS, where.row_pages, where.row_slots, 1, self.keys, self.values
        )
        attend(
            rows, HEADS, KV_HEADS, where.firsts, where.starts, where.counts, where.tables,
            1, self.keys, self.values, *self.scratch, out,
        )  # fmt: skip
        return out


def rows_of(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)


def reference(qkv: np.ndarray) -> np.ndarray:
    """Causal attention over one whole sequence by torch, in float64."""
    heads = torch.from_numpy(qkv).double().view(len(qkv), -1, HEAD_DIM).transpose(0, 1)
    query, key, value = heads.split([HEADS, KV_HEADS, KV_HEADS])
    out = F.scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True, enable_gqa=True)
    return out[0].transpose(0, 1).reshape(len(qkv), -1).numpy()


@pytest.mark.parametrize("length", [1, 7, 16, 17, 100])
def test_equals_torch(length: int) -> None:
    qkv = rows_of(length, length)
    pages = np.random.default_rng(1).permutation(PAGES)[: -(-length // PAGE_SIZE)].tolist()
    assert np.abs(Pool().run(qkv, [Chunk(0, length, pages)]) - reference(qkv)).max() < 1e-5


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 120), st.data())
def test_chunks_pages_and_company_change_no_bit(length: int, data: st.DataObject) -> None:
    qkv, other = rows_of(1, length), rows_of(2, 60)
    theirs_pages = range(120 // PAGE_SIZE)
    whole = Pool().run(qkv, [Chunk(0, length, theirs_pages)])
    pages = data.draw(st.permutations(range(len(theirs_pages), PAGES)))[: len(theirs_pages)]
    cuts = sorted(data.draw(st.sets(st.integers(1, length), max_size=4)) | {0, length})
    pool, parts, told = Pool(), [], 0
    for start, end in pairwise(cuts):
        mine, theirs = Chunk(start, end - start, pages), Chunk(told, 5, theirs_pages)
        batch = [theirs, mine] if data.draw(st.booleans()) else [mine, theirs]
        rows = {id(mine): qkv[start:end], id(theirs): other[told : told + 5]}
        out = pool.run(np.concatenate([rows[id(chunk)] for chunk in batch]), batch)
        parts.append(out[5:] if batch[0] is theirs else out[: end - start])
        told += 5
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_turns_by_the_angle_as_llama_does() -> None:
    """Halves of a head turn against each other: (a, b) → (a cos − b sin, b cos + a sin)."""
    pool, qkv = Pool(), rows_of(3, 1)
    angles = np.linspace(0, 3, HEAD_DIM // 2, dtype=np.float32)[None]
    before = torch.from_numpy(qkv.copy()).view(-1, HEAD_DIM)
    at = np.zeros(1, np.int64)
    rotate_and_store(qkv, np.cos(angles), np.sin(angles), HEADS, KV_HEADS, at, at, 1, pool.keys, pool.values)
    whole = torch.from_numpy(np.concatenate([angles, angles], 1))
    turned = before * whole.cos() + torch.cat((-before[:, 32:], before[:, :32]), 1) * whole.sin()
    after = qkv.reshape(-1, HEAD_DIM)
    np.testing.assert_allclose(after[: HEADS + KV_HEADS], turned[: HEADS + KV_HEADS].numpy(), atol=1e-6)
    np.testing.assert_array_equal(pool.values[0, 1, :, 0], before[HEADS + KV_HEADS :].numpy())


@given(st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=64))
def test_softmax(scores: list[float]) -> None:
    row = np.array([*scores, 99.0], np.float32)
    expected = np.exp(np.array(scores, np.float32).astype(np.float64) - max(scores))
    _softmax(row, len(scores))
    np.testing.assert_allclose(row[:-1], expected / expected.sum(), rtol=2e-5, atol=1e-30)
    assert row[-1] == 0
