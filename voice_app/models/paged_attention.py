"""Attention over a paged KV cache, for a packed batch of prefills and decodes. Plain torch.

A step's rows (all positions that are computed in it, of all its sequences) lie behind one another in one
dimension. Each sequence's keys and values lie in pages of a pool that the scheduler hands out; this
module writes the new ones and reads the whole sequence back. `attend` is what transformers' attention
layers call (through its registry), with the step's `PackedBatch` passed along.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from voice_app.models import varlen


class KVPool:
    """The pages of one decoder's cache, [layers, pages, page_size, 2, kv_heads, head_dim], on the device.

    Zeroed: a masked position still takes part in the products, where a stray NaN would spread. One page
    more than `pages` is there, `scratch`, for rows that are in a batch only to fill it up."""

    def __init__(
        self,
        layers: int,
        pages: int,
        page_size: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.page_size = page_size
        self.pages = self.scratch = pages
        self.device = device
        shape = (layers, (pages + 1) * page_size, 2, kv_heads, head_dim)
        self.layers = list(zeros(shape, dtype, device).unbind(0))
        """Per layer [slots, 2, kv_heads, head_dim]; slot = page · page_size + offset."""
        self.use_varlen = varlen.usable(heads, kv_heads, head_dim, page_size, dtype, device)

    def read(self, pages: Sequence[int], length: int) -> torch.Tensor:
        """A copy on the host of the positions [0, length) that lie in `pages`: [layers, length, 2, kv_heads,
        head_dim]."""
        places = self._places(pages, length)
        return torch.stack([layer[places] for layer in self.layers]).cpu()

    def write(self, pages: Sequence[int], kv: torch.Tensor) -> None:
        """Undo `read`, in other pages."""
        places = self._places(pages, kv.shape[1])
        for layer, rows in zip(self.layers, kv.to(self.device), strict=True):
            layer[places] = rows

    def _places(self, pages: Sequence[int], length: int) -> torch.Tensor:
        first = np.array(pages, np.int64)[:, None] * self.page_size
        slots = (first + np.arange(self.page_size)).reshape(-1)[:length]
        return torch.from_numpy(slots).to(self.device)

    @staticmethod
    def page_bytes(layers: int, page_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """Bytes of one page over all layers."""
        return layers * page_size * 2 * kv_heads * head_dim * dtype.itemsize


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros; on a CPU from memory that the system gives only as it is touched."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros((*shape[:-1], shape[-1] * dtype.itemsize), np.uint8)).view(dtype)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One sequence's part of a step: positions [start, start + count), its KV in `pages`."""

    pages: Sequence[int]
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class _Decodes:
    """The first `count` rows, each of another sequence. `slots` [count, longest]: its positions so far."""

    count: int
    slots: torch.Tensor
    mask: torch.Tensor | None
    """[count, 1, 1, longest] bool, True where a row sees a position; None: everywhere."""


@dataclass(frozen=True, slots=True)
class _Prefill:
    """Rows [first, last) of the batch are one sequence's; `slots` [end] are all its positions so far."""

    first: int
    last: int
    slots: torch.Tensor
    mask: torch.Tensor | None
    """[count, end] bool, True where a row sees a position; None: plainly causal from position 0."""


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """Where each row's KV goes and what each row sees. Built once a step, read by every layer."""

    pool: KVPool
    slots: torch.Tensor
    """[rows]: where each row's keys and values go."""
    last_rows: torch.Tensor
    """[sequences]: each one's last row."""
    kernel: varlen.Arguments | None = None
    """Set where the kernel reads the pages itself; the plans below are then empty."""
    decodes: _Decodes | None = None
    prefills: tuple[_Prefill, ...] = ()


