"""Sound in and out of files: float32 mono samples in [-1, 1], resampling, and checks that name the fix."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr

from voice_app.errors import InputError

MAX_SECONDS = 600.0
"""Longest recording of one turn."""

MIN_RATE, MAX_RATE = 4_000, 384_000
"""Sample rates in Hz that are taken: below, no speech is left; above, no sound card goes."""

_BLOCK_FRAMES = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class Sound:
    """`samples`: [n] float32, mono, in [-1, 1], n ≥ 1, at `sample_rate` Hz."""

    samples: np.ndarray
    sample_rate: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate


def read(source: Path | bytes, name: str | None = None) -> Sound:
    """Read a sound file of any format, sample rate, bit depth and channel count that soundfile knows, from a
    path or from its bytes. `name` is what errors call it (default: the path).

    Channels are averaged; where that would cancel them (opposite phase), the first is taken. Floats beyond
    full scale are scaled down to it. Raises InputError: no such file, not a sound file, no samples, too long,
    NaN or infinite samples."""
    name = name or (str(source) if isinstance(source, Path) else "audio")
    try:
        stream = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
        with stream, soundfile.SoundFile(stream) as file:
            _check_rate(file.samplerate, name)
            samples = _read_mono(file, name)
            rate = file.samplerate
    except soundfile.LibsndfileError as error:
        raise InputError(
            f"{name}: not a sound file that can be read ({error.error_string.rstrip('.')}); save it as "
            "WAV, FLAC, Ogg or MP3",
            param="audio",
        ) from error
    except OSError as error:
        message = f"{name}: {error.strerror or error}; give the path of a sound file"
        raise InputError(message, param="audio") from error
    check(samples, rate, name)
    peak = float(np.abs(samples).max())
    return Sound(samples / peak if peak > 1.0 else samples, rate)


def _read_mono(file: soundfile.SoundFile, name: str) -> np.ndarray:
    """All samples, [n] float32; in blocks, so that a header that lies about its length costs nothing."""
    most = int(MAX_SECONDS * file.samplerate)
    mixed: list[np.ndarray] = []
    first: list[np.ndarray] = []
    count = 0
    while len(block := file.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):
        count += len(block)
        if count > most:
            raise _too_long(name)
        mixed.append(block.mean(axis=1))
        first.append(block[:, 0].copy())
    if not count:
        raise _no_samples(name)
    mono, one = np.concatenate(mixed), np.concatenate(first)
    # Two channels in opposite phase average to almost nothing: 30 dB below either.
    with np.errstate(invalid="ignore", over="ignore"):
        cancelled = np.dot(mono, mono) < 1e-3 * np.dot(one, one)
    return one if cancelled else mono


def check(samples: np.ndarray, sample_rate: int, name: str) -> None:
    """Raise InputError if [n] float `samples` can't be a turn's audio; the message calls it `name`."""
    _check_rate(sample_rate, name)
    if not len(samples):
        raise _no_samples(name)
    if len(samples) > MAX_SECONDS * sample_rate:
        raise _too_long(name)
    if not np.isfinite(samples).all():
        raise InputError(f"{name}: holds NaN or infinite samples; export it again", param="audio")


def _check_rate(sample_rate: int, name: str) -> None:
    if not MIN_RATE <= sample_rate <= MAX_RATE:
        raise InputError(
            f"{name}: its sample rate is {sample_rate} Hz; resample it to between {MIN_RATE} and "
            f"{MAX_RATE} Hz",
            param="audio",
        )


def _no_samples(name: str) -> InputError:
    return InputError(f"{name}: holds no samples; record it again", param="audio")


def _too_long(name: str) -> InputError:
    return InputError(f"{name}: longer than {MAX_SECONDS / 60:.0f} minutes; cut it into parts", param="audio")


def resample(samples: np.ndarray, rate: int, target: int) -> np.ndarray:
    """[n] float32 at `rate` Hz → [≈ n · target / rate] float32 at `target` Hz."""
    if rate == target:
        return samples
    return soxr.resample(samples, rate, target).astype(np.float32, copy=False)


def from_pcm16(data: bytes) -> np.ndarray:
    """Little-endian 16-bit PCM → [n] float32 in [-1, 1)."""
    return np.frombuffer(data, dtype="<i2").astype(np.float32) / 32768.0


def to_pcm16(samples: np.ndarray) -> bytes:
    """[n] float in [-1, 1] → little-endian 16-bit PCM, clipped at full scale."""
    return np.clip(np.rint(samples * 32768.0), -32768, 32767).astype("<i2").tobytes()


def write(path: Path, samples: np.ndarray, sample_rate: int) -> None:
    """Write [n] float32 as a file whose format its suffix says (16-bit where there is a choice).

    Raises InputError if the format is unknown or the place can't be written."""
    try:
        soundfile.write(path, samples, sample_rate)
    except (OSError, soundfile.LibsndfileError, TypeError, ValueError) as error:
        message = f"{path}: cannot be written ({error}); give a writable .wav or .flac path"
        raise InputError(message, param="out") from error
