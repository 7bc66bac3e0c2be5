"""A small random checkpoint in the published layout: all seven parts, its own tokenizer and processors.

It has the model's real structure (experts with shared expert, 16 code groups, deepstack, the vocoder's
1920-fold upsampling) at toy widths, so everything that serves the real model can be proven on a CPU.
Weights are drawn wide: with transformers' own initialisation all logits are nearly equal, and greedy
choices would hang on rounding.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import nn
from transformers import Qwen2Tokenizer, Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration
from transformers.utils.logging import disable_progress_bar

from voice_app.models.qwen3_omni.tiny_text import CHAT_TEMPLATE, CORPUS, ROLES, SPECIAL_TOKENS

SPEAKERS = ("chelsie", "ethan", "aiden")
CODEBOOK = 64
"""Codes per group. Small, so that a codec EOS has a fair chance against them."""
LAST_CONV = "code2wav.decoder.6."
"""The convolution that makes samples; drawn small so that they stay within [-1, 1]."""
CODEC_SPECIALS = 1024
"""Talker ids above the codebook; generate() suppresses all of them but EOS."""


@dataclass(frozen=True)
class TinyShape:
    """What may vary between tiny checkpoints; the names follow the published config."""

    thinker_layers: int = 5
    thinker_experts: int = 8
    thinker_experts_per_token: int = 2
    thinker_hidden: int = 64
    accept_hidden_layer: int = 4
    """Must be above the number of deepstack layers, as in the published model (24 of 48; 3)."""
    talker_layers: int = 3
    talker_experts: int = 8
    talker_experts_per_token: int = 2
    talker_hidden: int = 48
    predictor_layers: int = 2
    code_groups: int = 16
    code2wav_layers: int = 2
    sliding_window: int = 72
    max_positions: int = 4096
    eos_scale: float = 1.0
    """Scales the heads' rows of the two EOS; above 1 answers and voices end sooner."""


def make_tiny_checkpoint(folder: Path | str, seed: int = 0, shape: TinyShape | None = None) -> Path:
    """Write a checkpoint to `folder` (made if missing) and return its path. Same seed and shape, same bytes
    of weights."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shape = shape or TinyShape()
    tokenizer = _tokenizer()
    config: Any = Qwen3OmniMoeConfig.from_dict(_config(shape, tokenizer.get_vocab()))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3OmniMoeForConditionalGeneration(config).float()
        _jitter(model)
        with torch.no_grad():
            model.thinker.lm_head.weight[config.im_end_token_id] *= shape.eos_scale
            model.talker.codec_head.weight[config.talker_config.codec_eos_token_id] *= shape.eos_scale
    disable_progress_bar()
    model.save_pretrained(folder, max_shard_size="2MB")
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}, indent=2))
    (folder / "generation_config.json").write_text(
        json.dumps(_generation_config(tokenizer.get_vocab()), indent=2)
    )
    (folder / "preprocessor_config.json").write_text(json.dumps(_preprocessor_config(), indent=2))
    (folder / "tiny_shape.json").write_text(json.dumps({"seed": seed, **asdict(shape)}, indent=2))
    return folder


def _tokenizer() -> Qwen2Tokenizer:
    """A byte-level BPE of some hundred tokens in which each role is one token."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(CORPUS, trainer)
    trained: dict[str, Any] = json.loads(bpe.to_str())["model"]
    merges: Any = [tuple(merge) for merge in trained["merges"]]
    tokenizer = Qwen2Tokenizer(
        vocab=trained["vocab"],
        merges=merges,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL_TOKENS)})
    for role in ROLES:
        ids = tokenizer.encode(role)
        assert len(ids) == 1, f"{role} is {len(ids)} tokens"
    return tokenizer


