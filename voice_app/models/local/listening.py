"""From a recording to what a recogniser takes: only the speech in it, at one level."""

import math
from pathlib import Path

import numpy as np

from voice_app.models.local.recogniser import SAMPLE_RATE
from voice_app.models.local.voice_activity import VoiceActivity

_LEVEL = 0.1
"""Root mean square that speech is brought to."""
_OFFSET_SAMPLES = SAMPLE_RATE // 2
"""A microphone's offset is the mean of so much of a recording: the same however long it goes on."""


class Listening:
    """Finds and levels speech. `path` is Silero VAD's graph."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        self._voice_activity = VoiceActivity(path, threads)

    def warm_up(self) -> None:
        self._voice_activity.speech(np.zeros(SAMPLE_RATE, np.float32))

    def speech(self, samples: np.ndarray) -> np.ndarray:
        """[n] float32 at 16 kHz → [m] float32 without the stretches where nobody speaks; m = 0: nobody
        does. The detector, which would miss very quiet speech, is shown it with a peak of 0.5 to 1."""
        # Less than a sample at a client's rate may be none at ours.
        if not len(samples):
            return np.zeros(0, np.float32)
        centred = samples - samples[:_OFFSET_SAMPLES].mean()
        peak = float(np.abs(centred).max())
        if peak == 0.0:
            return np.zeros(0, np.float32)
        spans = self._voice_activity.speech(centred * np.float32(2.0 ** math.floor(-math.log2(peak))))
        if not spans:
            return np.zeros(0, np.float32)
        kept = np.concatenate([centred[start:end] for start, end in spans])
        level = float(np.sqrt(np.square(kept).mean()))
        gain = min(_LEVEL / level, 1.0 / float(np.abs(kept).max()))
        return (kept * gain).astype(np.float32)
