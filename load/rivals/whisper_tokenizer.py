"""A `tokenizer.json` for faster-whisper from the vocabulary that the weights come with. Pure.

faster-whisper asks a model hub for it where the folder has none. Byte-level BPE ranks its merges by the
token they make, so the vocabulary's order says them all: each token is split by the merges before it.
"""

from collections.abc import Sequence
from itertools import pairwise

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

BYTES = 256
SPECIAL = "<|endoftext|>"
"""The first token that stands for no text; all behind it are special too."""


def tokenizer(vocabulary: Sequence[str]) -> Tokenizer:
    """The tokenizer of an English Whisper; `vocabulary`: its tokens in order of id."""
    words = list(vocabulary[: vocabulary.index(SPECIAL)])
    ranks = {word: rank for rank, word in enumerate(words)}
    merges = [split(word, ranks) for word in words[BYTES:]]
    built = Tokenizer(models.BPE(vocab=ranks, merges=merges))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(token, special=True) for token in vocabulary[len(words) :]])
    return built


def split(word: str, ranks: dict[str, int]) -> tuple[str, str]:
    """The two tokens that merge into `word`, which is one token of `ranks` and longer than a byte."""
    pieces = list(word)
    while len(pieces) > 2:
        pairs = [(ranks.get(a + b, ranks[word]), i) for i, (a, b) in enumerate(pairwise(pieces))]
        rank, at = min(pairs)
        if rank >= ranks[word]:
            raise ValueError(f"{word!r}: no merges before it make it")
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    return pieces[0], pieces[1]