def pack(pool: KVPool, chunks: Sequence[Chunk]) -> PackedBatch:
    """Rows in the order of `chunks`, of which those of a single row (decodes) must come first."""
    size, device = pool.page_size, pool.device
    tables = np.zeros((len(chunks), max(len(c.pages) for c in chunks)), np.int64)
    for table, chunk in zip(tables, chunks, strict=True):
        table[: len(chunk.pages)] = chunk.pages
    counts = np.array([c.count for c in chunks])
    starts = np.array([c.start for c in chunks])
    owner = np.repeat(np.arange(len(chunks)), counts)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    positions = starts[owner] + offset
    slots = torch.from_numpy(tables[owner, positions // size] * size + positions % size).to(device)
    last_rows = torch.from_numpy(np.cumsum(counts) - 1).to(device)
    if pool.use_varlen:
        arguments = varlen.Arguments.of(size, tables, counts, starts + counts, device)
        return PackedBatch(pool, slots, last_rows, arguments)
    single = next((i for i, c in enumerate(chunks) if c.count > 1), len(chunks))
    decodes = _plan_decodes(pool, tables[:single], starts[:single] + 1) if single else None
    prefills = tuple(_plan_prefills(pool, tables[single:], chunks[single:], first=single))
    return PackedBatch(pool, slots, last_rows, None, decodes, prefills)


def pack_decodes(pool: KVPool, tables: torch.Tensor, lengths: torch.Tensor) -> PackedBatch:
    """One row for each sequence, computed from tensors alone, so that it can be captured in a graph.
    `tables` [n, pages] int32; `lengths` [n] int32: positions each has, the new one included."""
    size, (count, pages) = pool.page_size, tables.shape
    at = (lengths - 1).long()
    page = tables.gather(1, (at // size)[:, None])[:, 0].long()
    slots, rows = page * size + at % size, torch.arange(count, device=pool.device)
    if pool.use_varlen:
        arguments = varlen.Arguments.for_decodes(size, tables, lengths)
        return PackedBatch(pool, slots, rows, arguments)
    places = torch.arange(size, device=pool.device)
    everything = (tables.long()[:, :, None] * size + places).flatten(1)
    seen = torch.arange(pages * size, device=pool.device) < lengths[:, None]
    return PackedBatch(pool, slots, rows, None, _Decodes(count, everything, seen[:, None, None]))


def _plan_decodes(pool: KVPool, tables: np.ndarray, lengths: np.ndarray) -> _Decodes:
    size, longest = pool.page_size, int(lengths.max())
    pages = tables[:, : -(-longest // size)]
    slots = (pages[:, :, None] * size + np.arange(size)).reshape(len(tables), -1)[:, :longest]
    mask = None
    if int(lengths.min()) < longest:
        seen = np.arange(longest) < lengths[:, None]
        mask = torch.from_numpy(seen).to(pool.device)[:, None, None, :]
    return _Decodes(len(tables), torch.from_numpy(np.ascontiguousarray(slots)).to(pool.device), mask)


def _plan_prefills(
    pool: KVPool, tables: np.ndarray, chunks: Sequence[Chunk], first: int
) -> Iterator[_Prefill]:
    size = pool.page_size
    for table, chunk in zip(tables, chunks, strict=True):
        end = chunk.start + chunk.count
        at = np.arange(end)
        slots = torch.from_numpy(table[at // size] * size + at % size).to(pool.device)
        mask = None
        if chunk.start:
            seen = at <= np.arange(chunk.start, end)[:, None]
            mask = torch.from_numpy(seen).to(pool.device)
        yield _Prefill(first, first + chunk.count, slots, mask)
        first += chunk.count


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    packed: PackedBatch,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """transformers' attention interface. `query` [1, heads, rows, head_dim], `key` and `value` [1, kv_heads,
    rows, head_dim], rotated. Returns [1, rows, heads, head_dim]."""
    layer = module.layer_idx
    assert isinstance(layer, int)
    pool = packed.pool.layers[layer]
    pool[packed.slots] = torch.stack((key[0], value[0])).permute(2, 0, 1, 3)
    if packed.kernel is not None:
        return varlen.attend(query[0].transpose(0, 1), pool, packed.kernel, scaling)[None], None
    parts = [_decode(query, pool, packed.decodes, scaling)] if packed.decodes else []
    parts += [_prefill(query, pool, prefill, scaling) for prefill in packed.prefills]
    return (parts[0] if len(parts) == 1 else torch.cat(parts))[None], None


def _decode(query: torch.Tensor, pool: torch.Tensor, part: _Decodes, scaling: float) -> torch.Tensor:
    """All decodes at once, padded to the longest: [decodes, heads, head_dim]. The heads that share keys
    stand where a prefill's rows would: all see the same positions."""
    seen = pool[part.slots]
    rows = query[0, :, : part.count].transpose(0, 1)
    out = F.scaled_dot_product_attention(
        rows.unflatten(1, (seen.shape[3], -1)),
        seen[:, :, 0].transpose(1, 2),
        seen[:, :, 1].transpose(1, 2),
        attn_mask=part.mask,
        scale=scaling,
    )
    return out.flatten(1, 2)


def _prefill(query: torch.Tensor, pool: torch.Tensor, part: _Prefill, scaling: float) -> torch.Tensor:
    """One sequence's rows: [count, heads, head_dim]."""
    seen = pool[part.slots]
    out = F.scaled_dot_product_attention(
        query[:, :, part.first : part.last],
        seen[:, 0].transpose(0, 1).unsqueeze(0),
        seen[:, 1].transpose(0, 1).unsqueeze(0),
        attn_mask=part.mask,
        is_causal=part.mask is None,
        scale=scaling,
        enable_gqa=True,
    )
    return out[0].transpose(0, 1)
