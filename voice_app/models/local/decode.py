"""Tokens of a model's vocabulary: text to ids, ids to bytes. The decode stage's runner."""

import re
from collections.abc import Sequence

from tokenizers import Tokenizer

from voice_app.errors import ModelFileError


def _byte_letters() -> dict[str, int]:
    """The letter that stands for each byte in a byte-level vocabulary: printable Latin-1 bytes stand for
    themselves, the others for the letters from U+0100 on (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTE = _byte_letters()
_NAMED_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def byte_level(word: str) -> bytes:
    """The bytes of a word of a byte-level BPE vocabulary."""
    if all(letter in _BYTE for letter in word):
        return bytes(_BYTE[letter] for letter in word)
    return word.encode()


def sentence_piece(word: str) -> bytes:
    """The bytes of a SentencePiece word: "▁" is a space, "<0x0A>" a byte."""
    if named := _NAMED_BYTE.fullmatch(word):
        return bytes([int(named[1], 16)])
    return word.replace("▁", " ").encode()


class VocabularyTokens:
    """A `tokenizers` tokenizer; implements `Tokens` and, for the decode stage, `TokenDecoder`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises ModelFileError if the vocabulary is of no known kind."""
        if tokenizer.token_to_id("Ġ") is not None:
            spelled = byte_level
        elif tokenizer.token_to_id("▁") is not None:
            spelled = sentence_piece
        else:
            raise ModelFileError("the thinker's tokenizer is neither byte-level BPE nor SentencePiece")
        self._tokenizer = tokenizer
        special = {token for token, added in tokenizer.get_added_tokens_decoder().items() if added.special}
        self._bytes = [
            b"" if token in special else spelled(tokenizer.id_to_token(token) or "")
            for token in range(tokenizer.get_vocab_size())
        ]

    def encode(self, text: str) -> list[int]:
        return self._encode(text, plain=True)

    def encode_frame(self, text: str) -> list[int]:
        """As `encode`, but names of control tokens mean those tokens."""
        return self._encode(text, plain=False)

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, ids)).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""

    def id(self, name: str) -> int:
        """The id of the control token `name`. Raises ModelFileError if there is none."""
        token = self._tokenizer.token_to_id(name)
        if token is None:
            raise ModelFileError(f"the thinker's tokenizer has no {name}: not a chat model of this kind")
        return token

    def warm_up(self) -> None:
        self.decode(self.encode("Hello."))

    def _encode(self, text: str, *, plain: bool) -> list[int]:
        # What a user says is never a control token, even where it reads like one.
        self._tokenizer.encode_special_tokens = plain
        return self._tokenizer.encode(text, add_special_tokens=False).ids
