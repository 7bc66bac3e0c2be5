"""An engine over any causal language model of transformers, with KV pages of our own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface, PreTrainedModel

from voice_app.errors import ConfigError
from voice_app.models import paged_attention
from voice_app.models.local.engine import Chunk, Layout
from voice_app.models.paged_attention import KVPool, PackedBatch, pack

PAGED = "voice_app_paged_brain"
AttentionInterface.register(PAGED, paged_attention.attend)

_SIZES = ("num_attention_heads", "num_hidden_layers", "hidden_size")
_PAGE_SIZE = 16
_PROBE = 24
"""Positions of the check that a model runs right over pages."""
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.05, torch.float16: 0.01}
"""Largest error of the check, relative to the largest value. Sums are merely added up in another order, by
machine precision; a model that needs more than plain attention is off by tens of percent."""


class TorchEngine:
    """An `Engine`. transformers' modules do everything but attention over the past."""

    page_size = _PAGE_SIZE
    exact = False

    def __init__(self, model: PreTrainedModel, kv_bytes: int, max_positions: int) -> None:
        """Raises ConfigError for a model whose layers need more than keys and values of the past."""
        self._model: Any = model
        config = self._model.config.get_text_config().to_dict()
        heads, layers, self.width = (config.get(name) for name in _SIZES)
        if not (heads and layers and self.width):
            raise self._unfit("it is no stack of attention layers")
        kv_heads = config.get("num_key_value_heads") or heads
        head_dim = config.get("head_dim") or self.width // heads
        self.vocab = self._model.get_output_embeddings().weight.shape[0]
        dtype = model.dtype
        self.max_positions = max_positions
        self.num_pages = max(
            _PROBE // _PAGE_SIZE + 1,
            kv_bytes // KVPool.page_bytes(layers, _PAGE_SIZE, kv_heads, head_dim, dtype),
        )
        model.set_attn_implementation("eager")
        expected = self._probe_plainly()
        model.set_attn_implementation(PAGED)
        self._pool = KVPool(
            layers, self.num_pages, _PAGE_SIZE, heads, kv_heads, head_dim, dtype, model.device
        )
        self._check(expected)

    def embed(self, ids: Sequence[int]) -> np.ndarray:
        return _host(self._model.get_input_embeddings()(torch.tensor(ids, device=self._model.device)))

    @torch.inference_mode()
    def forward(self, x: np.ndarray, chunks: Sequence[Chunk]) -> np.ndarray:
        # The batch's plan wants the decodes first.
        order = sorted(range(len(chunks)), key=lambda place: chunks[place].count > 1)
        ordered = [chunks[place] for place in order]
        layout = Layout.of(chunks, _PAGE_SIZE)
        rows = np.concatenate(
            [np.arange(layout.firsts[p], layout.firsts[p] + layout.counts[p]) for p in order]
        )
        packed = pack(
            self._pool, [paged_attention.Chunk(chunk.pages, chunk.start, chunk.count) for chunk in ordered]
        )
        hidden = self._decoder_output(x[rows], layout.positions[rows], packed)
        given = np.empty((len(x), self.width), np.float32)
        given[rows] = hidden
        return given

    @torch.inference_mode()
    def logits(self, hidden: np.ndarray) -> np.ndarray:
        return _host(self._model.get_output_embeddings()(self._device(hidden)))

    def _decoder_output(self, x: np.ndarray, positions: np.ndarray, packed: PackedBatch) -> np.ndarray:
        given = self._model.base_model(
            inputs_embeds=self._device(x)[None],
            position_ids=torch.from_numpy(positions).to(self._model.device)[None],
            use_cache=False,
            packed=packed,
        )
        return _host(given.last_hidden_state[0])

    def _device(self, rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(rows).to(self._model.device, self._model.dtype)

    @torch.inference_mode()
    def _probe_plainly(self) -> np.ndarray:
        """What the model itself gives for a few tokens, with its own attention."""
        ids = torch.tensor([_probe_ids(self.vocab)], device=self._model.device)
        return _host(self._model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0])

    def _check(self, expected: np.ndarray) -> None:
        """The same tokens over pages, in two chunks, must give the same."""
        x = self.embed(_probe_ids(self.vocab))
        pages = range(self.num_pages)[: _PROBE // _PAGE_SIZE + 1]
        half = _PROBE // 2
        try:
            first = self.forward(x[:half], [Chunk(0, half, pages)])
            second = self.forward(x[half:], [Chunk(half, _PROBE - half, pages)])
        except (TypeError, AttributeError, IndexError, RuntimeError) as error:
            raise self._unfit(f"its attention cannot be replaced ({error})") from error
        off = np.abs(np.concatenate([first, second]) - expected).max() / np.abs(expected).max()
        if not off <= _TOLERANCE[self._model.dtype]:
            raise self._unfit("it keeps more of the past than keys and values")

    def _unfit(self, reason: str) -> ConfigError:
        kind = type(self._model).__name__
        return ConfigError(f"--brain: {kind} can't be batched here: {reason}; choose another", param="brain")


def _probe_ids(vocab: int) -> list[int]:
    return [(7 + 31 * place) % vocab for place in range(_PROBE)]


def _host(rows: torch.Tensor) -> np.ndarray:
    return rows.detach().float().cpu().numpy()
