"""Sliding-window attention of several streams, each continued where its last window ended."""

from dataclasses import dataclass, field

import torch
from torch.nn import functional as F


@dataclass(slots=True)
class WindowBatch:
    """`past`: [layers, 2, streams, heads, window - 1, head_dim], oldest first, right-aligned: a stream's
    first rows are empty until it is long enough. Layers replace their part as they run."""

    past: torch.Tensor
    mask: torch.Tensor
    """[streams, 1, new, window - 1 + new] bool, True where a row sees a position."""
    _next: list[torch.Tensor] = field(default_factory=list)

    @staticmethod
    def of(past: torch.Tensor, lengths: torch.Tensor, new: int) -> "WindowBatch":
        """`lengths` [streams]: frames before; `new` frames follow for each."""
        window = past.shape[4] + 1
        rows = torch.arange(new, device=past.device)[:, None]
        places = torch.arange(window - 1 + new, device=past.device)
        # A place is a position relative to the stream's end before this window, less window - 1.
        age = rows + window - 1 - places
        visible = (age >= 0) & (age < window)
        there = places >= window - 1 - lengths[:, None]
        return WindowBatch(past, (visible & there[:, None])[:, None])

    def extend(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """[2, streams, heads, window - 1 + new, head_dim]: the past and `key`, `value` behind it."""
        both = torch.cat((self.past[layer], torch.stack((key, value))), dim=3)
        self._next.append(both[:, :, :, key.shape[2] :])
        return both

    def kept(self) -> torch.Tensor:
        """`past` for the next window, once all layers have run."""
        return torch.stack(self._next)


def attend_window(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    window: WindowBatch,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """transformers' attention interface: [streams, heads, new, head_dim] each, rotated; returns
    [streams, new, heads, head_dim]."""
    layer = module.layer_idx
    assert isinstance(layer, int)
    keys, values = window.extend(layer, key, value)
    out = F.scaled_dot_product_attention(
        query, keys, values, attn_mask=window.mask, scale=scaling, enable_gqa=query.shape[1] != keys.shape[1]
    )
    return out.transpose(1, 2), None
