"""Qwen3-Omni-30B-A3B at its published size, with random weights made on the device.

Weights do not change speed, so it can be timed without its 70 GB of files. The numbers are those of the
published config.json; `parameters()` counts 35,259,818,545, as the checkpoint does.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from voice_app.models.qwen3_omni.checkpoint import Checkpoint, TensorReader

_MROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [24, 20, 20]}
_TOKENS = {
    "audio_token_id": 151675,
    "image_token_id": 151655,
    "video_token_id": 151656,
    "vision_start_token_id": 151652,
    "audio_start_token_id": 151669,
    "position_id_per_seconds": 13,
}
_STD = 0.02

CONFIG: dict[str, object] = {
    "model_type": "qwen3_omni_moe",
    "dtype": "bfloat16",
    "im_start_token_id": 151644,
    "im_end_token_id": 151645,
    "system_token_id": 8948,
    "user_token_id": 872,
    "assistant_token_id": 77091,
    "tts_pad_token_id": 151671,
    "tts_bos_token_id": 151672,
    "tts_eos_token_id": 151673,
    "thinker_config": {
        **_TOKENS,
        "user_token_id": 872,
        "text_config": {
            "vocab_size": 152064,
            "hidden_size": 2048,
            "intermediate_size": 768,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "norm_topk_prob": True,
            "max_position_embeddings": 65536,
            "rope_parameters": _MROPE,
        },
        "audio_config": {"output_dim": 2048},
        "vision_config": {"out_hidden_size": 2048, "spatial_merge_size": 2},
    },
    "talker_config": {
        **_TOKENS,
        "num_code_groups": 16,
        "thinker_hidden_size": 2048,
        "accept_hidden_layer": 24,
        "spatial_merge_size": 2,
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_eos_token_id": 2150,
        "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157,
        "speaker_id": {"chelsie": 2301, "ethan": 2302, "aiden": 2303},
        "text_config": {
            "vocab_size": 3072,
            "hidden_size": 1024,
            "intermediate_size": 2048,
            "num_hidden_layers": 20,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 6,
            "moe_intermediate_size": 384,
            "shared_expert_intermediate_size": 768,
            "norm_topk_prob": True,
            "max_position_embeddings": 65536,
            "rope_parameters": _MROPE,
        },
        "code_predictor_config": {
            "vocab_size": 2048,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 5,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "num_code_groups": 16,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
    },
    "code2wav_config": {},
}
"""What is not said here is transformers' default and equals the published value."""


class TrueSize(Checkpoint):
    """A `Checkpoint` without files: every tensor is there, of any shape, and random."""

    def __init__(self, seed: int = 0) -> None:
        self.name = "true size, random weights"
        self.folder = Path(self.name)
        self.config = {**CONFIG, "code2wav_config": dict(_code2wav())}
        self.generation = {}
        self._seed = seed

    def has(self, tensor: str) -> bool:
        return True

    @contextmanager
    def reader(self, device: torch.device) -> Iterator[TensorReader]:
        yield _RandomReader(self, device, self._seed)


class _RandomReader(TensorReader):
    def __init__(self, checkpoint: Checkpoint, device: torch.device, seed: int) -> None:
        self.checkpoint = checkpoint
        self._device = device
        self._generator = torch.Generator(device).manual_seed(seed)

    def read(self, tensor: str, shape: Iterable[int], dtype: torch.dtype) -> torch.Tensor:
        if "norm" in tensor and tensor.endswith("weight"):
            return torch.ones(tuple(shape), dtype=dtype, device=self._device)
        made = torch.empty(tuple(shape), dtype=dtype, device=self._device)
        return made.normal_(0.0, _STD, generator=self._generator)


def _code2wav() -> dict[str, object]:
    from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeCode2WavConfig

    return Qwen3OmniMoeCode2WavConfig().to_dict()


def parameters() -> int:
    """Parameters of the whole model, counted without memory."""
    from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration

    with torch.device("meta"):
        model = Qwen3OmniMoeForConditionalGeneration(Qwen3OmniMoeConfig.from_dict(dict(TrueSize().config)))
    return sum(p.numel() for p in model.parameters())
