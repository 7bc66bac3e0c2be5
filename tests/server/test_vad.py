"""The speech detector's overhang, on real speech cut off hard: when silence began is known exactly."""

from pathlib import Path

import numpy as np
import pytest
import webrtcvad

from voice_app import audio
from voice_app.server.protocol.config import (
    AudioFormat,
    AudioInput,
    PcmaFormat,
    PcmFormat,
    PcmuFormat,
    SemanticVad,
    ServerVad,
)
from voice_app.server.session import turns
from voice_app.server.session.microphone import Microphone
from voice_app.server.session.vad import FRAME_MS, FRAME_SAMPLES, WebRtcDetector
from voice_app.server.settings import TalkSettings
from voice_app.server.sound import EarStream, bytes_per_ms, from_ear

SPOKEN = Path(__file__).parents[1] / "data" / "spoken"
NAMES = ("fact-1-1", "fact-3-1", "fact-4-1", "fact-5-1", "fact-6-1", "fact-7-1", "fact-9-1", "chit-chat-2-1")
ALL = range(len(NAMES))


def cut_off(name: str, seconds_of_silence: float = 1.0) -> tuple[list[bytes], int]:
    """Frames of speech up to its loudest 200 ms, then silence; and how many of them are speech."""
    read = audio.read(SPOKEN / f"{name}.flac")
    sound = audio.resample(read.samples, read.sample_rate, 16_000)
    levels = np.abs(sound[: len(sound) // FRAME_SAMPLES * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)).mean(1)
    last = int(np.convolve(levels, np.ones(10), "valid").argmax()) + 10
    faint = np.random.default_rng(0).normal(0, 0.0003, int(16_000 * seconds_of_silence))
    whole = np.concatenate([sound[: last * FRAME_SAMPLES], faint.astype(np.float32)])
    pcm = audio.to_pcm16(whole)
    step = 2 * FRAME_SAMPLES
    return [pcm[i : i + step] for i in range(0, len(pcm) - step + 1, step)], last


@pytest.mark.parametrize("number", ALL)
@pytest.mark.parametrize("threshold", [0.5, 0.9])
def test_silence_counts_from_the_end_of_speech_not_of_the_detectors_overhang(number: int, threshold: float):
    frames, last = cut_off(NAMES[number])
    detector = WebRtcDetector(threshold)
    known: list[int] = []
    for index, frame in enumerate(frames):
        if detector.is_speech(frame) or index < last:
            assert detector.overhang_ms == 0 or index < last
            known = []
        else:
            known.append(FRAME_MS + detector.overhang_ms)
    # One frame of grace: the filters ring on after the last sample.
    true_ms = (len(frames) - last) * FRAME_MS
    assert true_ms - FRAME_MS <= sum(known) <= true_ms


def test_a_short_burst_has_a_short_overhang():
    """Nothing that was speech counts as silence: a click of 40 ms in silence."""
    rng = np.random.default_rng(1)
    sound = rng.normal(0, 0.0003, 16_000 * 2)
    sound[16_000:16_640] += rng.normal(0, 0.3, 640)
    pcm = audio.to_pcm16(sound.astype(np.float32))
    detector = WebRtcDetector(0.5)
    said, silent = [], []
    for start in range(0, len(pcm), 2 * FRAME_SAMPLES):
        speech = detector.is_speech(pcm[start : start + 2 * FRAME_SAMPLES])
        said.append(speech)
        silent.append(0 if speech else FRAME_MS + detector.overhang_ms)
    assert 50 in [i for i, speech in enumerate(said) if speech], "the click was heard"
    since = next(i for i in range(52, 100) if not said[i])
    assert silent[since] <= (since + 1 - 52) * FRAME_MS
    assert set(silent[since + 1 :]) == {FRAME_MS}


def in_frames(sound: np.ndarray) -> list[bytes]:
    pcm, step = audio.to_pcm16(sound.astype(np.float32)), 2 * FRAME_SAMPLES
    return [pcm[i : i + step] for i in range(0, len(pcm) - step + 1, step)]


@pytest.mark.parametrize("threshold", [0.5, 0.75, 0.9])
@pytest.mark.parametrize("level", [0.0, 0.0001, 0.0003, 0.001, 0.003])
def test_a_quiet_room_is_no_speech_from_the_first_frame_on(threshold: float, level: float):
    for seed in range(10):
        detector = WebRtcDetector(threshold)
        noise = np.random.default_rng([seed, 3]).normal(0, level, 16_000)
        assert not any(detector.is_speech(frame) for frame in in_frames(noise))


@pytest.mark.parametrize("gain", [1.0, 0.1, 0.03])
@pytest.mark.parametrize("number", ALL)
def test_faint_speech_is_heard_as_soon_as_by_a_detector_that_knows_no_room(number: int, gain: float):
    """Up to 30 dB quieter than it was recorded, in digital silence, in which a fresh detector is right."""
    frames, _ = cut_off(NAMES[number], seconds_of_silence=0.0)
    speech = gain * np.frombuffer(b"".join(frames), "<i2").astype(np.float32) / 32768
    silent = np.abs(speech) < gain * 0.002
    sound = in_frames(np.where(silent, 0.0, speech))
    ours, fresh = WebRtcDetector(0.5), webrtcvad.Vad(2)
    heard = [ours.is_speech(frame) for frame in sound]
    by_fresh = [fresh.is_speech(frame, 16_000) for frame in sound]
    assert any(by_fresh)
    assert heard.index(True) <= by_fresh.index(True) + 1
    assert sum(heard) >= sum(by_fresh) - 2


def test_the_microphone_tells_of_the_hidden_silence_once():
    frames, last = cut_off(NAMES[0])
    config = AudioInput(format=PcmFormat(), turn_detection=ServerVad())
    microphone = Microphone(config, WebRtcDetector)
    at_24_khz = audio.resample(
        np.frombuffer(b"".join(frames), "<i2").astype(np.float32) / 32768, 16_000, 24_000
    )
    silent = [frame.silent_ms for frame in microphone.hear(audio.to_pcm16(at_24_khz))]
    after = silent[last:]
    assert sum(silent_ms > FRAME_MS for silent_ms in after) == 1
    true_ms = len(after) * FRAME_MS
    assert true_ms - 2 * FRAME_MS <= sum(after) <= true_ms


def test_the_microphone_keeps_its_detector_until_its_threshold_changes():
    made: list[float] = []

    def make(threshold: float) -> WebRtcDetector:
        made.append(threshold)
        return WebRtcDetector(threshold)

    microphone = Microphone(AudioInput(turn_detection=ServerVad(threshold=0.5)), make)
    for detection in (
        ServerVad(threshold=0.5, silence_duration_ms=900),
        ServerVad(threshold=0.5, interrupt_response=False),
        SemanticVad(),
    ):
        microphone.configure(AudioInput(turn_detection=detection))
        assert made == [0.5]
    microphone.configure(AudioInput(turn_detection=ServerVad(threshold=0.9)))
    microphone.configure(AudioInput(turn_detection=None))
    assert not microphone.listening
    microphone.configure(AudioInput(turn_detection=ServerVad(threshold=0.9)))
    assert made == [0.5, 0.9, 0.9]


def turns_of(sound: np.ndarray, threshold: float) -> int:
    """How many turns the sound ([n] at 16 kHz, full scale 1) begins, by the default rules."""
    detector, state, began = WebRtcDetector(threshold), turns.State(), 0
    for number, frame in enumerate(in_frames(sound)):
        silent_ms = 0 if detector.is_speech(frame) else FRAME_MS + detector.overhang_ms
        state, actions = turns.step(state, turns.Frame(silent_ms), number * FRAME_MS / 1000, turns.Rules())
        began += sum(isinstance(action, turns.SpeechStarted) for action in actions)
    return began


def in_faint_noise(sound: np.ndarray, start: int) -> np.ndarray:
    """`sound` after `start` samples of a still room, and a second more of it."""
    noise = np.random.default_rng(start).normal(0, 0.0003, start + len(sound) + 16_000)
    noise[start : start + len(sound)] += sound
    return noise


def test_the_rules_by_default_are_those_of_the_settings():
    assert turns.Rules().onset_ms == TalkSettings().onset_ms


@pytest.mark.parametrize("level", [0.03, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("threshold", [0.5, 0.9])
def test_a_click_begins_no_turn(threshold: float, level: float):
    """Of 20 ms, wherever it lies between the frames: the detector calls it up to 120 ms of speech."""
    for shift in range(0, FRAME_SAMPLES, 32):
        click = np.random.default_rng([shift, 7]).normal(0, level, FRAME_SAMPLES)
        assert turns_of(in_faint_noise(click, 16_000 + shift), threshold) == 0


@pytest.mark.parametrize("number", ALL)
@pytest.mark.parametrize("threshold", [0.5, 0.9])
def test_a_word_as_short_as_yes_begins_a_turn(number: int, threshold: float):
    """The loudest 150 ms of a sentence."""
    read = audio.read(SPOKEN / f"{NAMES[number]}.flac")
    sound = audio.resample(read.samples, read.sample_rate, 16_000)
    length = 2_400
    first = int(np.convolve(sound**2, np.ones(length), "valid").argmax())
    assert turns_of(in_faint_noise(sound[first : first + length], 16_100), threshold) == 1


FORMATS = (
    PcmFormat(),
    PcmFormat(rate=48000),
    PcmFormat(rate=16000),
    PcmFormat(rate=8000),
    PcmuFormat(),
    PcmaFormat(),
)


def packets(audio_format: AudioFormat) -> list[bytes]:
    """Real speech in the client's format, 20 ms each."""
    speech = np.frombuffer(b"".join(cut_off(NAMES[0])[0]), "<i2")
    data, step = from_ear(speech, audio_format), FRAME_MS * bytes_per_ms(audio_format)
    return [data[at : at + step] for at in range(0, len(data) - step + 1, step)]


@pytest.mark.parametrize("audio_format", FORMATS, ids=str)
def test_a_packet_completes_its_own_frame(audio_format: AudioFormat):
    microphone = Microphone(AudioInput(format=audio_format, turn_detection=ServerVad()), WebRtcDetector)
    for number, packet in enumerate(packets(audio_format), 1):
        assert len(microphone.hear(packet)) == 1
        assert number * FRAME_MS - 1 <= microphone.position_ms <= number * FRAME_MS


@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("audio_format", FORMATS, ids=str)
def test_what_is_kept_is_resampled_well_whether_it_is_judged_or_not(
    audio_format: AudioFormat, *, listens: bool
):
    """Sample for sample what the good resampler alone makes of it, up to the flush and after it, but
    for its dither."""
    detection = ServerVad() if listens else None
    microphone = Microphone(AudioInput(format=audio_format, turn_detection=detection), WebRtcDetector)
    said, expected = packets(audio_format), []
    for part in (said[:33], said[33:]):
        alone = EarStream(audio_format)
        for packet in part:
            microphone.hear(packet)
            expected.append(alone.feed(packet))
        expected.append(alone.flush())
        microphone.flush()
        kept = np.concatenate(expected)
        assert microphone.position_ms == len(kept) // 16
        np.testing.assert_allclose(microphone.cut(0, microphone.position_ms + 1), kept, rtol=0, atol=3)


@pytest.mark.parametrize("audio_format", FORMATS, ids=str)
def test_packets_of_any_size_give_as_many_frames_as_whole_ones(audio_format: AudioFormat):
    """Half samples too."""
    config = AudioInput(format=audio_format, turn_detection=ServerVad())
    whole, pieces = (Microphone(config, WebRtcDetector) for _ in range(2))
    said = packets(audio_format)
    data, rng = b"".join(said), np.random.default_rng(0)
    frames, at = 0, 0
    while at < len(data):
        size = int(rng.integers(1, 3_000))
        frames += len(pieces.hear(data[at : at + size]))
        at += size
    assert frames == sum(len(whole.hear(packet)) for packet in said) == len(said)
    assert pieces.position_ms == whole.position_ms
