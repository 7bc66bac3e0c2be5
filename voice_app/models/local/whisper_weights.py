"""The decoder of a folder that holds a Whisper model in CTranslate2's format: its weights, words and rules.

`model.bin` is a header (version of the format, name and revision of the model's kind), then variables, each
with name, shape, type and bytes, then aliases: names that stand for other variables. Matrices may be of 8 or
16 bits; then each row, or the whole, has a scale by which it was multiplied.
"""

import json
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from voice_app.errors import ModelFileError

_FORMAT, _KIND = 6, "WhisperSpec"
_BFLOAT16 = np.dtype("<u2")
_TYPES = [np.dtype(name) for name in ("<f4", "i1", "<i2", "<i4", "<f2")] + [_BFLOAT16]
"""By their numbers in the file; numpy has no bfloat16, and nothing else is unsigned."""
_SETTINGS = {
    "pre_norm": 1,
    "scale_embeddings": 0,
    "start_from_zero_embedding": 0,
    "alibi": 0,
    "activation": 3,
}
"""Of a Whisper decoder, whose activation is the exact GELU; a file may leave them out."""
_START, _END = "<|startoftranscript|>", "<|endoftext|>"
_TASK, _PLAIN = ("<|en|>", "<|transcribe|>"), "<|notimestamps|>"


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The numbers that a Whisper decoder is built from. `positions`: its longest text, prompt included."""

    layers: int
    width: int
    heads: int
    vocab: int
    positions: int


class WhisperWeights:
    """An open `model.bin`. Variables are mapped into memory, and converted when asked for."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelFileError if the file is damaged or holds another decoder than Whisper's."""
        self._path = folder / "model.bin"
        try:
            with self._path.open("rb") as file:
                self._variables, self._aliases = _read(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            self.shape = self._shape()
        except (OSError, ValueError, TypeError, ArithmeticError, KeyError, IndexError, struct.error) as error:
            raise self._foreign(str(error)) from error

    def tensor(self, name: str) -> np.ndarray:
        """float32: the decoder's variable `name`; a matrix is [out, in]. Raises ModelFileError."""
        name = self._stored(name)
        values = self._variables.get(name)
        if values is None:
            raise self._foreign(f"it has no {name}")
        if values.dtype == _BFLOAT16:
            return (values.astype(np.uint32) << 16).view(np.float32)
        values = values.astype(np.float32)
        scale = self._variables.get(f"{name}_scale")
        return values if scale is None else values / scale.astype(np.float32).reshape(-1, 1)

    def _foreign(self, why: str) -> ModelFileError:
        return ModelFileError(
            f"{self._path}: no Whisper model in CTranslate2's format ({why}); convert it anew",
            param="recogniser",
        )

    def _stored(self, name: str) -> str:
        return self._aliases.get(f"decoder/{name}", f"decoder/{name}")

    def _shape(self) -> DecoderShape:
        for name, known in _SETTINGS.items():
            if int(self._variables.get(f"decoder/{name}", known)) != known:
                raise ValueError(f"decoder/{name} is not {known}")
        positions, width = self._variables[self._stored("position_encodings/encodings")].shape
        vocab, wide = self._variables[self._stored("embeddings/weight")].shape
        heads = int(self._variables["decoder/num_heads"])
        if self._stored("projection/weight") != self._stored("embeddings/weight"):
            raise ValueError("its output matrix is not its embedding")
        layers = 0
        while f"decoder/layer_{layers}/ffn/linear_0/weight" in self._variables:
            layers += 1
        if not layers or wide != width or width % heads or width % 64:
            raise ValueError(f"{layers} layers, {heads} heads, width {width} and {wide}")
        return DecoderShape(layers, width, heads, vocab, positions)


@dataclass(frozen=True, slots=True)
class WhisperWords:
    """What the decoder writes, and what it may not. `pieces`: each token's text, by its id."""

    pieces: list[str]
    prompt: list[int]
    end: int
    never: list[int]
    never_first: list[int]


def read_words(folder: Path, multilingual: bool) -> WhisperWords:
    """The vocabulary and config.json of a model of English, or of many languages that is told so.
    Raises ModelFileError."""
    try:
        pieces = _vocabulary(folder)
        config = json.loads((folder / "config.json").read_text("utf-8"))
        prompt = [_START, *(_TASK if multilingual else ()), _PLAIN]
        return WhisperWords(
            pieces,
            [pieces.index(piece) for piece in prompt],
            pieces.index(_END),
            config.get("suppress_ids") or [],
            config.get("suppress_ids_begin") or [],
        )
    except (OSError, ValueError, AttributeError) as error:
        raise ModelFileError(
            f"{folder}: its vocabulary or config.json is not of a Whisper model ({error})", param="recogniser"
        ) from error


def _vocabulary(folder: Path) -> list[str]:
    as_json = folder / "vocabulary.json"
    if as_json.exists():
        return json.loads(as_json.read_text("utf-8"))
    # Lines end with "\n" alone: the other ends of lines that Python knows are no characters of a token.
    return (folder / "vocabulary.txt").read_bytes().decode("utf-8").removesuffix("\n").split("\n")


def _read(data: mmap.mmap) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The variables and the aliases of a `model.bin`."""
    at = 0

    def number(form: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(f"<{form}")
        return value

    def text() -> str:
        nonlocal at
        size = number("H")
        at += size
        return data[at - size : at].rstrip(b"\0").decode()

    version = number("I")
    if version != _FORMAT:
        raise ValueError(f"its format is {version}")
    kind, _ = text(), number("I")
    if kind != _KIND:
        raise ValueError(f"it is a {kind}")
    variables: dict[str, np.ndarray] = {}
    for _ in range(number("I")):
        name = text()
        shape = [number("I") for _ in range(number("B"))]
        kind, size = _TYPES[number("B")], number("I")
        variables[name] = np.frombuffer(data, kind, size // kind.itemsize, at).reshape(shape)
        at += size
    return variables, {text(): text() for _ in range(number("I"))}
