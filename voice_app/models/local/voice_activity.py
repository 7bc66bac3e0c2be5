"""Where speech is in a recording: Silero VAD on ONNX Runtime, 2 ms for a second of sound.

Noise, hum, tones, clicks and music-like beeps stay below its threshold at any level, and speech down to
0 dB signal-to-noise above it, so what it finds nothing in is never shown to a recogniser, which would make up
words.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from voice_app.models.local.onnx_session import onnx_session
from voice_app.models.local.recent import Recent

SAMPLE_RATE = 16_000
WINDOW = 512
"""Samples that one probability is for: 32 ms."""

_CONTEXT = 64
_KEPT = 256
"""Recordings of which it is known what was found, by their first window."""
_THRESHOLD, _RELEASE = 0.5, 0.35
"""Speech begins at the first and ends below the second (Silero's own defaults)."""
_MIN_SPEECH = 0.06
_MARGIN = 0.25
"""Kept on both sides of speech, in seconds: soft onsets and final consonants are below the threshold."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """What is known of a recording's whole windows, which is so for any recording that begins with them.
    `digest`: theirs."""

    digest: bytes
    found: np.ndarray
    state: np.ndarray


class VoiceActivity:
    """Finds the speech in a whole recording. Of one that begins as an earlier one did, as the recordings of
    a turn that goes on do, only what is new is looked at."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        self._session = onnx_session(path, threads)
        self._rate = np.array(SAMPLE_RATE)
        self._judged: Recent[_Judged] = Recent(_KEPT)

    def probabilities(self, samples: np.ndarray) -> np.ndarray:
        """[n] float32 at 16 kHz → [ceil(n / 512)] float32 in [0, 1]."""
        whole = len(samples) - len(samples) % WINDOW
        known = self._known(samples[:whole])
        found = np.zeros(-(-len(samples) // WINDOW), np.float32)
        found[: len(known.found)] = known.found
        padded = np.pad(samples, (_CONTEXT, -len(samples) % WINDOW)).astype(np.float32, copy=False)
        state = known.state
        for place in range(len(known.found), len(found)):
            if place * WINDOW == whole:
                self._keep(samples[:whole], found[:place], state)
            start = place * WINDOW
            block = padded[None, start : start + WINDOW + _CONTEXT]
            output = self._session.run(None, {"input": block, "state": state, "sr": self._rate})
            found[place], state = np.asarray(output[0])[0, 0], np.asarray(output[1])
        if whole == len(samples):
            self._keep(samples, found, state)
        return found

    def _known(self, whole: np.ndarray) -> _Judged:
        """Of the longest beginning of `whole` that was judged before."""
        judged = self._judged.get(_name(whole))
        if judged is not None and judged.digest == _digest(whole[: len(judged.found) * WINDOW]):
            return judged
        return _Judged(b"", np.zeros(0, np.float32), np.zeros((2, 1, 128), np.float32))

    def _keep(self, whole: np.ndarray, found: np.ndarray, state: np.ndarray) -> None:
        if len(whole):
            self._judged.put(_name(whole), _Judged(_digest(whole), found.copy(), state))

    def speech(self, samples: np.ndarray) -> list[tuple[int, int]]:
        """The stretches of `samples` that hold speech, as [start, end) with a margin around; touching ones
        are one. Empty: no speech."""
        return spans(self.probabilities(samples), len(samples))


def _name(whole: np.ndarray) -> str:
    """Recordings that begin alike have the same."""
    return _digest(whole[:WINDOW]).hex()


def _digest(samples: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(samples).data, digest_size=16).digest()


def spans(probabilities: np.ndarray, length: int) -> list[tuple[int, int]]:
    """Speech in a recording of `length` samples, from the probability of each window."""
    margin = int(_MARGIN * SAMPLE_RATE)
    found: list[tuple[int, int]] = []
    start: int | None = None
    for place, probability in enumerate([*probabilities.tolist(), 0.0]):
        if start is None and probability >= _THRESHOLD:
            start = place
        elif start is not None and probability < _RELEASE:
            if (place - start) * WINDOW >= _MIN_SPEECH * SAMPLE_RATE:
                begin, end = max(0, start * WINDOW - margin), min(length, place * WINDOW + margin)
                if found and begin <= found[-1][1]:
                    begin = found.pop()[0]
                found.append((begin, end))
            start = None
    return found
