"""Causal attention over KV pages for a packed batch of prefills and decodes, compiled by numba.

Pages are read where they lie: nothing is gathered or copied, and pages that several sequences share stay in
the processor's cache, since all sequences of the batch pass over one KV head before the next. A position's
result depends on that position and the ones before it alone, added up in an order fixed by their places in
the pages: neither the batch, nor the chunks in which a prompt was prefilled, nor a prefix-cache hit changes a
bit of it.
"""

import numpy as np

from voice_app.models.local.compiled import exp, fast, highest

HEAD_DIM = 64
"""Fixed at compile time, so that the loops over a head unroll into vector instructions."""
PAGE_SIZE = 4
"""Positions of a page: prompts share prefixes in steps of this, and a position that is not shared costs a
third of a token's time. The loops take four positions at a time, so it is no less."""
TILE = 8
"""Rows that pass over a page together, while it is in the first-level cache."""

_HALF = HEAD_DIM // 2
_SCALE = np.float32(HEAD_DIM**-0.5)


def scratch(group: int, positions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `attend` works in, for `group` query heads a KV head and sequences of up to `positions`: queries,
    scores and sums."""
    rows, longest = TILE * group, -(-positions // PAGE_SIZE) * PAGE_SIZE
    return (
        np.empty((rows, HEAD_DIM), np.float32),
        np.empty((rows, longest), np.float32),
        np.empty((rows, HEAD_DIM), np.float32),
    )


def rotary_table(base: float, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine [positions, HEAD_DIM / 2] of the rotary embedding's angles."""
    inverse = base ** (-np.arange(HEAD_DIM // 2) * 2 / HEAD_DIM)
    angles = np.outer(np.arange(positions), inverse)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@fast
def rotate_and_store(qkv, cosine, sine, heads, kv_heads, pages, slots, layer, keys, values):
    """Turn the queries of `qkv` [n, (heads + 2 · kv_heads) · 64] in place by their positions' angles
    (`cosine`, `sine` [n, 32]), and write row i's turned keys and its values to place `slots[i]` of page
    `pages[i]` in `keys` and `values` [pages, layers, kv_heads, 4, 64]."""
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
                keys[pages[row], layer, head, slots[row], i] = qkv[row, key + i]
                values[pages[row], layer, head, slots[row], i] = qkv[row, value + i]


@fast
def attend(
    qkv, heads, kv_heads, firsts, starts, counts, tables, layer, keys, values, queries, scores, sums, out
):
    """Attention of every row over its own sequence.

    Sequence s owns the rows [firsts[s], firsts[s] + counts[s]) of `qkv`, which are its positions from
    `starts[s]` on; position p lies in page `tables[s, p // 4]`. `queries`, `scores` and `sums` are
    `scratch`; `out` [n, heads · 64] gets the result. What lies in a page after a row's position must be
    finite."""
    group = heads // kv_heads
    for kv_head in range(kv_heads):
        for s in range(firsts.shape[0]):
            for i in range(0, counts[s], TILE):
                rows = min(TILE, counts[s] - i)
                row, end = firsts[s] + i, starts[s] + i + rows
                _gather(qkv, row, rows, group, kv_head, queries)
                _score(rows * group, end, kv_head, tables[s], layer, keys, queries, scores)
                whole_pages = -(-end // PAGE_SIZE) * PAGE_SIZE
                for r in range(rows * group):
                    _softmax(scores[r, :whole_pages], end - rows + r // group + 1)
                _weigh(rows * group, end, kv_head, tables[s], layer, values, scores, sums)
                for r in range(rows * group):
                    at = (kv_head * group + r % group) * HEAD_DIM
                    out[row + r // group, at : at + HEAD_DIM] = sums[r]


@fast
def _gather(qkv, row, rows, group, kv_head, queries):
    """The scaled queries of `rows` rows that look at one KV head, one after the other."""
    for r in range(rows * group):
        at = (kv_head * group + r % group) * HEAD_DIM
        for i in range(HEAD_DIM):
            queries[r, i] = qkv[row + r // group, at + i] * _SCALE


@fast
def _score(rows, end, kv_head, table, layer, keys, queries, scores):
    """Products of the queries with whole pages of keys, four keys at a time."""
    for first in range(0, end, PAGE_SIZE):
        page = keys[table[first // PAGE_SIZE], layer, kv_head]
        for r in range(rows):
            for slot in range(0, PAGE_SIZE, 4):
                a = b = c = d = np.float32(0)
                for i in range(HEAD_DIM):
                    query = queries[r, i]
                    a += query * page[slot, i]
                    b += query * page[slot + 1, i]
                    c += query * page[slot + 2, i]
                    d += query * page[slot + 3, i]
                at = first + slot
                scores[r, at], scores[r, at + 1], scores[r, at + 2], scores[r, at + 3] = a, b, c, d


@fast
def _softmax(scores, length):
    """In place over the first `length` scores; the others become 0."""
    best = highest(scores[:length])
    total = np.float32(0)
    for p in range(length):
        weight = exp(scores[p] - best)
        scores[p] = weight
        total += weight
    share = np.float32(1) / total
    for p in range(length):
        scores[p] *= share
    for p in range(length, scores.shape[0]):
        scores[p] = 0


@fast
def _weigh(rows, end, kv_head, table, layer, values, scores, sums):
    """sums[r] = the values weighed by scores[r], four values at a time."""
    for r in range(rows):
        for i in range(HEAD_DIM):
            sums[r, i] = 0
    for first in range(0, end, PAGE_SIZE):
        page = values[table[first // PAGE_SIZE], layer, kv_head]
        for slot in range(0, PAGE_SIZE, 4):
            at = first + slot
            for r in range(rows):
                a, b, c, d = scores[r, at], scores[r, at + 1], scores[r, at + 2], scores[r, at + 3]
                for i in range(HEAD_DIM):
                    sums[r, i] += (
                        a * page[slot, i]
                        + b * page[slot + 1, i]
                        + c * page[slot + 2, i]
                        + d * page[slot + 3, i]
                    )
