"""Is this 20 ms of sound speech? WebRTC's detector, behind the one method that the session calls."""

from functools import cache
from typing import Protocol

import numpy as np
import webrtcvad

FRAME_MS = 20
FRAME_SAMPLES = 320
"""Samples of a frame at 16 kHz."""


_BURST_FRAMES = 6
_OVERHANG_FRAMES = ((4, 7), (4, 7), (3, 5), (3, 5))
"""WebRTC's detector goes on saying "speech" for so many frames of 20 ms after the last in which it found
any: by mode, after a burst of at most `_BURST_FRAMES` and after a longer one (kOverHangMax1*, kOverHangMax2*
and kMaxSpeechFrames in its vad_core)."""
ROOM_LEVEL = 0.003
"""Standard deviation of a quiet room's sound, of full scale 1: -50 dB."""
ROOM_FRAMES = 25
"""After half a second the detector knows the room."""


HUSH_POWER = 10**-2.6
"""Of the speech before: 26 dB less. Measured over 47 recordings: with 20 dB the work begins no sooner, with
30 dB hardly ever in noise."""
HUSH_FRAMES = 2
"""Over the same 47, the work begins 40 ms after the last sound, where the detector says silence after 120,
and 1.5 times a turn in vain; with 3 frames after 60 ms, and 0.7 times."""
_DECAY = 10**-0.015
"""The level of the speech before is forgotten by 0.15 dB a frame, 7.5 dB a second."""


class Hush:
    """Whether speech has become so faint that it may be over, which the detector will say 100 ms later: its
    overhang. Good for work that is dropped if it is not; words do begin so faintly."""

    def __init__(self) -> None:
        self._loudest = 0.0
        self._faint_frames = 0

    def judge(self, frame: bytes) -> bool:
        """`frame`: the next 320 samples of little-endian 16-bit PCM at 16 kHz."""
        samples = np.frombuffer(frame, "<i2").astype(np.float32)
        power = float(samples @ samples)
        self._loudest = max(power, self._loudest * _DECAY)
        self._faint_frames = self._faint_frames + 1 if power < self._loudest * HUSH_POWER else 0
        return self._faint_frames >= HUSH_FRAMES


class SpeechDetector(Protocol):
    @property
    def overhang_ms(self) -> int:
        """How much of what was called speech right before the frame last judged was silence already: what is
        known to be, so 0 where nothing is."""
        ...

    def is_speech(self, frame: bytes) -> bool:
        """`frame`: 320 samples of little-endian 16-bit PCM at 16 kHz."""
        ...


class WebRtcDetector:
    """`threshold` in [0, 1] as the protocol has it: higher needs clearer speech (WebRTC's modes 0 to 3).

    A fresh one takes the first 80 ms of any steady sound for speech, down to -65 dB, which would be a turn of
    nobody at the beginning of each talk; so it begins in a quiet room. From 0.5 on, what is quieter than that
    is no speech from the first frame on; what is louder, it has to get used to."""

    def __init__(self, threshold: float) -> None:
        mode = min(3, int(threshold * 4))
        self._vad = webrtcvad.Vad(mode)
        for frame in _quiet_room():
            self._vad.is_speech(frame, 16_000)
        self._after_burst, self._after_more = _OVERHANG_FRAMES[mode]
        self._run = 0
        """Frames in a row that were called speech."""
        self.overhang_ms = 0

    def is_speech(self, frame: bytes) -> bool:
        speech = self._vad.is_speech(frame, 16_000)
        if speech:
            self._run += 1
            self.overhang_ms = 0
        else:
            self.overhang_ms = self._overhang_frames() * FRAME_MS
            self._run = 0
        return speech

    def _overhang_frames(self) -> int:
        """Of the run that has just ended. Several short bursts may look like one that is longer."""
        if self._run > _BURST_FRAMES + self._after_more:
            return self._after_more
        return self._after_burst if self._run > self._after_burst else 0


@cache
def _quiet_room() -> list[bytes]:
    """`ROOM_FRAMES` frames of it."""
    noise = np.random.default_rng(0).normal(0, ROOM_LEVEL, (ROOM_FRAMES, FRAME_SAMPLES))
    return [frame.tobytes() for frame in (noise * 32767).astype("<i2")]
