"""Has the user finished? smart-turn v3.2 (BSD-2-Clause) says how likely, from the last seconds of sound."""

from pathlib import Path

import numpy as np

from voice_app.models.local.onnx_session import onnx_session

SAMPLE_RATE = 16_000
SECONDS = 8
"""What it listens to: the last 8 s, silence before that if there is less."""
_MELS = 80
_WINDOW, _HOP = 400, 160


class EndOfTurn:
    """Takes 10 to 50 ms on one core, 100 ms without VNNI: call it outside the event loop."""

    def __init__(self, path: Path) -> None:
        """Raises ModelFileError."""
        self._session = onnx_session(path, threads=1)
        self._filters = _mel_filters()
        self._hann = np.hanning(_WINDOW + 1)[:-1].astype(np.float32)

    def probability(self, samples: np.ndarray) -> float:
        """[n] float32 at 16 kHz, ending where the user fell silent → how likely the turn is complete."""
        length = SECONDS * SAMPLE_RATE
        recent = samples[-length:]
        window = np.zeros(length, np.float32)
        window[length - len(recent) :] = recent
        # Levelled with its padding, as in training.
        window = (window - window.mean()) / np.sqrt(window.var() + 1e-7)
        [output] = self._session.run(None, {"input_features": self._features(window)[None]})
        return float(np.asarray(output).reshape(-1)[0])

    def _features(self, samples: np.ndarray) -> np.ndarray:
        """[n] → [80, n / 160] float32: the log-mel features of Whisper."""
        padded = np.pad(samples, _WINDOW // 2, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::_HOP][: len(samples) // _HOP]
        power = np.abs(np.fft.rfft(frames * self._hann)).astype(np.float32) ** 2
        mel = np.log10(np.maximum(power @ self._filters, 1e-10))
        mel = (np.maximum(mel, mel.max() - 8.0) + 4.0) / 4.0
        return np.ascontiguousarray(mel.T, np.float32)


def _mel_filters() -> np.ndarray:
    """[201, 80] float32: Slaney's mel scale and area normalisation, 0 to 8 kHz (as librosa computes them)."""
    edges_hz = _hz(np.linspace(0.0, _mel(SAMPLE_RATE / 2), _MELS + 2))
    bins_hz = np.linspace(0.0, SAMPLE_RATE / 2, _WINDOW // 2 + 1)
    slopes = edges_hz[None, :] - bins_hz[:, None]
    widths = np.diff(edges_hz)
    triangles = np.maximum(0.0, np.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]))
    return (triangles * 2.0 / (edges_hz[2:] - edges_hz[:-2])).astype(np.float32)


def _mel(hz: float) -> float:
    """Linear below 1 kHz (15 mel), logarithmic above (27 steps for a factor of 6.4)."""
    return 3.0 * hz / 200.0 if hz < 1000.0 else 15.0 + 27.0 * np.log(hz / 1000.0) / np.log(6.4)


def _hz(mel: np.ndarray) -> np.ndarray:
    return np.where(mel < 15.0, mel * 200.0 / 3.0, 1000.0 * np.exp((mel - 15.0) * np.log(6.4) / 27.0))
