"""Causal attention over KV pages for a packed batch of prefills and decodes, compiled by numba.

Pages are read where they lie: nothing is gathered or copied, and pages that several sequences share stay in
the processor's cache, since all sequences of the batch pass over one KV head before the next. A position's
result depends on that position and the ones before it alone, added up in a fixed order: neither the batch,
nor the chunks in which a prompt was prefilled, nor a prefix-cache hit changes a bit of it.
"""

import numpy as np
from numba import njit

HEAD_DIM = 64
"""Fixed at compile time, so that the loops over a head unroll into vector instructions."""
PAGE_SIZE = 16
"""Positions of a page: prompts share prefixes in steps of this."""

_HALF = HEAD_DIM // 2
# Sums may be regrouped into vector lanes; infinities and NaN keep their meaning.
_fast = njit(fastmath={"reassoc", "contract", "arcp", "nsz"}, nogil=True, cache=True)


@_fast
def rotate_and_store(qkv, cosine, sine, heads, kv_heads, pages, slots, keys, values):
    """Turn the queries of `qkv` [n, (heads + 2 · kv_heads) · 64] in place by their positions' angles
    (`cosine`, `sine` [n, 32]), and write row i's turned keys and its values to place `slots[i]` of page
    `pages[i]` in `keys` and `values` [pages, kv_heads, 16, 64]."""
    for row in range(qkv.shape[0]):
        for head in range(heads + kv_heads):
            at = head * HEAD_DIM
            for i in range(_HALF):
                low, high = qkv[row, at + i], qkv[row, at + i + _HALF]
                qkv[row, at + i] = low * cosine[row, i] - high * sine[row, i]
                qkv[row, at + i + _HALF] = high * cosine[row, i] + low * sine[row, i]
        for head in range(kv_heads):
            key, value = (heads + head) * HEAD_DIM, (heads + kv_heads + head) * HEAD_DIM
            for i in range(HEAD_DIM):
                keys[pages[row], head, slots[row], i] = qkv[row, key + i]
                values[pages[row], head, slots[row], i] = qkv[row, value + i]


@_fast
def attend(qkv, heads, kv_heads, firsts, starts, counts, tables, keys, values, scores, out):
    """Attention of every row over its own sequence.

    Sequence s owns the rows [firsts[s], firsts[s] + counts[s]) of `qkv`, which are its positions from
    `starts[s]` on; position p lies in page `tables[s, p // 16]`. `scores` [longest sequence] is scratch;
    `out` [n, heads · 64] gets the result."""
    group = heads // kv_heads
    scale = np.float32(1.0 / np.sqrt(HEAD_DIM))
    for kv_head in range(kv_heads):
        for s in range(firsts.shape[0]):
            for i in range(counts[s]):
                row, length = firsts[s] + i, starts[s] + i + 1
                for head in range(kv_head * group, (kv_head + 1) * group):
                    query = qkv[row, head * HEAD_DIM : (head + 1) * HEAD_DIM]
                    result = out[row, head * HEAD_DIM : (head + 1) * HEAD_DIM]
                    _attend_one(query, kv_head, length, tables[s], keys, values, scale, scores, result)


@_fast
def _attend_one(query, kv_head, length, table, keys, values, scale, scores, result):
    best = np.float32(-np.inf)
    for first in range(0, length, PAGE_SIZE):
        page = keys[table[first // PAGE_SIZE], kv_head]
        for slot in range(min(PAGE_SIZE, length - first)):
            dot = np.float32(0)
            for i in range(HEAD_DIM):
                dot += query[i] * page[slot, i]
            dot *= scale
            scores[first + slot] = dot
            best = max(best, dot)
    total = np.float32(0)
    for p in range(length):
        weight = np.exp(scores[p] - best)
        scores[p] = weight
        total += weight
    for i in range(HEAD_DIM):
        result[i] = 0
    for first in range(0, length, PAGE_SIZE):
        page = values[table[first // PAGE_SIZE], kv_head]
        for slot in range(min(PAGE_SIZE, length - first)):
            weight = scores[first + slot]
            for i in range(HEAD_DIM):
                result[i] += weight * page[slot, i]
    share = np.float32(1) / total
    for i in range(HEAD_DIM):
        result[i] *= share
