"""The code predictor: from a frame's first code and the talker's hidden state, its other codes.

15 passes of one position each, too small for their dispatch through modules (which is 60 to 80 % of a
frame). So its layers are run here, on fused weights: q, k and v are one product, gate and up another,
and the norms of q and k are folded into the tables of the rotation. Its cache has one position per code
group and starts over every frame; nothing of it outlives a call.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from voice_app.models.qwen3_omni.adapter import Module

Pick = Callable[[torch.Tensor, int], torch.Tensor]
"""(logits [n, codebook], group ≥ 1) → codes [n] int64."""


@dataclass(frozen=True, slots=True)
class _Layer:
    norm: torch.Tensor
    qkv: torch.Tensor
    """[(heads + 2 kv_heads) · head_dim, hidden]"""
    cos: torch.Tensor
    """[positions, heads + kv_heads, head_dim]: the norms' weights times cos."""
    sin: torch.Tensor
    """As `cos`, for the half-swapped vector, its sign included."""
    out: torch.Tensor
    """Transposed."""
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    """Transposed."""


class CodePredictor:
    """Runs `talker.code_predictor` of transformers with weights copied into fused form."""

    def __init__(self, module: Module, groups: int) -> None:
        model, config = module.model, module.config
        self.groups = groups
        self._heads = int(config.num_attention_heads)
        self._kv_heads = int(config.num_key_value_heads)
        self._head_dim = int(config.head_dim)
        self._eps = float(config.rms_norm_eps)
        self._scale = self._head_dim**-0.5
        self._norm: torch.Tensor = model.norm.weight
        self._embeddings = torch.stack([e.weight for e in model.codec_embedding]).detach()
        self._out_heads = torch.stack([h.weight for h in module.lm_head]).detach()
        positions = torch.arange(groups, device=self._norm.device).unsqueeze(0)
        # In float32 whatever the weights are, to be rounded once, with the norms folded in.
        cos, sin = model.rotary_emb(self._norm.float(), positions)
        self._layers = [self._fuse(layer, cos[0], sin[0]) for layer in model.layers]
        self._caches: dict[int, list[torch.Tensor]] = {}

    def _fuse(self, layer: Module, cos: torch.Tensor, sin: torch.Tensor) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        weights = torch.cat(
            [
                attention.q_norm.weight.float().expand(self._heads, -1),
                attention.k_norm.weight.float().expand(self._kv_heads, -1),
            ]
        )
        half = self._head_dim // 2
        swapped = weights.roll(half, -1)
        signed = torch.cat([-sin[:, :half], sin[:, half:]], dim=-1)
        dtype = self._norm.dtype
        return _Layer(
            norm=layer.input_layernorm.weight.detach(),
            qkv=torch.cat(
                [attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]
            ).detach(),
            cos=(cos[:, None] * weights).to(dtype).detach(),
            sin=(signed[:, None] * swapped).to(dtype).detach(),
            out=attention.o_proj.weight.detach().t(),
            mlp_norm=layer.post_attention_layernorm.weight.detach(),
            gate_up=torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).detach(),
            down=mlp.down_proj.weight.detach().t(),
        )

    def predict(
        self, hidden: torch.Tensor, first: torch.Tensor, pick: Pick
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`hidden` [n, hidden]: the talker's normed output; `first` [n, hidden]: the first codes' embeddings.
        Returns the other codes [n, groups - 1] and the sum of all groups' embeddings [n, hidden]."""
        count = len(hidden)
        caches = self._cache(count)
        total = first.clone()
        codes: list[torch.Tensor] = []
        rows, start = torch.stack((hidden, first), dim=1), 0
        for group in range(1, self.groups):
            out = self._pass(rows, start, caches)
            logits = F.linear(out, self._out_heads[group - 1])
            code = pick(logits, group)
            embedded = F.embedding(code, self._embeddings[group - 1])
            total += embedded
            codes.append(code)
            start += rows.shape[1]
            rows = embedded.unsqueeze(1)
        return torch.stack(codes, dim=1), total

    def _cache(self, count: int) -> list[torch.Tensor]:
        """Per layer [2, count, kv_heads, groups, head_dim], kept for the next frame of as many requests."""
        if count not in self._caches:
            shape = (2, count, self._kv_heads, self.groups, self._head_dim)
            like = self._norm
            self._caches[count] = [
                torch.empty(shape, dtype=like.dtype, device=like.device) for _ in self._layers
            ]
        return self._caches[count]

    def _pass(self, rows: torch.Tensor, start: int, caches: list[torch.Tensor]) -> torch.Tensor:
        """`rows` [n, positions, hidden] at positions `start`…; returns the last one's normed output."""
        count, new, width = rows.shape
        end, x = start + new, rows.reshape(-1, width)
        for layer, cache in zip(self._layers, caches, strict=True):
            normed = F.rms_norm(x, (width,), layer.norm, self._eps)
            qkv = F.linear(normed, layer.qkv).view(count, new, -1, self._head_dim)
            attended = self._attend(qkv, layer, cache, start, end)
            x = torch.addmm(x, attended, layer.out)
            normed = F.rms_norm(x, (width,), layer.mlp_norm, self._eps)
            gate, up = F.linear(normed, layer.gate_up).chunk(2, dim=-1)
            x = torch.addmm(x, F.silu(gate) * up, layer.down)
        last = x.view(count, new, width)[:, -1]
        return F.rms_norm(last, (width,), self._norm, self._eps)

    def _attend(
        self, qkv: torch.Tensor, layer: _Layer, cache: torch.Tensor, start: int, end: int
    ) -> torch.Tensor:
        heads, both = self._heads, self._heads + self._kv_heads
        qk = F.rms_norm(qkv[:, :, :both], (self._head_dim,), None, self._eps)
        rotated = torch.addcmul(
            qk * layer.cos[start:end], qk.roll(self._head_dim // 2, -1), layer.sin[start:end]
        )
        cache[0, :, :, start:end] = rotated[:, :, heads:].transpose(1, 2)
        cache[1, :, :, start:end] = qkv[:, :, both:].transpose(1, 2)
        keys, values = cache[0, :, :, :end], cache[1, :, :, :end]
        if end - start == 1:
            # The heads that share keys stand where several positions would: all see the same.
            query = rotated[:, 0, :heads].unflatten(1, (self._kv_heads, -1))
            out = F.scaled_dot_product_attention(query, keys, values, scale=self._scale)
            return out.reshape(len(qkv), -1)
        query = rotated[:, :, :heads].transpose(1, 2)
        out = F.scaled_dot_product_attention(
            query, keys, values, is_causal=True, scale=self._scale, enable_gqa=True
        )
        return out.transpose(1, 2).reshape(len(qkv) * (end - start), -1)
