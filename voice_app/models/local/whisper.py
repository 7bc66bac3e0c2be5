"""Whisper: log-mel features of a short window → text. CTranslate2 encodes in 8 bits, our own decoder
(`whisper_decoder.py`) writes.

Whisper was trained on windows of 30 s, most of which end in silence; without any, decoding says over again
what it said. So speech is encoded with half a second of silence around it, and what follows it is the
encoding of silence, which is always the same: two seconds, and 10.5 s in all at least. The encoder hears a
little better where that silence is its own: short speech that leaves doubt is heard again so.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import ctranslate2
import numpy as np
from tokenizers import decoders
from transformers.audio_utils import mel_filter_bank

from voice_app.errors import ModelFileError
from voice_app.models.local.recogniser import SAMPLE_RATE, Heard, Hearing, finish, loop_start
from voice_app.models.local.whisper_decoder import WhisperDecoder

_FFT, _HOP = 400, 160
_STEP = 2 * _HOP
"""Samples that become one step: the encoder halves the frames."""
_STEPS = 1500
"""All positions that a Whisper model knows, 30 s."""
_MARGIN = SAMPLE_RATE // 2
_SILENT_STEPS, _LEAST_STEPS = 2 * SAMPLE_RATE // _STEP, 21 * SAMPLE_RATE // 2 // _STEP
_SILENCE = -0.73
"""Features of silence beside speech at the level that preprocessing brings it to: the median over the
benchmark's speech, where they are -0.80 to -0.65."""
_DOUBT = -0.6
"""Mean log-probability below which short speech is heard again: one in eleven, and more in noise."""
_TOKENS_PER_SECOND, _SPARE_TOKENS = 6, 8
"""Bound on the answer, more than speech ever needs: decoding that runs away costs no more than this."""


class Whisper:
    """A `Recogniser` over a folder in CTranslate2's format: model.bin, config.json, vocabulary file.

    English only: a model of many languages is told that it hears English. Raises ModelFileError."""

    max_seconds = 28.0

    def __init__(self, folder: Path, identity: str, threads: int = 1) -> None:
        self.identity = identity
        try:
            self._model = ctranslate2.models.Whisper(
                str(folder), device="cpu", compute_type="int8", inter_threads=1, intra_threads=threads
            )
        except (RuntimeError, ValueError) as error:
            raise ModelFileError(
                f"{folder}: no Whisper model in CTranslate2's format ({error}); it needs model.bin, "
                "config.json and a vocabulary file",
                param="recogniser",
            ) from error
        self._filters = mel_filters(self._model.n_mels)
        self._pieces = decoders.ByteLevel()
        silence = self._encoded(np.full((self._model.n_mels, 2 * _STEPS), _SILENCE, np.float32))
        self._decoder = WhisperDecoder(folder, self._model.is_multilingual, silence, threads)

    def hear(self, samples: np.ndarray, draft: Sequence[int] = ()) -> Heard:
        """`draft`: tokens that are thought to be in `samples`. But for rounding what is heard does not depend
        on them; it comes the sooner the more of their beginning is right."""
        return finish(self.hearing(samples, draft))

    def hearing(self, samples: np.ndarray, draft: Sequence[int] = ()) -> Hearing:
        """Encoding, decoding and, where doubt is left, both once more."""
        first = yield from self._hearing(samples, 0, draft)
        if first.score >= _DOUBT or _steps(samples) >= _LEAST_STEPS:
            return first
        yield
        second = yield from self._hearing(samples, _LEAST_STEPS, draft)
        return max(first, second, key=lambda heard: heard.score)

    def _hearing(self, samples: np.ndarray, least: int, draft: Sequence[int]) -> Hearing:
        """`samples` encoded with the silence around them in `least` steps at least, and decoded."""
        encoded = self._encoded(self.features(samples, least))
        yield
        steps = max(len(encoded) + (0 if least else _SILENT_STEPS), _LEAST_STEPS)
        most = math.ceil(len(samples) / SAMPLE_RATE * _TOKENS_PER_SECOND) + _SPARE_TOKENS
        written = self._decoder.write(encoded, steps, most, draft)
        cut = loop_start(written.ids)
        text = self._pieces.decode(self._decoder.pieces(written.ids[:cut])).strip()
        return Heard(text, written.score, cut is not None, tuple(written.ids[:cut]))

    def _encoded(self, features: np.ndarray) -> np.ndarray:
        """[mels, frames] → [frames / 2, width] float32."""
        view = ctranslate2.StorageView.from_array(features[None])
        return np.array(self._model.encode(view, to_cpu=True))[0]

    def features(self, samples: np.ndarray, least: int = 0) -> np.ndarray:
        """[mels, frames] float32 of what is encoded: `samples` and the silence around them, in `least` steps
        at least."""
        window = np.zeros(max(_steps(samples), least) * _STEP, np.float32)
        window[_MARGIN : _MARGIN + len(samples)] = samples
        return log_mel(window, self._filters)


def _steps(samples: np.ndarray) -> int:
    """How many hold `samples` and the silence around them."""
    return -(-(len(samples) + 2 * _MARGIN) // _STEP)


def mel_filters(count: int) -> np.ndarray:
    """[201, count] float32: Whisper's filters, slaney scale and norm, 0 to 8 kHz."""
    return mel_filter_bank(
        num_frequency_bins=_FFT // 2 + 1,
        num_mel_filters=count,
        min_frequency=0.0,
        max_frequency=SAMPLE_RATE / 2,
        sampling_rate=SAMPLE_RATE,
        norm="slaney",
        mel_scale="slaney",
    ).astype(np.float32)


def log_mel(samples: np.ndarray, filters: np.ndarray) -> np.ndarray:
    """[n] float32 at 16 kHz, n a multiple of 160 → [mels, n / 160] float32, as Whisper was trained on:
    power spectra of 25 ms Hann windows every 10 ms, log10 clamped to 8 below the loudest, scaled to about
    [-1, 1]."""
    padded = np.pad(samples, _FFT // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, _FFT)[::_HOP][: len(samples) // _HOP]
    hann = np.hanning(_FFT + 1)[:-1].astype(np.float32)
    power = np.square(np.abs(np.fft.rfft(frames * hann, axis=1))).astype(np.float32)
    mel = np.log10(np.maximum(power @ filters, 1e-10))
    mel = (np.maximum(mel, mel.max() - 8.0) + 4.0) / 4.0
    return np.ascontiguousarray(mel.T, dtype=np.float32)
