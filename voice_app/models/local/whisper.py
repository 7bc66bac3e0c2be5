"""Whisper on CTranslate2, 8-bit: log-mel features of a short window → text.

Whisper was trained on windows of 30 s. A window of 10 s and half a second of silence before the speech costs
a third and hears as well; shorter windows run away into repetitions. So speech is padded to 10.5 s at least.
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
_LEAD_SECONDS, _LEAST_SECONDS = 0.5, 10.5
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

    def hear(self, samples: np.ndarray) -> Heard:
        (heard,) = self.hear_all([samples])
        return heard

    def hear_all(self, speech: Sequence[np.ndarray]) -> list[Heard]:
        """As one batch where windows are of one length, which most are: decoding two or more at once costs
        two thirds of decoding them one by one."""
        heard: dict[int, Heard] = {}
        frames = [self.features(samples) for samples in speech]
        order = sorted(range(len(speech)), key=lambda place: frames[place].shape[1])
        for _, alike in groupby(order, key=lambda place: frames[place].shape[1]):
            places = list(alike)
            for start in range(0, len(places), _BATCH):
                batch = places[start : start + _BATCH]
                longest = max(len(speech[place]) for place in batch)
                heard |= zip(batch, self._hear(np.stack([frames[p] for p in batch]), longest), strict=True)
        return [heard[place] for place in range(len(speech))]

    def _hear(self, features: np.ndarray, samples: int) -> list[Heard]:
        """`features` [batch, mels, frames] of stretches of at most `samples` samples."""
        results = self._model.generate(
            ctranslate2.StorageView.from_array(features),
            [self._prompt] * len(features),
            beam_size=1,
            max_length=math.ceil(samples / SAMPLE_RATE * _TOKENS_PER_SECOND) + _SPARE_TOKENS,
            return_scores=True,
        )
        return [self._heard(result) for result in results]

    def _heard(self, result: ctranslate2.models.WhisperGenerationResult) -> Heard:
        cut = loop_start(result.sequences_ids[0])
        text = self._pieces.decode(result.sequences[0][:cut]).strip()
        return Heard(text, result.scores[0], looped=cut is not None)

    def features(self, samples: np.ndarray) -> np.ndarray:
        """[mels, frames] float32 of the window that `samples` are heard in."""
        lead = int(_LEAD_SECONDS * SAMPLE_RATE)
        length = max(int(_LEAST_SECONDS * SAMPLE_RATE), lead + len(samples))
        # The encoder halves the frames: an even number of them.
        window = np.zeros(-(-length // (2 * _HOP)) * 2 * _HOP, np.float32)
        window[lead : lead + len(samples)] = samples
        return log_mel(window, self._filters)


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
