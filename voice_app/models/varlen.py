"""torch's variable-length attention kernel over pages (CUDA), behind a check that it works here.

The kernel reads the pool's pages in place; without it `paged_attention.py` gathers them and pads. Which page
sizes, head sizes and data types the kernel takes depends on torch's build and on the GPU, so the check
runs it once on a small case and compares.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn

TOLERANCE = 0.02
"""Largest error of the check: a few steps of bfloat16 near 1 (0.008)."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a call needs besides query and pool; tensors are on the device."""

    page_size: int
    table: torch.Tensor
    """[sequences, pages] int32."""
    cu_rows: torch.Tensor
    """[sequences + 1] int32: where each sequence's rows begin."""
    lengths: torch.Tensor
    """[sequences] int32: positions each sequence has, the new ones included."""
    max_rows: int
    max_length: int

    @staticmethod
    def of(
        page_size: int, tables: np.ndarray, rows: np.ndarray, lengths: np.ndarray, device: torch.device
    ) -> "Arguments":
        """From host arrays: `tables` [sequences, pages], `rows` and `lengths` [sequences]."""
        cu_rows = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(rows, out=cu_rows[1:])
        return Arguments(
            page_size,
            torch.from_numpy(tables.astype(np.int32)).to(device),
            torch.from_numpy(cu_rows).to(device),
            torch.from_numpy(lengths.astype(np.int32)).to(device),
            int(rows.max()),
            int(lengths.max()),
        )

    @staticmethod
    def for_decodes(page_size: int, table: torch.Tensor, lengths: torch.Tensor) -> "Arguments":
        """One row a sequence, from tensors that may be filled anew before each call."""
        count, pages = table.shape
        cu_rows = torch.arange(count + 1, dtype=torch.int32, device=table.device)
        return Arguments(page_size, table, cu_rows, lengths, 1, pages * page_size)


def attend(query: torch.Tensor, pool: torch.Tensor, arguments: Arguments, scaling: float) -> torch.Tensor:
    """`query` [rows, heads, head_dim]; `pool` [slots, 2, kv_heads, head_dim]. Causal, aligned to the end of
    each sequence. Returns [rows, heads, head_dim]."""
    paged = pool.unflatten(0, (-1, arguments.page_size))
    out = varlen_attn(
        query.contiguous(),
        paged[:, :, 0],
        paged[:, :, 1],
        arguments.cu_rows,
        None,
        arguments.max_rows,
        arguments.max_length,
        scale=scaling,
        window_size=(-1, 0),
        enable_gqa=True,
        seqused_k=arguments.lengths,
        block_table=arguments.table,
        # One split: a sequence's result then does not depend on what else is in the batch.
        num_splits=1,
    )
    assert isinstance(out, torch.Tensor)
    return out


def usable(
    heads: int, kv_heads: int, head_dim: int, page_size: int, dtype: torch.dtype, device: torch.device
) -> bool:
    """Whether the kernel takes these shapes on this device and gives the right result."""
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return False
    generator = torch.Generator(device).manual_seed(0)
    shape = (4 * page_size, 2, kv_heads, head_dim)
    pool = torch.randn(shape, generator=generator, dtype=dtype, device=device)
    query = torch.randn((3, heads, head_dim), generator=generator, dtype=dtype, device=device)
    # Two sequences over crossed pages: one prefills two rows behind a full page, the other decodes.
    tables = np.array([[2, 0], [1, 3]])
    lengths = np.array([page_size + 1, page_size + 2])
    arguments = Arguments.of(page_size, tables, np.array([2, 1]), lengths, device)
    try:
        found = attend(query, pool, arguments, head_dim**-0.5)
    except (RuntimeError, ValueError, NotImplementedError):
        return False
    paged = pool.unflatten(0, (-1, page_size)).float()
    rows = [(0, 0, page_size), (1, 0, page_size + 1), (2, 1, page_size + 2)]
    for row, sequence, length in rows:
        seen = paged[tables[sequence]].flatten(0, 1)[:length]
        expected = F.scaled_dot_product_attention(
            query[row].float().unsqueeze(1),
            seen[:, 0].transpose(0, 1),
            seen[:, 1].transpose(0, 1),
            scale=head_dim**-0.5,
            enable_gqa=True,
        ).squeeze(1)
        if not torch.allclose(found[row].float(), expected, atol=TOLERANCE, rtol=TOLERANCE):
            return False
    return True
