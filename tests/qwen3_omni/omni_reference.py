"""What transformers itself makes of a request: the expected values of every equality test."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import AutoTokenizer, Qwen3OmniMoeForConditionalGeneration, WhisperFeatureExtractor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_omni_moe.processing_qwen3_omni_moe import _get_feat_extract_output_lengths

from voice_app import messages as m


@dataclass
class Expected:
    token_ids: list[int]
    """Without the EOS."""
    codes: np.ndarray
    """[frames, groups]"""
    wave: np.ndarray


class Reference:
    """`generate()` on the checkpoint, one request at a time, in float32."""

    def __init__(self, folder: Path) -> None:
        self.model: Any = Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        # Without it audio and pictures in one request crash with speech.
        self.model.talker.config.audio_config = self.model.config.thinker_config.audio_config
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.template = json.loads((folder / "chat_template.json").read_text())["chat_template"]
        self.mel = WhisperFeatureExtractor.from_pretrained(folder)
        self.pictures = Qwen2VLImageProcessorPil.from_pretrained(folder)
        self._codes: list[torch.Tensor] = []
        self.model.code2wav.chunked_decode = self._capture

    def _capture(self, codes: torch.Tensor, **_: object) -> torch.Tensor:
        self._codes.append(codes)
        return torch.zeros(1, 1, 1)

    def inputs(self, messages: Sequence[m.Message]) -> dict[str, torch.Tensor]:
        """What the processor of transformers gives for the conversation."""
        audios: list[np.ndarray] = []
        pictures: list[Image.Image] = []
        conversation = []
        for message in messages:
            content: list[dict[str, str]] = []
            for part in message.parts:
                if isinstance(part, m.TextPart):
                    content.append({"type": "text", "text": part.text})
                elif isinstance(part, m.AudioPart):
                    audios.append(part.samples)
                    content.append({"type": "audio"})
                elif isinstance(part, m.ImagePart):
                    pictures.append(Image.open(io.BytesIO(part.data)).convert("RGB"))
                    content.append({"type": "image"})
            plain = message.role != "user"
            conversation.append(
                {"role": message.role, "content": "".join(c["text"] for c in content) if plain else content}
            )
        text = self.tokenizer.apply_chat_template(
            conversation, chat_template=self.template, tokenize=False, add_generation_prompt=True
        )
        made: dict[str, torch.Tensor] = {}
        if audios:
            # Each by itself, then side by side: a cached recording must not depend on its neighbours.
            alone = [
                self.mel(
                    [a],
                    sampling_rate=16000,
                    padding="longest",
                    truncation=False,
                    return_attention_mask=True,
                    return_tensors="pt",
                )
                for a in audios
            ]
            lengths = [int(one["attention_mask"].sum()) for one in alone]
            features = torch.zeros(len(audios), 128, max(lengths))
            mask = torch.zeros(len(audios), max(lengths), dtype=torch.long)
            for row, (one, length) in enumerate(zip(alone, lengths, strict=True)):
                features[row, :, :length] = one["input_features"][0, :, :length]
                mask[row, :length] = 1
            made |= {"input_features": features, "feature_attention_mask": mask}
            for length in lengths:
                count = int(_get_feat_extract_output_lengths(torch.tensor(length)))
                text = text.replace("<|audio_pad|>", "<A>" * count, 1)
        if pictures:
            out = self.pictures(images=pictures, return_tensors="pt")
            made |= {"pixel_values": out["pixel_values"], "image_grid_thw": out["image_grid_thw"]}
            for grid in out["image_grid_thw"]:
                text = text.replace("<|image_pad|>", "<I>" * int(grid.prod() // 4), 1)
        text = text.replace("<A>", "<|audio_pad|>").replace("<I>", "<|image_pad|>")
        ids = self.tokenizer.encode(text, add_special_tokens=False, return_tensors="pt")
        return made | {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    @torch.no_grad()
    def run(self, request: m.TurnRequest, max_tokens: int, max_frames: int) -> Expected:
        """Greedy. Where `generate` crashes because a voice has no frame at all, its codes are none."""
        inputs = self.inputs(request.messages)
        bounds = {
            "thinker_max_new_tokens": max_tokens,
            "thinker_eos_token_id": self.model.config.im_end_token_id,
            # The last sampled first code gets no other codes: one frame less than tokens.
            "talker_max_new_tokens": max_frames + 1,
            "talker_do_sample": False,
        }
        self._codes.clear()
        try:
            out = self.model.generate(
                **inputs, return_audio=request.speech, speaker=request.voice or "ethan", **bounds
            )
        except RuntimeError as error:
            if "non-empty TensorList" not in str(error):
                raise
            out = self.model.generate(**inputs, return_audio=False, **bounds)
        sequence = (out[0] if isinstance(out, tuple) else out)[0, inputs["input_ids"].shape[1] :].tolist()
        tokens = [i for i in sequence if i != self.model.config.im_end_token_id]
        if not self._codes:
            return Expected(tokens, np.empty((0, 0), np.int64), np.empty(0, np.float32))
        codes = self._codes[0]
        return Expected(tokens, codes[0].T.numpy(), self.model.code2wav(codes)[0, 0].numpy())
