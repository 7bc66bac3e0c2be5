"""Moonshine tiny (English) on ONNX Runtime: raw 16 kHz samples → text, greedy, with a KV cache.

The encoder takes samples of any length, so short speech costs little; the decoder is one graph whose
`use_cache_branch` input says whether the cross-attention's keys and values are made or re-used.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from voice_app.models.local.onnx_session import onnx_session
from voice_app.models.local.recogniser import SAMPLE_RATE, Heard, Hearing, loop_start

_LAYERS, _HEADS, _HEAD_DIM = 6, 8, 36
_BOS, _EOS = 1, 2
_TOKENS_PER_SECOND = 6.5
"""More than speech ever needs; Moonshine's own bound against runaway decoding."""
_MIN_SAMPLES = 1600
"""Below 0.1 s the encoder's strides leave nothing to attend to."""
_NAMES = tuple(
    f"{i}.{side}.{part}"
    for i in range(_LAYERS)
    for side in ("decoder", "encoder")
    for part in ("key", "value")
)


class Moonshine:
    """A `Recogniser`. `folder` holds encoder_model.ort, decoder_model_merged.ort and tokenizer.bin."""

    max_seconds = 20.0

    def __init__(self, folder: Path, identity: str, threads: int = 1) -> None:
        self.identity = identity
        self._encoder = onnx_session(folder / "encoder_model.ort", threads)
        self._decoder = onnx_session(folder / "decoder_model_merged.ort", threads)
        self._pieces = _read_pieces(folder / "tokenizer.bin")
        self._outputs = ["logits", *(f"present.{name}" for name in _NAMES)]

    def hearing(self, samples: np.ndarray, draft: Sequence[int] = ()) -> Hearing:
        yield from ()
        return self.hear(samples)

    def hear(self, samples: np.ndarray) -> Heard:
        if len(samples) < _MIN_SAMPLES:
            samples = np.pad(samples, (0, _MIN_SAMPLES - len(samples)))
        mask = np.ones((1, len(samples)), np.int64)
        hidden = self._encoder.run(None, {"input_values": samples[None], "attention_mask": mask})[0]
        most = math.ceil(len(samples) / SAMPLE_RATE * _TOKENS_PER_SECOND) + 2
        return self._decode(np.asarray(hidden), mask, most)

    def _decode(self, hidden: np.ndarray, mask: np.ndarray, most: int) -> Heard:
        inputs: dict[str, np.ndarray] = {
            "encoder_hidden_states": hidden,
            # Of samples: the graph thins it out to the encoder's rows itself.
            "encoder_attention_mask": mask,
            "input_ids": np.array([[_BOS]], np.int64),
            "use_cache_branch": np.array([False]),
        }
        for name in _NAMES:
            inputs[f"past_key_values.{name}"] = np.zeros((1, _HEADS, 0, _HEAD_DIM), np.float32)
        ids: list[int] = []
        total = 0.0
        while len(ids) < most:
            logits, *present = self._decoder.run(self._outputs, inputs)
            last = np.asarray(logits)[0, -1]
            token = int(last.argmax())
            total -= float(np.log(np.exp(last - last[token]).sum()))
            if token == _EOS:
                break
            ids.append(token)
            if (cut := loop_start(ids)) is not None:
                return Heard(self._text(ids[:cut]), total / len(ids), looped=True)
            for name, value in zip(_NAMES, present, strict=True):
                # With the cache branch the graph gives no cross-attention back: keep the first one's.
                if ".decoder." in name or len(ids) == 1:
                    inputs[f"past_key_values.{name}"] = np.asarray(value)
            inputs["input_ids"] = np.array([[token]], np.int64)
            inputs["use_cache_branch"] = np.array([True])
        return Heard(self._text(ids), total / (len(ids) + 1))

    def _text(self, ids: list[int]) -> str:
        data = b"".join(self._pieces[i] for i in ids)
        return data.decode("utf-8", errors="replace").replace("▁", " ").strip()


def _read_pieces(path: Path) -> list[bytes]:
    """The vocabulary: each token's bytes after a length of one byte, or of two (low 7 bits first) when the
    first one's top bit is set. Control tokens `<…>` are given as nothing."""
    data = path.read_bytes()
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        length, at = data[at], at + 1
        if length >= 128:
            length, at = (length - 128) + data[at] * 128, at + 1
        pieces.append(data[at : at + length])
        at += length
    return [b"" if p.startswith(b"<") and p.endswith(b">") and len(p) > 2 else p for p in pieces]
