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
        self._context = voice.parts.flow_context
        self._several = voice.several
        self._frame_rate = voice.settings.audio.sample_rate / voice.parts.cuts.samples_per_frame
        rng = np.random.default_rng(0)
        self._duration_noise = rng.standard_normal((1, 2, _TABLE), np.float32)
        self._frame_noise = rng.standard_normal((1, voice.parts.channels, _TABLE), np.float32)

    def speak(self, phonemes: Phonemes, edges: Edges, speed: float, speaker: int = 0) -> "Utterance":
        """A clause; `speed` 2 is twice as fast as the voice's own, pauses included."""
        ids = phonemes.ids
        scales = self._scales
        durations, mean, log_scale = run(
            self._text,
            [self._cuts.durations, self._cuts.mean, self._cuts.log_scale],
            {
                "input": np.array([ids], np.int64),
                "input_lengths": np.array([len(ids)], np.int64),
                "scales": np.array([scales.noise_scale, scales.length_scale, scales.noise_w], np.float32),
                self._cuts.duration_noise: _repeat_to(self._duration_noise, len(ids)),
                **self._who(speaker),
            },
        )
        counts = with_edges(durations[0, 0], phonemes, edges, self._frame_rate)
        ends = at_speed(counts, speed)
        counts = np.diff(ends, prepend=0)
        noise = _repeat_to(self._frame_noise, int(ends[-1])) * np.float32(scales.noise_scale)
        noisy = np.repeat(mean, counts, axis=2) + noise * np.repeat(np.exp(log_scale), counts, axis=2)
        return Utterance(self, noisy, ends, speaker)

    def latents(self, noisy: np.ndarray, start: int, end: int, speaker: int) -> np.ndarray:
        """Frames [start, end) of what the flow makes of `noisy`: [end - start, channels] float32."""
        left = max(0, start - self._context)
        window = noisy[:, :, left : end + self._context]
        mask = np.ones((1, 1, window.shape[2]), np.float32)
        (latent,) = run(
            self._flow,
            [self._cuts.latent],
            {self._cuts.noisy: window, self._cuts.mask: mask, **self._who(speaker)},
        )
        rows = latent[0, :, start - left : end - left].T
        if self._several:
            rows = np.concatenate([rows, np.full((len(rows), 1), speaker, np.float32)], axis=1)
        return np.ascontiguousarray(rows)

    def _who(self, speaker: int) -> dict[str, np.ndarray]:
        return {"sid": np.array([speaker], np.int64)} if self._several else {}


@dataclass(frozen=True, slots=True)
class Utterance:
    """A clause whose timing is known and whose frames are made when they are asked for.

    `noisy`: [1, channels, frames] float32, the flow's input. `ends`: [phonemes] int64, the frame at which
    each phoneme is over."""

    model: AcousticModel
    noisy: np.ndarray
    ends: np.ndarray
    speaker: int

    def __len__(self) -> int:
        return self.noisy.shape[2]

    def frames(self, start: int, end: int) -> np.ndarray:
        """[end - start, channels] float32, the same for any division of the clause to 1e-5."""
        return self.model.latents(self.noisy, start, end, self.speaker)


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