def _config(shape: TinyShape, vocab: dict[str, int]) -> dict[str, Any]:
    token = {name: vocab[text] for name, text in _CONFIG_TOKENS.items()}
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2]}
    codec = CODEBOOK
    thinker_text = {
        "vocab_size": max(vocab.values()) + 1,
        "hidden_size": shape.thinker_hidden,
        "intermediate_size": 96,
        "num_hidden_layers": shape.thinker_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_experts": shape.thinker_experts,
        "num_experts_per_tok": shape.thinker_experts_per_token,
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
        "max_position_embeddings": shape.max_positions,
        "rope_parameters": rope,
    }
    talker_text = {
        "vocab_size": CODEBOOK + CODEC_SPECIALS,
        "hidden_size": shape.talker_hidden,
        "intermediate_size": 64,
        "num_hidden_layers": shape.talker_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_experts": shape.talker_experts,
        "num_experts_per_tok": shape.talker_experts_per_token,
        "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 32,
        "norm_topk_prob": True,
        "max_position_embeddings": shape.max_positions,
        "rope_parameters": rope,
    }
    predictor = {
        "vocab_size": CODEBOOK,
        "hidden_size": shape.talker_hidden,
        "intermediate_size": 96,
        "num_hidden_layers": shape.predictor_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_code_groups": shape.code_groups,
        "max_position_embeddings": shape.max_positions,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    }
    return {
        "thinker_config": {
            "text_config": thinker_text,
            "audio_config": {
                "d_model": 32,
                "encoder_layers": 2,
                "encoder_attention_heads": 2,
                "encoder_ffn_dim": 64,
                "downsample_hidden_size": 16,
                "output_dim": shape.thinker_hidden,
                "max_source_positions": 1500,
            },
            "vision_config": {
                "depth": 4,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_heads": 2,
                "out_hidden_size": shape.thinker_hidden,
                "num_position_embeddings": 256,
                "deepstack_visual_indexes": [0, 1, 2],
            },
            "audio_token_id": token["audio_token_id"],
            "image_token_id": token["image_token_id"],
            "video_token_id": token["video_token_id"],
            "vision_start_token_id": token["vision_start_token_id"],
            "audio_start_token_id": token["audio_start_token_id"],
            "user_token_id": token["user_token_id"],
            "position_id_per_seconds": 13,
        },
        "talker_config": {
            "text_config": talker_text,
            "code_predictor_config": predictor,
            "num_code_groups": shape.code_groups,
            "thinker_hidden_size": shape.thinker_hidden,
            "accept_hidden_layer": shape.accept_hidden_layer,
            "spatial_merge_size": 2,
            "codec_pad_id": codec + 100,
            "codec_bos_id": codec + 101,
            "codec_eos_token_id": codec + 102,
            "codec_nothink_id": codec + 107,
            "codec_think_bos_id": codec + 108,
            "codec_think_eos_id": codec + 109,
            "speaker_id": {name: codec + 253 + i for i, name in enumerate(SPEAKERS)},
            "audio_token_id": token["audio_token_id"],
            "image_token_id": token["image_token_id"],
            "video_token_id": token["video_token_id"],
            "vision_start_token_id": token["vision_start_token_id"],
            "audio_start_token_id": token["audio_start_token_id"],
            "position_id_per_seconds": 13,
        },
        "code2wav_config": {
            "codebook_size": CODEBOOK,
            "num_quantizers": shape.code_groups,
            "hidden_size": 32,
            "num_hidden_layers": shape.code2wav_layers,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "intermediate_size": 48,
            "sliding_window": shape.sliding_window,
            "decoder_dim": 16,
        },
        "im_start_token_id": token["im_start_token_id"],
        "im_end_token_id": token["im_end_token_id"],
        "tts_pad_token_id": token["tts_pad_token_id"],
        "tts_bos_token_id": token["tts_bos_token_id"],
        "tts_eos_token_id": token["tts_eos_token_id"],
        "system_token_id": token["system_token_id"],
        "user_token_id": token["user_token_id"],
        "assistant_token_id": token["assistant_token_id"],
    }


_CONFIG_TOKENS = {
    "im_start_token_id": "<|im_start|>",
    "im_end_token_id": "<|im_end|>",
    "vision_start_token_id": "<|vision_start|>",
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "audio_start_token_id": "<|audio_start|>",
    "audio_token_id": "<|audio_pad|>",
    "tts_pad_token_id": "<tts_pad>",
    "tts_bos_token_id": "<tts_text_bos>",
    "tts_eos_token_id": "<tts_text_eod>",
    "system_token_id": "system",
    "user_token_id": "user",
    "assistant_token_id": "assistant",
}


def _generation_config(vocab: dict[str, int]) -> dict[str, object]:
    """The published generation defaults, with this tokenizer's ids."""
    return {
        "thinker_max_new_tokens": 1024,
        "thinker_eos_token_id": vocab["<|im_end|>"],
        "talker_max_new_tokens": 4096,
        "talker_temperature": 0.9,
        "talker_top_k": 50,
        "talker_top_p": 1.0,
        "talker_repetition_penalty": 1.05,
    }


def _preprocessor_config() -> dict[str, object]:
    """The published values; small pictures are allowed so that tests stay fast."""
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "Qwen3OmniMoeProcessor",
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "min_pixels": 64 * 64,
        "max_pixels": 256 * 256,
        "feature_size": 128,
        "sampling_rate": 16000,
        "hop_length": 160,
        "n_fft": 400,
        "chunk_length": 300,
        "dither": 0.0,
        "padding_value": 0.0,
        "padding_side": "right",
        "return_attention_mask": True,
    }


def _jitter(model: nn.Module) -> None:
    """Draw every parameter anew, wide enough that logits differ clearly and waveforms do not clip."""
    for name, parameter in model.named_parameters():
        _draw(name, parameter)


@torch.no_grad()
def _draw(name: str, parameter: nn.Parameter) -> None:
    if _ends(name, ("alpha", "beta")):
        parameter.normal_(0.0, 0.2)
    elif _ends(name, ("scale", "gamma")):
        parameter.normal_(0.3, 0.05)
    elif "norm" in name or "ln_" in name:
        parameter.normal_(1.0 if name.endswith("weight") else 0.0, 0.1)
    elif name.endswith("bias"):
        parameter.normal_(0.0, 0.05)
    elif "embed" in name and parameter.dim() == 2:
        parameter.normal_(0.0, 1.0)
    elif ".gate.weight" in name:
        parameter.normal_(0.0, 4.0 / parameter.shape[-1] ** 0.5)
    else:
        fan_in = parameter[0].numel() if parameter.dim() != 3 or "conv" in name else parameter.shape[-1]
        gain = 2.0 if "head" in name else 0.01 if name.startswith(LAST_CONV) else 1.0
        parameter.normal_(0.0, gain / max(1, fan_in) ** 0.5)


def _ends(name: str, endings: Sequence[str]) -> bool:
    return name.rsplit(".", 1)[-1] in endings
