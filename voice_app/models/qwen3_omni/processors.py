"""All contact with transformers' tokenizer and processors: chat template, mel frames, picture patches.

They follow the checkpoint's own files. The whole processor class is not used: it wants a video
processor, which wants torchvision, which does not pair with every build of torch.
"""

import io
import json
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from transformers import AutoTokenizer, PreTrainedTokenizerBase, WhisperFeatureExtractor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from voice_app.errors import InputError, ModelFileError
from voice_app.models.qwen3_omni.checkpoint import Checkpoint

MAX_PIXELS = 100_000_000
"""Largest picture that is opened: a file of a few KB may unpack to gigabytes."""


VOCABULARIES = ("tokenizer.json", "vocab.json")
"""A tokenizer has one of these."""


class TextProcessor:
    """The checkpoint's tokenizer and chat template."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        if not any((checkpoint.folder / name).exists() for name in VOCABULARIES):
            raise ModelFileError(
                f"{checkpoint.folder}: neither {' nor '.join(VOCABULARIES)} is there; take the "
                "tokenizer's files from the published checkpoint",
                param="model",
            )
        try:
            tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder, local_files_only=True)
        except (OSError, ValueError, KeyError, TypeError, json.JSONDecodeError) as error:
            reason = str(error).splitlines()[0]
            raise ModelFileError(
                f"{checkpoint.folder}: no usable tokenizer ({reason}); take them from the published one",
                param="model",
            ) from error
        assert isinstance(tokenizer, PreTrainedTokenizerBase)
        named = checkpoint.integer("im_start_token_id")
        if len(tokenizer) <= named:
            raise ModelFileError(
                f"{checkpoint.folder}: the tokenizer has {len(tokenizer)} tokens, config.json names {named}; "
                "take its files from the published checkpoint",
                param="model",
            )
        self._tokenizer = tokenizer
        template = checkpoint.chat_template() or tokenizer.chat_template
        if not isinstance(template, str):
            raise ModelFileError(
                f"{checkpoint.folder}: no chat template; take chat_template.json from the published model",
                param="model",
            )
        self._template = template
        self._specials = sorted(
            {str(token) for token in tokenizer.added_tokens_decoder.values() if str(token)},
            key=len,
            reverse=True,
        )
        # Others that were added, such as the marks of a call, are text.
        self._special_ids = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._bytes = _byte_alphabet()

    def prompt_ids(self, conversation: Sequence[dict], tools: Sequence[dict]) -> list[int]:
        """Token ids of the rendered conversation with the assistant's header; media are one id each."""
        text = self._tokenizer.apply_chat_template(
            list(conversation),
            chat_template=self._template,
            tools=list(tools) or None,
            tokenize=False,
            add_generation_prompt=True,
        )
        assert isinstance(text, str)
        return self._tokenizer.encode(text, add_special_tokens=False)

    def ids(self, text: str) -> tuple[int, ...]:
        """Token ids of `text` by itself; the marks of a call are tokens where the tokenizer has them."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def plain(self, text: str) -> str:
        """`text` with a zero-width space inside whatever would read as a control token: what a user or a
        tool says must not open or close a turn."""
        for special in self._specials:
            if special in text:
                text = text.replace(special, f"{special[0]}\u200b{special[1:]}")
        return text

    def token_bytes(self, token: int) -> bytes:
        """The token's bytes; b"" for control tokens."""
        if token in self._special_ids:
            return b""
        piece = self._tokenizer.convert_ids_to_tokens(token)
        if not isinstance(piece, str):
            return b""
        return bytes(self._bytes[c] for c in piece if c in self._bytes)


class AudioProcessor:
    """Samples to mel frames."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        try:
            self._extractor = WhisperFeatureExtractor.from_pretrained(
                checkpoint.folder, local_files_only=True
            )
        except (OSError, ValueError, TypeError) as error:
            raise _preprocessor_error(checkpoint, error) from error
        self.sample_rate = int(self._extractor.sampling_rate)
        self.hop = int(self._extractor.hop_length)

    def frames(self, samples: np.ndarray) -> np.ndarray:
        """Mel frames [mel_bins, n] float32 of `samples` [n] float32 at `sample_rate`."""
        features = self._extractor(
            [samples],
            sampling_rate=self.sample_rate,
            padding="longest",
            truncation=False,
            return_attention_mask=True,
            return_tensors="np",
        )
        count = int(features["attention_mask"][0].sum())
        return np.ascontiguousarray(features["input_features"][0][:, :count], np.float32)


class ImageProcessor:
    """Encoded pictures to patches."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        try:
            self._processor = Qwen2VLImageProcessorPil.from_pretrained(
                checkpoint.folder, local_files_only=True
            )
        except (OSError, ValueError, TypeError) as error:
            raise _preprocessor_error(checkpoint, error) from error

    def patches(self, data: bytes) -> tuple[np.ndarray, tuple[int, int, int]]:
        """Patches [n, values] float32 of a JPEG, PNG or WebP file, and their grid (1, rows, columns)."""
        try:
            with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as opened:
                if opened.width * opened.height > MAX_PIXELS:
                    raise InputError(
                        f"image: {opened.width} x {opened.height} pixels; send at most {MAX_PIXELS}",
                        param="image",
                    )
                picture = ImageOps.exif_transpose(opened).convert("RGB")
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            # Of a foreign file Pillow says only which object it has read.
            reason = "" if isinstance(error, UnidentifiedImageError) else f" ({error})"
            raise InputError(
                f"image: not a readable JPEG, PNG or WebP picture{reason}; save it again", param="image"
            ) from error
        try:
            made = self._processor(images=[picture], return_tensors="np")
        except ValueError as error:
            raise InputError(f"image: {error}; crop it", param="image") from error
        frames, rows, columns = (int(n) for n in made["image_grid_thw"][0])
        return np.ascontiguousarray(made["pixel_values"], np.float32), (frames, rows, columns)


def _preprocessor_error(checkpoint: Checkpoint, error: Exception) -> ModelFileError:
    path = checkpoint.folder / "preprocessor_config.json"
    reason = str(error).splitlines()[0] if path.exists() else "missing"
    return ModelFileError(f"{path}: {reason}; take it from the published checkpoint", param="model")


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE's printable stand-ins for the 256 bytes (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in printable}
    others = [b for b in range(256) if b not in printable]
    return table | {chr(256 + n): b for n, b in enumerate(others)}
