"""Speech that has become faint: work begins on it before the detector is sure that it is over."""

import numpy as np
import pytest
from test_vad import NAMES, cut_off

from voice_app import audio
from voice_app.server.protocol.config import AudioInput, PcmFormat, ServerVad
from voice_app.server.session.microphone import Microphone
from voice_app.server.session.turn_types import (
    Action,
    DropSpeculation,
    Frame,
    ReplyStarted,
    Rules,
    Speculate,
    SpeechStarted,
    SpeechStopped,
    State,
)
from voice_app.server.session.turns import RESUME_MS, step
from voice_app.server.session.vad import FRAME_MS, FRAME_SAMPLES, HUSH_FRAMES, Hush, WebRtcDetector

SPEECH, HUSHED, SILENCE = Frame(0), Frame(0, hushed=True), Frame(FRAME_MS)
AFTER_SPEECH = Frame(FRAME_MS + 100)
"""The first frame that the detector calls silence."""
TALKING = [SPEECH] * 20
BUSY = Rules(early_ms=None)
Done = list[tuple[int, Action]]


def run(
    frames: list[Frame], rules: Rules | None = None, state: State | None = None
) -> list[tuple[int, Action]]:
    """Each action with the number of its frame."""
    rules, state = rules or Rules(), state or State()
    done: Done = []
    for number, frame in enumerate(frames):
        state, actions = step(state, frame, number * FRAME_MS / 1000, rules)
        done += [(number, action) for action in actions]
    return done


def kinds(done: Done) -> list[tuple[int, type[Action]]]:
    return [(number, type(action)) for number, action in done if not isinstance(action, SpeechStarted)]


def test_work_begins_with_the_first_hushed_frame_and_becomes_the_answer():
    frames = [*TALKING, *[HUSHED] * 3, AFTER_SPEECH, *[SILENCE] * 30]
    done = run(frames)
    assert kinds(done) == [(20, Speculate), (42, SpeechStopped)]
    # 120 ms with the first silent frame, 20 ms each after: 500 ms are full 19 frames later.
    assert 120 + (42 - 23) * FRAME_MS == 500


def test_of_that_the_turn_s_sound_reaches_to_that_frame():
    [(_, begun)] = [one for one in run([*TALKING, HUSHED]) if isinstance(one[1], Speculate)]
    assert begun == Speculate(0, 21 * FRAME_MS)


def test_speech_that_goes_on_drops_it():
    resumed = RESUME_MS // FRAME_MS
    done = run([*TALKING, *[HUSHED] * 3, *[SPEECH] * 10])
    assert kinds(done) == [(20, Speculate), (23 + resumed - 1, DropSpeculation)]


def test_one_frame_alone_does_not():
    done = run(
        [*TALKING, *[HUSHED] * 2, SPEECH, *[HUSHED] * 2, SPEECH, HUSHED, AFTER_SPEECH, *[SILENCE] * 19]
    )
    assert kinds(done) == [(20, Speculate), (46, SpeechStopped)]


def test_while_others_wait_it_begins_as_late_as_ever():
    frames = [*TALKING, *[HUSHED] * 3, AFTER_SPEECH, *[SILENCE] * 30]
    assert kinds(run(frames, BUSY)) == [(25, Speculate), (42, SpeechStopped)]
    assert kinds(run(frames, Rules(speculate_ms=None))) == [(42, SpeechStopped)]


def test_faint_sound_after_a_silence_is_speech_as_ever():
    """It ends the pause, as any speech does."""
    done = run([*TALKING, AFTER_SPEECH, *[HUSHED] * 4], Rules(early_ms=None, speculate_ms=120))
    assert kinds(done)[:2] == [(20, Speculate), (22, DropSpeculation)]


def test_over_a_reply_it_begins_nothing():
    state, _ = step(State(), ReplyStarted(), 0.0, Rules())
    # Shorter than what interrupts.
    frames = [*[SPEECH] * 10, *[HUSHED] * 5]
    assert not any(isinstance(action, Speculate) for _, action in run(frames, state=state))


def test_a_murmur_without_end_is_a_turn_of_the_longest_length():
    rules = Rules(longest_ms=1_000)
    done = run([*TALKING, *[HUSHED] * 100], rules)
    # A second is over with frame 49, and one frame more is not yet taken for speech again.
    assert kinds(done)[:3] == [(20, Speculate), (50, DropSpeculation), (50, SpeechStopped)]


@pytest.mark.parametrize("name", NAMES)
def test_real_speech_is_hushed_three_frames_after_its_last_sound(name: str):
    frames, last = cut_off(name)
    hush = Hush()
    hushed = [hush.judge(frame) for frame in frames]
    after = hushed[last:]
    # The speech before the cut is the loudest, so it is no longer remembered after 26 dB of forgetting only.
    assert after.index(True) in (HUSH_FRAMES - 1, HUSH_FRAMES)
    assert all(after[HUSH_FRAMES : HUSH_FRAMES + 50])


@pytest.mark.parametrize("name", NAMES)
def test_a_real_turn_s_work_begins_80_ms_before_the_detector_says_silence(name: str):
    frames, last = cut_off(name)
    microphone = Microphone(AudioInput(format=PcmFormat(), turn_detection=ServerVad()), WebRtcDetector)
    sound = np.frombuffer(b"".join(frames), "<i2").astype(np.float32) / 32768
    judged = microphone.hear(audio.to_pcm16(audio.resample(sound, 16_000, 24_000)))
    begun = [number for number, action in run(judged) if isinstance(action, Speculate)]
    late = [number for number, action in run(judged, BUSY) if isinstance(action, Speculate)]
    assert last <= begun[-1] <= last + HUSH_FRAMES
    assert late[-1] - begun[-1] >= 80 // FRAME_MS


@pytest.mark.parametrize("level", [0.0, 1e-4, 0.003, 0.1])
def test_steady_sound_is_never_hushed(level: float):
    noise = np.random.default_rng(0).normal(0, level, (500, FRAME_SAMPLES))
    hush = Hush()
    assert not any(hush.judge((frame * 32767).astype("<i2").tobytes()) for frame in noise)
