"""Reading sound: every format and rate, and a clear line for what can't be used."""

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

from voice_app import audio
from voice_app.errors import InputError

TONE_HZ = 440.0


def tone(rate: int, seconds: float = 0.5) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * TONE_HZ * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def wav(samples: np.ndarray, rate: int = 16000, subtype: str = "PCM_16", format: str = "WAV") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, subtype=subtype, format=format)
    return file.getvalue()


def loudest_hz(sound: audio.Sound) -> float:
    spectrum = np.abs(np.fft.rfft(sound.samples))
    return float(spectrum.argmax() * sound.sample_rate / len(sound.samples))


@pytest.mark.parametrize(
    ("format", "subtype", "error"),
    [
        ("WAV", "PCM_U8", 1 / 128),
        ("WAV", "PCM_16", 1 / 32768),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "FLOAT", 0.0),
        ("WAV", "ULAW", 0.02),
        ("AIFF", "PCM_S8", 1 / 128),
        ("FLAC", "PCM_16", 1 / 32768),
        ("OGG", "VORBIS", 0.05),
    ],
)
def test_reads_every_format(format: str, subtype: str, error: float) -> None:
    expected = tone(44100)
    sound = audio.read(wav(expected, 44100, subtype, format))
    assert sound.sample_rate == 44100
    assert sound.samples.dtype == np.float32
    assert len(sound.samples) == len(expected)
    assert np.abs(sound.samples - expected).max() <= error


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 48000, 96000, 192000])
def test_resampling_keeps_pitch_and_length(rate: int) -> None:
    sound = audio.read(wav(tone(rate), rate))
    heard = audio.Sound(audio.resample(sound.samples, sound.sample_rate, 16000), 16000)
    assert heard.seconds == pytest.approx(0.5, abs=0.001)
    assert loudest_hz(heard) == pytest.approx(TONE_HZ, abs=2)
    assert heard.samples.dtype == np.float32


def test_channels_are_averaged() -> None:
    left, right = tone(16000), np.zeros(8000, np.float32)
    sound = audio.read(wav(np.stack([left, right], axis=1), subtype="FLOAT"))
    assert np.allclose(sound.samples, left / 2, atol=1e-6)


def test_channels_in_opposite_phase_do_not_cancel() -> None:
    left = tone(16000)
    sound = audio.read(wav(np.stack([left, -left], axis=1), subtype="FLOAT"))
    assert np.allclose(sound.samples, left, atol=1e-6)


def test_floats_beyond_full_scale_are_scaled_down_to_it() -> None:
    sound = audio.read(wav(tone(16000) * 1000, subtype="FLOAT"))
    assert np.abs(sound.samples).max() == pytest.approx(1.0)
    assert np.allclose(sound.samples, tone(16000) / np.abs(tone(16000)).max(), atol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_samples_that_are_no_numbers(tmp_path: Path, bad: float) -> None:
    samples = tone(16000)
    samples[1000] = bad
    path = tmp_path / "question.wav"
    path.write_bytes(wav(samples, subtype="FLOAT"))
    with pytest.raises(InputError, match=r"question\.wav: holds NaN or infinite samples; export it again"):
        audio.read(path)


def test_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "empty.wav"
    path.write_bytes(wav(np.zeros(0, np.float32)))
    with pytest.raises(InputError, match=r"empty\.wav: holds no samples; record it again"):
        audio.read(path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF",
        b"not a sound at all" * 100,
        wav(tone(16000))[:30],
        b"RIFF\xff\xff\xff\xffJUNK" + wav(tone(16000))[12:],
    ],
    ids=["nothing", "four bytes", "text", "half a header", "foreign header"],
)
def test_what_is_no_sound_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "broken.wav"
    path.write_bytes(data)
    with pytest.raises(
        InputError, match=r"broken\.wav: not a sound file that can be read .*save it as"
    ) as error:
        audio.read(path)
    assert "\n" not in error.value.message


def test_a_file_cut_short_gives_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "cut.wav"
    path.write_bytes(wav(tone(16000))[: 44 + 2 * 1000])
    assert len(audio.read(path).samples) == 1000


def test_a_header_that_promises_hours_costs_nothing(tmp_path: Path) -> None:
    data = bytearray(wav(tone(16000)))
    data[4:8] = data[40:44] = (0x7FFFFFF0).to_bytes(4, "little")
    path = tmp_path / "liar.wav"
    path.write_bytes(data)
    assert len(audio.read(path).samples) == 8000


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.wav: No such file or directory; give the path"):
        audio.read(tmp_path / "nowhere.wav")
    with pytest.raises(InputError, match="Is a directory; give the path"):
        audio.read(tmp_path)


def test_ten_minutes_are_taken_and_no_more() -> None:
    rate = 4000
    most = wav(np.zeros(int(audio.MAX_SECONDS * rate), np.float32), rate)
    assert audio.read(most).seconds == audio.MAX_SECONDS
    with pytest.raises(InputError, match="audio: longer than 10 minutes; cut it into parts"):
        audio.read(wav(np.zeros(int(audio.MAX_SECONDS * rate) + 1, np.float32), rate))


@pytest.mark.parametrize("rate", [1000, 3999, 500_000])
def test_a_sample_rate_out_of_range(rate: int) -> None:
    with pytest.raises(InputError, match=f"its sample rate is {rate} Hz; resample it to between"):
        audio.read(wav(tone(16000), rate))


def test_pcm16_there_and_back() -> None:
    samples = np.array([0.0, 0.5, -0.5, 1.0, -1.0, 3.0, 1 / 32768], np.float32)
    back = audio.from_pcm16(audio.to_pcm16(samples))
    assert back.tolist() == [0.0, 0.5, -0.5, 32767 / 32768, -1.0, 32767 / 32768, 1 / 32768]


def test_written_sound_reads_back(tmp_path: Path) -> None:
    audio.write(tmp_path / "answer.wav", tone(24000), 24000)
    sound = audio.read(tmp_path / "answer.wav")
    assert sound.sample_rate == 24000
    assert np.abs(sound.samples - tone(24000)).max() <= 1 / 32768


@pytest.mark.parametrize("name", ["answer.nonsense", "missing/answer.wav", "answer"])
def test_what_cannot_be_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"cannot be written .*give a writable"):
        audio.write(tmp_path / name, tone(24000), 24000)
