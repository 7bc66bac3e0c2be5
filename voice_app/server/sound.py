"""Audio at the door: the client's bytes → 16 kHz for the ear and the models; the voice → the client's bytes.

Each stream is resampled once, by one stateful resampler, so no sample is lost at the border of two chunks.
"""

import numpy as np
import soxr

from voice_app import audio
from voice_app.server import g711
from voice_app.server.protocol.config import AudioFormat, PcmaFormat, PcmFormat, PcmuFormat

EAR_RATE = 16_000
"""Hz: what the voice activity detector and the recognisers listen to."""

_EAR_QUALITY = "LQ"
"""soxr's "low", what the models hear: it holds back up to 20 ms (at 8 kHz up to 60 ms), the better ones up to
40; measured at 24 → 16 kHz: flat to 5.5 kHz, aliases below -109 dB."""
_QUICK_QUALITY = "QQ"
"""Cubic interpolation: it holds back 0.1 ms (0.2 ms at 8 kHz). What is above 8 kHz is heard below it, which
WebRTC's detector, whose bands end at 4 kHz, takes little notice of."""
QUICK_LEAD = 4
"""Samples of silence, 0.25 ms, before quick sound: more than is held back, so that a frame that has come is
there."""
_VOICE_QUALITY = "HQ"


def rate_of(audio_format: AudioFormat) -> int:
    """Hz of `audio_format`."""
    return audio_format.rate if isinstance(audio_format, PcmFormat) else g711.RATE


class EarStream:
    """One client's audio, as it comes, at 16 kHz. `quick`: it comes at once, good enough to tell speech from
    silence."""

    def __init__(self, audio_format: AudioFormat, *, quick: bool = False) -> None:
        self.format = audio_format
        self._odd = b""
        self._resampler = None
        if rate_of(audio_format) != EAR_RATE:
            quality = _QUICK_QUALITY if quick else _EAR_QUALITY
            self._resampler = soxr.ResampleStream(
                rate_of(audio_format), EAR_RATE, 1, dtype="int16", quality=quality
            )

    def feed(self, data: bytes) -> np.ndarray:
        """Bytes in the client's format → [m] int16 at 16 kHz. Half a PCM sample waits for its other half."""
        samples = self._decode(data)
        return samples if self._resampler is None else self._resampler.resample_chunk(samples)

    def flush(self) -> np.ndarray:
        """What the resampler still holds; the stream ends here."""
        nothing = np.zeros(0, np.int16)
        return nothing if self._resampler is None else self._resampler.resample_chunk(nothing, last=True)

    def _decode(self, data: bytes) -> np.ndarray:
        match self.format:
            case PcmuFormat():
                return g711.decode_mulaw(data)
            case PcmaFormat():
                return g711.decode_alaw(data)
            case PcmFormat():
                if self._odd or len(data) & 1:
                    data = self._odd + data
                    whole = len(data) & ~1
                    data, self._odd = data[:whole], data[whole:]
                return np.frombuffer(data, "<i2").astype(np.int16, copy=False)


class VoiceStream:
    """One reply's voice, as it comes, in the client's format."""

    def __init__(self, audio_format: AudioFormat, sample_rate: int) -> None:
        self.format = audio_format
        self._resampler = None
        if sample_rate != rate_of(audio_format):
            self._resampler = soxr.ResampleStream(
                sample_rate, rate_of(audio_format), 1, dtype="float32", quality=_VOICE_QUALITY
            )

    def feed(self, samples: np.ndarray) -> bytes:
        """[n] float32 of the voice → bytes for the client."""
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples.astype(np.float32, copy=False))
        return encode(samples, self.format)

    def finish(self) -> bytes:
        """What the resampler still holds; the stream ends here."""
        if self._resampler is None:
            return b""
        return encode(self._resampler.resample_chunk(np.zeros(0, np.float32), last=True), self.format)


def encode(samples: np.ndarray, audio_format: AudioFormat) -> bytes:
    """[n] float in [-1, 1] at the format's own rate → its bytes."""
    pcm = audio.to_pcm16(samples)
    match audio_format:
        case PcmuFormat():
            return g711.encode_mulaw(np.frombuffer(pcm, "<i2").astype(np.int16, copy=False))
        case PcmaFormat():
            return g711.encode_alaw(np.frombuffer(pcm, "<i2").astype(np.int16, copy=False))
        case PcmFormat():
            return pcm


def bytes_per_ms(audio_format: AudioFormat) -> int:
    """Bytes of one millisecond."""
    return rate_of(audio_format) // 1000 * (2 if isinstance(audio_format, PcmFormat) else 1)


def from_ear(samples: np.ndarray, audio_format: AudioFormat) -> bytes:
    """[n] int16 at 16 kHz → bytes in the client's format (an item that is looked at again)."""
    return encode(
        audio.resample(samples.astype(np.float32) / 32768.0, EAR_RATE, rate_of(audio_format)), audio_format
    )


def to_ear(data: bytes, audio_format: AudioFormat) -> np.ndarray:
    """A whole recording in the client's format → [n] int16 at 16 kHz."""
    stream = EarStream(audio_format)
    return np.concatenate([stream.feed(data), stream.flush()])
