"""The packaged brain's GGUF file: its shape, its weights as float32, its tokenizer.

Only what this file is made of: the Llama architecture with grouped KV heads, tied embeddings and a byte-level
BPE vocabulary (SmolLM2). Any other GGUF goes through transformers (`brain_transformers.py`).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFReader, dequantize
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from voice_app.errors import ModelFileError

_CONTROL_TOKEN = 3
"""GGUF's token type for tokens that are never text."""


@dataclass(frozen=True, slots=True)
class BrainShape:
    """The numbers that a Llama-like model is built from."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    rope_base: float
    norm_epsilon: float


class GgufBrain:
    """An open GGUF file. Tensors are memory-mapped and dequantised when asked for."""

    def __init__(self, path: Path) -> None:
        """Raises ModelFileError if `path` is no GGUF file of the packaged brain's kind."""
        try:
            self._reader = GGUFReader(path)
        except (OSError, ValueError) as error:
            raise ModelFileError(f"{path}: not a readable GGUF file ({error}); pull it again") from error
        self._path = path
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        if self._field("general.architecture") != "llama" or "output.weight" in self._tensors:
            raise ModelFileError(f"{path}: not the packaged brain; give it as --brain {path}")
        self.shape = self._shape()

    def tensor(self, name: str) -> np.ndarray:
        """float32; a matrix is [out, in]."""
        tensor = self._tensors[name]
        return np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)

    def rotary(self, name: str, heads: int) -> np.ndarray:
        """A query or key projection [heads · dim, in] whose rotary halves lie one after the other. GGUF
        stores the two halves of each head interleaved."""
        weight = self.tensor(name)
        dim = self.shape.head_dim
        pairs = weight.reshape(heads, dim // 2, 2, weight.shape[1])
        return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(weight.shape))

    def tokenizer(self) -> Tokenizer:
        """The vocabulary as a `tokenizers` object, with control tokens marked special."""
        words = self._field("tokenizer.ggml.tokens")
        types = self._field("tokenizer.ggml.token_type")
        merges = [tuple(merge.split(" ", 1)) for merge in self._field("tokenizer.ggml.merges")]
        made = Tokenizer(models.BPE({word: place for place, word in enumerate(words)}, merges))
        digits = pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        made.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
        made.decoder = decoders.ByteLevel()
        special = [word for word, kind in zip(words, types, strict=True) if kind == _CONTROL_TOKEN]
        made.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in special])
        return made

    def _field(self, name: str):
        field = self._reader.fields.get(name)
        if field is None:
            raise ModelFileError(f"{self._path}: has no {name}; pull it again")
        return field.contents()

    def _shape(self) -> BrainShape:
        width, heads = self._field("llama.embedding_length"), self._field("llama.attention.head_count")
        return BrainShape(
            layers=self._field("llama.block_count"),
            width=width,
            heads=heads,
            kv_heads=self._field("llama.attention.head_count_kv"),
            head_dim=width // heads,
            inner=self._field("llama.feed_forward_length"),
            vocab=self._field("llama.vocab_size"),
            rope_base=self._field("llama.rope.freq_base"),
            norm_epsilon=self._field("llama.attention.layer_norm_rms_epsilon"),
        )
