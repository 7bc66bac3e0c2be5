"""The acoustic half of a Piper voice: phoneme ids → the decoder's latent frames, and when each is over.

VITS samples twice, the durations' noise and the frames'. Both come from one fixed table, read from its start
for every clause: the same text gives the same sound, on any machine and after any restart.
"""

from dataclasses import dataclass

import numpy as np

from voice_app.models.local.phonemes import Phonemes
from voice_app.models.local.piper import PiperVoice, run

_TABLE = 1024
"""Columns of the noise tables; a longer clause reads them again from the start."""


@dataclass(frozen=True, slots=True)
class Speech:
    """`frames`: [T, channels] float32; `ends`: [phonemes] int64, the frame at which each phoneme is over."""

    frames: np.ndarray
    ends: np.ndarray


@dataclass(frozen=True, slots=True)
class Edges:
    """Seconds of quiet at a clause's edges: `lead` at most before its first sound, and between `least` and
    `most` from its last sound to its end."""

    lead: float
    least: float
    most: float


class AcousticModel:
    """Text half and flow of one voice."""

    def __init__(self, voice: PiperVoice, threads: int) -> None:
        self._cuts = voice.parts.cuts
        self._scales = voice.settings.inference
        self._text = voice.session("text", threads)
        self._flow = voice.session("flow", threads)
        self._several = voice.several
        self._frame_rate = voice.settings.audio.sample_rate / voice.parts.cuts.samples_per_frame
        rng = np.random.default_rng(0)
        self._duration_noise = rng.standard_normal((1, 2, _TABLE), np.float32)
        self._frame_noise = rng.standard_normal((1, voice.parts.channels, _TABLE), np.float32)

    def speak(self, phonemes: Phonemes, edges: Edges, speed: float, speaker: int = 0) -> Speech:
        """Frames of a clause; `speed` 2 is twice as fast as the voice's own, pauses included."""
        ids = phonemes.ids
        scales = self._scales
        who = {"sid": np.array([speaker], np.int64)} if self._several else {}
        durations, mean, log_scale = run(
            self._text,
            [self._cuts.durations, self._cuts.mean, self._cuts.log_scale],
            {
                "input": np.array([ids], np.int64),
                "input_lengths": np.array([len(ids)], np.int64),
                "scales": np.array([scales.noise_scale, scales.length_scale, scales.noise_w], np.float32),
                self._cuts.duration_noise: _repeat_to(self._duration_noise, len(ids)),
                **who,
            },
        )
        counts = with_edges(durations[0, 0], phonemes, edges, self._frame_rate)
        ends = at_speed(counts, speed)
        counts = np.diff(ends, prepend=0)
        frames = int(ends[-1])
        noise = _repeat_to(self._frame_noise, frames) * np.float32(scales.noise_scale)
        noisy = np.repeat(mean, counts, axis=2) + noise * np.repeat(np.exp(log_scale), counts, axis=2)
        mask = np.ones((1, 1, frames), np.float32)
        (latent,) = run(
            self._flow, [self._cuts.latent], {self._cuts.noisy: noisy, self._cuts.mask: mask, **who}
        )
        rows = latent[0].T
        if self._several:
            rows = np.concatenate([rows, np.full((frames, 1), speaker, np.float32)], axis=1)
        return Speech(np.ascontiguousarray(rows), ends)


def with_edges(durations: np.ndarray, phonemes: Phonemes, edges: Edges, frame_rate: float) -> np.ndarray:
    """[phonemes] frames, those of the quiet edges stretched or shrunk to what `edges` wants."""
    counts = durations.astype(np.float64)
    head, tail = counts[: phonemes.lead], counts[phonemes.last[-1] + 1 :]
    head *= min(1.0, edges.lead * frame_rate / head.sum())
    tail *= np.clip(tail.sum(), edges.least * frame_rate, edges.most * frame_rate) / tail.sum()
    return counts


def at_speed(counts: np.ndarray, speed: float) -> np.ndarray:
    """The frame at which each phoneme is over, [phonemes] int64, from the frames it has at the voice's speed.

    VITS would scale durations before it rounds each one up, so that twice the speed becomes 1.6 times."""
    return np.rint(np.cumsum(counts) / speed).astype(np.int64)


def _repeat_to(table: np.ndarray, length: int) -> np.ndarray:
    """The table's first `length` columns, read round and round."""
    return np.take(table, np.arange(length) % table.shape[2], axis=2)
