"""The acoustic half of a Piper voice: phoneme ids → the decoder's latent frames, and when each is over.

VITS samples twice, the durations' noise and the frames'. Both come from one fixed table, read from its start
for every clause: the same text gives the same sound, on any machine and after any restart.
"""

from dataclasses import dataclass

import numpy as np

from voice_app.models.local.piper import PiperVoice, run

_TABLE = 1024
"""Columns of the noise tables; a longer clause reads them again from the start."""


@dataclass(frozen=True, slots=True)
class Speech:
    """`frames`: [T, channels] float32; `ends`: [phonemes] int64, the frame at which each phoneme is over."""

    frames: np.ndarray
    ends: np.ndarray


class AcousticModel:
    """Text half and flow of one voice."""

    def __init__(self, voice: PiperVoice, threads: int) -> None:
        self._cuts = voice.parts.cuts
        self._scales = voice.settings.inference
        self._text = voice.session("text", threads)
        self._flow = voice.session("flow", threads)
        self._several = voice.several
        rng = np.random.default_rng(0)
        self._duration_noise = rng.standard_normal((1, 2, _TABLE), np.float32)
        self._frame_noise = rng.standard_normal((1, voice.parts.channels, _TABLE), np.float32)

    def speak(self, ids: list[int], speed: float, speaker: int = 0) -> Speech:
        """Frames for the phoneme `ids`; `speed` 2 is twice as fast as the voice's own."""
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
        ends = phoneme_ends(durations[0, 0], speed)
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


def phoneme_ends(durations: np.ndarray, speed: float) -> np.ndarray:
    """The frame at which each phoneme is over, [phonemes] int64, from its frames at the voice's own speed.

    VITS would scale durations before it rounds each one up, so that twice the speed becomes 1.6 times."""
    return np.rint(np.cumsum(durations) / speed).astype(np.int64)


def _repeat_to(table: np.ndarray, length: int) -> np.ndarray:
    """The table's first `length` columns, read round and round."""
    return np.take(table, np.arange(length) % table.shape[2], axis=2)
