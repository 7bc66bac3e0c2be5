"""Is this 20 ms of sound speech? WebRTC's detector, behind the one method that the session calls."""

from typing import Protocol

import webrtcvad

FRAME_MS = 20
FRAME_SAMPLES = 320
"""Samples of a frame at 16 kHz."""


class SpeechDetector(Protocol):
    def is_speech(self, frame: bytes) -> bool:
        """`frame`: 320 samples of little-endian 16-bit PCM at 16 kHz."""
        ...


class WebRtcDetector:
    """`threshold` in [0, 1] as the protocol has it: higher needs clearer speech (WebRTC's modes 0 to 3)."""

    def __init__(self, threshold: float) -> None:
        self._vad = webrtcvad.Vad(min(3, int(threshold * 4)))

    def is_speech(self, frame: bytes) -> bool:
        return self._vad.is_speech(frame, 16_000)
