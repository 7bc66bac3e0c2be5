"""All contact with transformers' Qwen3-Omni modules: building them, loading them, calling them.

Pinned to the range of versions in which the equality test passes. A stage builds and loads its own part
only: modules are made without memory, then each parameter is read from its shard straight to the device.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from accelerate import init_empty_weights
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel, Qwen3OmniMoeConfig
from transformers.initialization import no_init_weights
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as modeling

from voice_app.errors import ModelFileError
from voice_app.models.paged_attention import PackedBatch, attend
from voice_app.models.qwen3_omni.checkpoint import Checkpoint, TensorReader
from voice_app.models.qwen3_omni.window_attention import attend_window

Module = Any
"""A module of transformers. Its attributes are known by name only, to those who read them."""

PAGED = "voice_app_paged"
WINDOWED = "voice_app_windowed"
"""Our attention functions' names in transformers' registry."""

AttentionInterface.register(PAGED, attend)
AttentionInterface.register(WINDOWED, attend_window)


class Loader:
    """Builds the parts of one checkpoint on one device, in one dtype."""

    def __init__(self, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> None:
        self._checkpoint = checkpoint
        self.dtype = dtype
        self.device = device
        try:
            config = Qwen3OmniMoeConfig.from_dict(copy.deepcopy(checkpoint.config))
        except (StrictDataclassError, TypeError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise ModelFileError(
                f"{checkpoint.folder / 'config.json'}: {reason}; take it from the published checkpoint",
                param="model",
            ) from error
        self._config: Any = config

    def vision_encoder(self) -> Module:
        """`thinker.visual`."""
        return self._build(
            modeling.Qwen3OmniMoeVisionEncoder, self._config.thinker_config.vision_config, "thinker.visual."
        )

    def audio_encoder(self) -> Module:
        """`thinker.audio_tower`."""
        return self._build(
            modeling.Qwen3OmniMoeAudioEncoder,
            self._config.thinker_config.audio_config,
            "thinker.audio_tower.",
        )

    def thinker(self) -> tuple["Decoder", nn.Linear]:
        """The thinker's decoder and its head."""
        text = self._config.thinker_config.text_config
        model = self._build(modeling.Qwen3OmniMoeThinkerTextModel, text, "thinker.model.", attention=PAGED)
        head = self.linear("thinker.lm_head.weight", text.vocab_size, text.hidden_size)
        return Decoder(model, model.embed_tokens), head

    def text_embedding(self) -> nn.Embedding:
        """The thinker's embedding table alone."""
        text = self._config.thinker_config.text_config
        shape = (text.vocab_size, text.hidden_size)
        with self._checkpoint.reader(self.device) as reader:
            weight = reader.read("thinker.model.embed_tokens.weight", shape, self.dtype)
        return nn.Embedding.from_pretrained(weight)

    def talker(self) -> Module:
        """`talker`: projections, decoder, codec head and code predictor."""
        return self._build(
            modeling.Qwen3OmniMoeTalkerForConditionalGeneration,
            self._config.talker_config,
            "talker.",
            attention=PAGED,
        )

    def code2wav(self) -> Module:
        """`code2wav`."""
        return self._build(
            modeling.Qwen3OmniMoeCode2Wav, self._config.code2wav_config, "code2wav.", attention=WINDOWED
        )

    def linear(self, tensor: str, rows: int, columns: int) -> nn.Linear:
        """A head without bias, from one tensor."""
        with init_empty_weights(include_buffers=False):
            linear = nn.Linear(columns, rows, bias=False)
        with self._checkpoint.reader(self.device) as reader:
            linear.weight = _frozen(reader.read(tensor, (rows, columns), self.dtype))
        return linear

    def _build(
        self, kind: type[PreTrainedModel], config: PreTrainedConfig, prefix: str, attention: str = "sdpa"
    ) -> Module:
        with init_empty_weights(include_buffers=False), no_init_weights():
            model = kind._from_config(
                config, attn_implementation=attention, experts_implementation="grouped_mm", dtype=self.dtype
            )
        with self._checkpoint.reader(self.device) as reader:
            for name, parameter in list(model.named_parameters()):
                value = _read(reader, prefix + name, tuple(parameter.shape), self.dtype, self.device)
                owner, _, attribute = name.rpartition(".")
                setattr(model.get_submodule(owner), attribute, _frozen(value))
        _fuse_norms(model)
        # Buffers are tables that the constructors computed, in the precision that they need.
        for module in model.modules():
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, buffer.to(self.device))
        return model.eval()


class Decoder:
    """A stack of transformers' decoder layers (the thinker's or the talker's) over a packed batch."""

    def __init__(self, model: Module, embedding: nn.Embedding) -> None:
        self.embed = embedding
        self._layers: list[nn.Module] = list(model.layers)
        self._norm: Callable[[torch.Tensor], torch.Tensor] = model.norm
        self._rotary: Callable[..., tuple[torch.Tensor, torch.Tensor]] = model.rotary_emb

    def forward(
        self,
        rows: torch.Tensor,
        positions: torch.Tensor,
        packed: PackedBatch,
        *,
        accept_layer: int = -1,
        deepstack: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`rows` [n, hidden] inputs, `positions` [3, n]. `deepstack`: row numbers [k] and what is added there
        after each of the first layers [layers, k, hidden]. Returns the normed output [n, hidden] and,
        if `accept_layer` ≥ 1, the output of that many layers (normed only if it is the last)."""
        hidden = rows.unsqueeze(0)
        rotation = self._rotary(hidden, positions.unsqueeze(1))
        accepted = None
        for number, layer in enumerate(self._layers):
            hidden = layer(hidden, position_embeddings=rotation, packed=packed)
            if deepstack is not None and number < len(deepstack[1]):
                hidden = hidden.index_add(1, deepstack[0], deepstack[1][number].unsqueeze(0))
            if number + 1 == accept_layer:
                accepted = hidden[0]
        out = self._norm(hidden)[0]
        return out, out if accept_layer == len(self._layers) else accepted


def _fuse_norms(model: Module) -> None:
    """Put torch's RMS norm, one operation, in the place of transformers', which is six."""
    for parent in list(model.modules()):
        for name, norm in list(parent.named_children()):
            if type(norm).__name__.endswith("RMSNorm"):
                fused = nn.RMSNorm(norm.weight.shape[0], eps=norm.variance_epsilon, device="meta")
                fused.weight = norm.weight
                setattr(parent, name, fused)


def _read(
    reader: TensorReader, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """The parameter `name`; all experts of a layer are one parameter, but separate published tensors."""
    owner, _, attribute = name.rpartition(".")
    if not owner.endswith(".experts") or reader.checkpoint.has(name):
        return reader.read(name, shape, dtype)
    merged = torch.empty(shape, dtype=dtype, device=device)
    for expert in range(shape[0]):
        if attribute == "down_proj":
            merged[expert] = reader.read(f"{owner}.{expert}.down_proj.weight", shape[1:], dtype)
            continue
        half = shape[1] // 2
        merged[expert, :half] = reader.read(f"{owner}.{expert}.gate_proj.weight", (half, shape[2]), dtype)
        merged[expert, half:] = reader.read(f"{owner}.{expert}.up_proj.weight", (half, shape[2]), dtype)
    return merged


def _frozen(value: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(value, requires_grad=False)
