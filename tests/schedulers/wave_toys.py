"""A toy decoder for the tests of Code2WavScheduler, the frames it is given and the sound that comes of them.

Each sample depends on the frames around its own, so that a window with too little context sounds wrong.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scheduler_toys import Crash, Tray

from voice_app.messages import AudioChunk, AudioDone, CodeFrames, TurnId
from voice_app.schedulers.base import WaveSpec, WaveWindow

SPEC = WaveSpec(
    sample_rate=400,
    samples_per_frame=4,
    left_context=3,
    right_context=2,
    channels=2,
    codebook=50,
    first_window=1,
    max_window=8,
)
TRIM = 3
"""Samples that a segment's decode lacks at its end, as Qwen3-Omni's does."""


@dataclass(eq=False)
class Place:
    """How much of the segment has been given."""

    open: bool = True
    waiting: int = 0


@dataclass
class FirDecoder:
    """Each sample is a sum over `taps` frames before and after its own; beyond a segment's ends is
    silence. `trim`: the last samples of a window are held back until the next, which therefore needs one
    frame more of left context."""

    spec: WaveSpec = SPEC
    trim: int = 0
    taps: tuple[int, int] = (3, 2)
    open_states: int = 0
    windows: list[list[int]] = field(default_factory=list)
    ended: int = 0
    """Segments whose last window was told to be that."""
    crash: bool = False

    def warm_up(self) -> None:
        pass

    def open(self) -> object:
        self.open_states += 1
        return Place()

    def close(self, state: object) -> None:
        assert isinstance(state, Place)
        assert state.open
        state.open = False
        self.open_states -= 1

    def decode(self, windows: Sequence[WaveWindow]) -> Sequence[np.ndarray]:
        if self.crash:
            raise Crash
        self.windows.append([len(w.frames) - w.left - w.right for w in windows])
        return [self._decode(w) for w in windows]

    def _decode(self, window: WaveWindow) -> np.ndarray:
        place = window.state
        assert isinstance(place, Place)
        assert window.left <= self.spec.left_context
        assert window.right <= self.spec.right_context
        assert window.segment_start <= (window.left == 0)
        assert window.segment_end <= (window.right == 0)
        self.ended += window.segment_end
        if window.segment_start:
            place.waiting = 0
        sound = fir(window.frames, self.taps)
        per_frame = self.spec.samples_per_frame
        first = window.left * per_frame - place.waiting
        end = (len(window.frames) - window.right) * per_frame - self.trim
        place.waiting = self.trim
        return sound[first:end]


def fir(frames: np.ndarray, taps: tuple[int, int] = (3, 2)) -> np.ndarray:
    """A whole segment's sound, nothing trimmed."""
    width = sum(taps) + 1
    padded = np.pad(frames.sum(1).astype(np.float64) + 1, taps)
    weights = np.sin(np.arange(1, 4 * width + 1)).reshape(width, 4)
    rows = np.lib.stride_tricks.sliding_window_view(padded, width)
    return (rows @ weights).astype(np.float32).ravel()


def codes(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 50, (count, 2))


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def chunked(frames: np.ndarray, size: int | random.Random, *, last: bool) -> list[CodeFrames]:
    """One segment's payloads."""
    parts: list[np.ndarray] = []
    at = 0
    while at < len(frames):
        step = size if isinstance(size, int) else size.randint(1, 9)
        parts.append(frames[at : at + step])
        at += step
    return [CodeFrames(p) for p in parts[:-1]] + [CodeFrames(parts[-1], segment_end=True, last=last)]


def sound_of(tray: Tray, turn: TurnId) -> np.ndarray:
    """The joined chunks, checked to be continuous and ended once."""
    *chunks, done = tray.sent[turn]
    position = 0
    for chunk in chunks:
        assert isinstance(chunk, AudioChunk)
        assert chunk.sample_rate == SPEC.sample_rate
        assert chunk.start == position
        position += len(chunk.samples)
    assert done == AudioDone(position)
    assert turn in tray.finished
    return np.concatenate(
        [c.samples for c in chunks if isinstance(c, AudioChunk)] or [np.empty(0, np.float32)]
    )
