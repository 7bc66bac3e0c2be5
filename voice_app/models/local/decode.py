"""Tokens of a byte-level BPE vocabulary: text to ids, ids to bytes. The decode stage's runner."""

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


class ByteLevelTokens:
    """A byte-level BPE tokenizer; it implements `Tokens` and, for the decode stage, `TokenDecoder`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        # What a user says is never a control token, even where it reads like one.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        special = {token for token, added in tokenizer.get_added_tokens_decoder().items() if added.special}
        self._bytes = [
            b"" if token in special else self._spelled(token) for token in range(tokenizer.get_vocab_size())
        ]

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, ids)).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""

    def id(self, name: str) -> int:
        """The id of the special token `name`. Raises ModelFileError if there is none."""
        token = self._tokenizer.token_to_id(name)
        if token is None:
            raise ModelFileError(f"the thinker's tokenizer has no {name}: not a chat model of this kind")
        return token

    def warm_up(self) -> None:
        self.decode(self.encode("Hello."))

    def _spelled(self, token: int) -> bytes:
        word = self._tokenizer.id_to_token(token) or ""
        if all(letter in _BYTE for letter in word):
            return bytes(_BYTE[letter] for letter in word)
        return word.encode()
