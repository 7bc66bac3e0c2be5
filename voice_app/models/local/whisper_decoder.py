"""Whisper's decoder on ONNX Runtime: encoded sound → the likeliest tokens, one after the other.

It chooses and rates as CTranslate2's `generate` does with one beam, in half of the time: the silence's keys
and values are made once, and a token's cost are the bytes of its weights, fewer here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from voice_app.errors import ModelFileError
from voice_app.models.local.onnx_session import onnx_session
from voice_app.models.local.whisper_graph import MEMORY, PAST, PRESENT, memory_graph, pass_graph
from voice_app.models.local.whisper_weights import WhisperWeights, read_words

_KEYS, _VALUES = 2, 1
"""The axis of positions in keys [heads, dim, n] and in values [heads, n, dim]."""

_NEAR = 4.0
"""Logits in 4 bits are off by 0.5 (standard deviation); of 1,155 tokens the likeliest one's was at most 0.93
below the highest."""


@dataclass(frozen=True, slots=True)
class Written:
    """`score`: the sum of the tokens' log-probabilities, the end's included, by the number of tokens without
    it."""

    ids: list[int]
    score: float


class WhisperDecoder:
    """The decoder of the Whisper model in `folder`, in CTranslate2's format. `silence` [n, width]: what is
    heard after speech, encoded."""

    def __init__(self, folder: Path, multilingual: bool, silence: np.ndarray, threads: int) -> None:
        """Raises ModelFileError."""
        weights = WhisperWeights(folder)
        self._words = read_words(folder, multilingual)
        shape = weights.shape
        highest = max([len(self._words.pieces) - 1, *self._words.never, *self._words.never_first])
        if highest >= shape.vocab:
            raise ModelFileError(
                f"{folder}: its vocabulary and config.json tell of tokens up to {highest}, the model knows "
                f"{shape.vocab}: they are of different models",
                param="recogniser",
            )
        # A model may know more tokens than have a text.
        self._words.pieces.extend([""] * (shape.vocab - len(self._words.pieces)))
        self._table = weights.tensor("embeddings/weight").astype(np.float16)
        self._positions = weights.tensor("position_encodings/encodings")
        self._remember = onnx_session(memory_graph(weights).SerializeToString(), threads)
        self._pass = onnx_session(pass_graph(weights).SerializeToString(), threads)
        self._longest = shape.positions
        layers = range(shape.layers)
        axes = ((0, _KEYS), (1, _VALUES))
        self._memory = [(MEMORY[i].format(layer), axis) for layer in layers for i, axis in axes]
        self._past = [(PAST[i].format(layer), axis) for layer in layers for i, axis in axes]
        present = [PRESENT[i].format(layer) for layer in layers for i, _ in axes]
        self._outputs = ["hidden", "logits", *present]
        dim = shape.width // shape.heads
        self._nothing = {
            name: np.empty((shape.heads, dim, 0) if axis == _KEYS else (shape.heads, 0, dim), np.float32)
            for name, axis in self._past
        }
        self._silence = self._remembered(silence)

    def write(self, encoded: np.ndarray, steps: int, most: int, draft: Sequence[int] = ()) -> Written:
        """What is said in `encoded` [n, width], after which it is silent up to position `steps`, in at most
        `most` tokens. `draft`: what it is thought to be; the same is written, the sooner the more of the
        draft's beginning is right."""
        memory = self.memory(encoded, steps)
        most = min(most, self._longest - len(self._words.prompt))
        draft = list(draft)[: most - 1]
        given, past, start = [*self._words.prompt, *draft], self._nothing, 0
        ids: list[int] = []
        total = 0.0
        while True:
            hidden, logits, present = self._passed(given, start, memory, past, len(given) - len(draft) - 1)
            for place in range(len(hidden)):
                token, score = self._choice(hidden[place], logits[place], first=not ids)
                total += score
                if token == self._words.end:
                    return Written(ids, total / max(len(ids), 1))
                ids.append(token)
                if len(ids) == most:
                    return Written(ids, total / most)
                if place < len(draft) and token != draft[place]:
                    break
            start = len(self._words.prompt) + len(ids) - 1
            past = {
                name: np.ascontiguousarray(value[..., :start] if axis == _KEYS else value[:, :start])
                for (name, axis), value in zip(self._past, present, strict=True)
            }
            given, draft = ids[-1:], []

    def memory(self, encoded: np.ndarray, steps: int) -> dict[str, np.ndarray]:
        """Keys and values of `encoded` and the silence after it, up to position `steps`."""
        made, begin = self._remembered(encoded), len(encoded)
        return {
            name: np.concatenate(
                [speech, silence[..., begin:steps] if axis == _KEYS else silence[:, begin:steps]], axis
            )
            for (name, axis), speech, silence in zip(self._memory, made, self._silence, strict=True)
        }

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces that `ids` stand for."""
        return [self._words.pieces[token] for token in ids]

    def _passed(
        self,
        ids: Sequence[int],
        start: int,
        memory: dict[str, np.ndarray],
        past: dict[str, np.ndarray],
        first: int,
    ) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """`ids` at positions from `start` on: hidden rows and rough logits from the one with index `first`
        on; all keys and values."""
        end = start + len(ids)
        x = self._table[ids] + self._positions[start:end]
        mask = np.triu(np.full((len(ids), end), -np.inf, np.float32), start + 1)
        inputs = {"x": x, "mask": mask, "first": np.array([first]), **memory, **past}
        hidden, logits, *present = [np.asarray(made) for made in self._pass.run(self._outputs, inputs)]
        return hidden, logits, present

    def _choice(self, hidden: np.ndarray, logits: np.ndarray, first: bool) -> tuple[int, float]:
        """The likeliest token and its log-probability, among those that may be. `logits` are rough: those
        near the highest are made anew."""
        logits[self._words.never] = -np.inf
        if first:
            logits[self._words.never_first] = -np.inf
        near = np.flatnonzero(logits > logits.max() - _NEAR)
        logits[near] = self._table[near] @ hidden
        token = int(logits.argmax())
        return token, -float(np.log(np.exp(logits - logits[token]).sum()))

    def _remembered(self, encoded: np.ndarray) -> list[np.ndarray]:
        made = self._remember.run([name for name, _ in self._memory], {"encoded": encoded})
        return [np.asarray(value) for value in made]
