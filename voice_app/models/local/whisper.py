"""Whisper on CTranslate2, 8-bit: log-mel features of a short window → text.

Whisper was trained on windows of 30 s, most of which end in silence; without any, decoding says over again
what it said. So speech is encoded with half a second of silence around it, and what follows it is the
encoding of silence, which is always the same: two seconds, and 10.5 s in all at least. The encoder hears a
little better where that silence is its own: short speech that leaves doubt is heard again so.
"""

import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import ctranslate2
import numpy as np
from tokenizers import decoders
from transformers.audio_utils import mel_filter_bank

from voice_app.errors import ModelFileError
from voice_app.models.local.recogniser import SAMPLE_RATE, Heard, loop_start

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
_BATCH = 8
_TOKENS_PER_SECOND, _SPARE_TOKENS = 8, 8
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
        language = ["<|en|>", "<|transcribe|>"] if self._model.is_multilingual else []
        self._prompt = ["<|startoftranscript|>", *language, "<|notimestamps|>"]
        self._filters = mel_filters(self._model.n_mels)
        self._pieces = decoders.ByteLevel()
        self._silence = self._encoded(np.full((self._model.n_mels, 2 * _STEPS), _SILENCE, np.float32))

    def hear(self, samples: np.ndarray) -> Heard:
        (heard,) = self.hear_all([samples])
        return heard

    def hear_all(self, speech: Sequence[np.ndarray]) -> list[Heard]:
        """Encoded one by one, which costs no more, and decoded as one batch where windows are of one length,
        which most are: decoding two or more at once costs two thirds of decoding them one by one."""
        heard = self._decoded([self._window(samples) for samples in speech], speech)
        doubted = [place for place, first in enumerate(heard) if first.score < _DOUBT]
        doubted = [place for place in doubted if _steps(speech[place]) < _LEAST_STEPS]
        some = [speech[place] for place in doubted]
        again = self._decoded([self._encoded(self.features(samples, _LEAST_STEPS)) for samples in some], some)
        for place, second in zip(doubted, again, strict=True):
            heard[place] = max(heard[place], second, key=lambda either: either.score)
        return heard

    def _decoded(self, windows: Sequence[np.ndarray], speech: Sequence[np.ndarray]) -> list[Heard]:
        """What was said in each of `speech`, of which `windows` [steps, width] are the encodings."""
        heard: dict[int, Heard] = {}
        order = sorted(range(len(speech)), key=lambda place: len(windows[place]))
        for _, alike in groupby(order, key=lambda place: len(windows[place])):
            places = list(alike)
            for start in range(0, len(places), _BATCH):
                batch = places[start : start + _BATCH]
                longest = max(len(speech[place]) for place in batch)
                heard |= zip(batch, self._hear(np.stack([windows[p] for p in batch]), longest), strict=True)
        return [heard[place] for place in range(len(speech))]

    def _window(self, samples: np.ndarray) -> np.ndarray:
        """[steps, width] float32: `samples` encoded, and the silence after them."""
        encoded = self._encoded(self.features(samples))
        end = max(len(encoded) + _SILENT_STEPS, _LEAST_STEPS)
        return np.concatenate([encoded, self._silence[len(encoded) : end]])

    def _encoded(self, features: np.ndarray) -> np.ndarray:
        """[mels, frames] → [frames / 2, width] float32."""
        view = ctranslate2.StorageView.from_array(features[None])
        return np.array(self._model.encode(view, to_cpu=True))[0]

    def _hear(self, windows: np.ndarray, samples: int) -> list[Heard]:
        """`windows` [batch, steps, width], encoded, of stretches of at most `samples` samples."""
        results = self._model.generate(
            ctranslate2.StorageView.from_array(windows),
            [self._prompt] * len(windows),
            beam_size=1,
            max_length=math.ceil(samples / SAMPLE_RATE * _TOKENS_PER_SECOND) + _SPARE_TOKENS,
            return_scores=True,
        )
        return [self._heard(result) for result in results]

    def _heard(self, result: ctranslate2.models.WhisperGenerationResult) -> Heard:
        cut = loop_start(result.sequences_ids[0])
        text = self._pieces.decode(result.sequences[0][:cut]).strip()
        return Heard(text, result.scores[0], looped=cut is not None)

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
