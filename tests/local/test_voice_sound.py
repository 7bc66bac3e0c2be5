"""The packaged voice: streamed is whole, words are where the marks say, it is understood, nothing clicks."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from voice_app.bench.heard_back import Spoken, hear
from voice_app.bench.voice import Sound, Speaker, in_words
from voice_app.bench.words import error_rate
from voice_app.config import PackConfig
from voice_app.messages import CodeFrames, PromptParams
from voice_app.models.local.clauses import Clause
from voice_app.schedulers.base import WaveSpec, WaveWindow
from voice_app.schedulers.wave_turn import WaveTurn

pytestmark = pytest.mark.models

TEXT = (
    "Sure, I can tell you about that. The river rises in the hills, flows past three old towns, and reaches "
    "the sea after 300 km. Shall I go on?"
)


@pytest.fixture(scope="module")
def speaker() -> Speaker:
    return Speaker(PackConfig())


@pytest.fixture(scope="module")
def sound(speaker: Speaker) -> Sound:
    return speaker.say(TEXT)


def segments(speaker: Speaker, text: str) -> list[np.ndarray]:
    """The talker's frames, a segment at a time."""
    found, parts = [], []
    for payload in speaker.frames(text):
        parts.append(payload.frames)
        if payload.segment_end:
            found.append(np.concatenate(parts))
            parts = []
    return [frames for frames in found if len(frames)]


def whole(speaker: Speaker, frames: np.ndarray) -> np.ndarray:
    (samples,) = speaker.decoder.decode([WaveWindow(None, frames, 0, 0, True, True)])
    return samples


def streamed(speaker: Speaker, parts: Sequence[np.ndarray], sizes: Sequence[int]) -> np.ndarray:
    """Decoded in windows of `sizes`, over and over, by the scheduler's own bookkeeping."""
    spec: WaveSpec = speaker.decoder.spec
    turn = WaveTurn(spec)
    for index, part in enumerate(parts):
        last = index + 1 == len(parts)
        turn.add(CodeFrames(part, segment_end=True, last=last), lambda: None)
    samples = []
    while not turn.over:
        new = min(sizes[len(samples) % len(sizes)], turn.ready)
        (window,) = speaker.decoder.decode([turn.window(new)])
        samples.append(window)
        turn.advance(new, len(window))
    return np.concatenate(samples)


@pytest.mark.parametrize("sizes", [[1], [7], [16, 48], [48], [3, 50, 1, 200], [1000]])
def test_streamed_is_whole(speaker: Speaker, sizes: list[int]) -> None:
    parts = segments(speaker, "Yes. The river rises in the hills, and flows past three old towns.")
    assert len(parts) >= 2
    expected = np.concatenate([whole(speaker, part) for part in parts])
    got = streamed(speaker, parts, sizes)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 1e-4


def test_as_many_samples_as_frames(speaker: Speaker, sound: Sound) -> None:
    frames = sum(len(part) for part in segments(speaker, TEXT))
    assert len(sound.samples) == frames * speaker.decoder.spec.samples_per_frame
    assert sound.samples.dtype == np.float32


def test_a_clause_in_parts_is_the_clause(speaker: Speaker) -> None:
    saying = speaker.talker.begin(Clause("The river rises in the hills.", 0), 1.0, 0)
    assert saying is not None
    utterance = saying.utterance
    whole_clause = utterance.frames(0, len(utterance))
    edges = [0, 1, 9, 32, 77, len(utterance)]
    parts = [utterance.frames(start, end) for start, end in pairwise(edges)]
    assert np.abs(np.concatenate(parts) - whole_clause).max() <= 1e-4


def test_the_same_text_gives_the_same_sound(speaker: Speaker, sound: Sound) -> None:
    speaker.say("Something else in between.")
    assert np.array_equal(speaker.say(TEXT).samples, sound.samples)


def test_two_decoders_give_the_same_sound(speaker: Speaker) -> None:
    other = Speaker(PackConfig())
    assert np.array_equal(other.say("Just the same.").samples, speaker.say("Just the same.").samples)


def test_marks_rise_through_text_and_time(sound: Sound) -> None:
    chars = [mark.chars for mark in sound.marks]
    samples = [mark.sample for mark in sound.marks]
    assert chars == sorted(set(chars))
    assert samples == sorted(set(samples))
    assert samples[-1] <= len(sound.samples)
    # One for each written word; "km" is said with its number.
    ends = [end for end in range(1, len(TEXT) + 1) if TEXT[end - 1 : end + 1].rstrip() == TEXT[end - 1]]
    assert chars == [end for end in ends if TEXT[end - 3 : end] != "300"]


@pytest.mark.parametrize("words", [3, 5, 8, 11])
def test_up_to_a_mark_those_words_are_heard(speaker: Speaker, words: int) -> None:
    text = "Twenty children played football in the park until the rain came down."
    said = speaker.say(text)
    mark = said.marks[words - 1]
    assert text[: mark.chars].split() == text.split()[:words]
    (heard,) = hear([Spoken(text, said.samples[: mark.sample], speaker.rate)])
    # Of all beginnings of the text, what is heard is most like this one; the cut may cost the word at it.
    beginnings = [" ".join(text.split()[:count]) for count in range(1, len(text.split()) + 1)]
    edits = [error_rate([(start, heard)]) * len(start.split()) for start in beginnings]
    assert abs(1 + int(np.argmin(edits)) - words) <= 1
    assert min(edits) <= 3


def test_a_mark_before_a_pause_is_where_the_sound_falls(speaker: Speaker) -> None:
    text = "Wait. Now go."
    said = speaker.say(text)
    at = said.marks[0].sample
    level = np.abs(said.samples)
    near = speaker.rate // 10
    assert level[at - near : at].max() > 10 * level[at + near // 2 : at + near].max()


HEARD = [
    ("Sure, I can help you with that.", None),
    ("Take a slow, deep breath, and you can do it.", None),
    ("It's 10:30 in the morning.", "It's ten thirty in the morning."),
    ("12 x 7 = 84.", "Twelve times seven equals eighty four."),
    ("About 71% of the earth is **water**. 😀", "About seventy one percent of the earth is water."),
    ("Photosynthesis turns sunlight, water and carbon dioxide into sugar and oxygen.", None),
    ("Dr. Smith will see you on Mon. at 9 a.m.", "Doctor Smith will see you on Monday at nine AM."),
    ("A leap year has 366 days.", "A leap year has three hundred sixty six days."),
]


def test_it_is_understood(speaker: Speaker) -> None:
    wanted = [in_words(read or written) for written, read in HEARD]
    sounds = [speaker.say(written) for written, _ in HEARD]
    spoken = [Spoken(text, said.samples, speaker.rate) for text, said in zip(wanted, sounds, strict=True)]
    assert error_rate(zip(wanted, map(in_words, hear(spoken)), strict=True)) <= 0.08


def test_the_level_is_sane(sound: Sound) -> None:
    assert 0.2 < np.abs(sound.samples).max() < 0.99
    loud = np.sqrt(np.mean(np.square(sound.samples)))
    assert -32 < 20 * np.log10(loud) < -14
    assert abs(sound.samples.mean()) < 1e-3


def test_no_click_at_the_borders_of_clauses(speaker: Speaker) -> None:
    parts = [whole(speaker, part) for part in segments(speaker, TEXT)]
    joined = np.concatenate(parts)
    usual = np.percentile(np.abs(np.diff(joined)), 99)
    place = 0
    for part in parts[:-1]:
        place += len(part)
        assert abs(joined[place] - joined[place - 1]) < usual
    assert abs(joined[0]) < usual
    assert abs(joined[-1]) < usual


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("This is the first sentence. This is the second one.", 0.25, 0.6),
        ("When the rain had stopped at last, we went back to our house.", 0.1, 0.35),
        ("I walked all the way through the old town in the rain because the last bus was late.", 0.0, 0.2),
    ],
)
def test_pauses_are_as_long_as_a_person_makes_them(
    speaker: Speaker, text: str, least: float, most: float
) -> None:
    assert len(segments(speaker, text)) == 2
    assert least < _longest_quiet(speaker.say(text).samples, speaker.rate) < most


def _longest_quiet(samples: np.ndarray, rate: int) -> float:
    """Seconds of the longest stretch, not counting the ends, that is 40 dB below the loudest."""
    block = rate // 100
    levels = np.abs(samples[: len(samples) // block * block]).reshape(-1, block).max(axis=1)
    heard = np.flatnonzero(levels > 0.01 * levels.max())
    return float(np.diff(heard).max() - 1) / 100


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_speed(speaker: Speaker, speed: float) -> None:
    text = "This is said faster or slower than the voice would."
    usual = len(speaker.say(text).samples)
    assert len(speaker.say(text, PromptParams(speed=speed)).samples) == pytest.approx(usual / speed, rel=0.02)


def test_frames_are_bounded(speaker: Speaker) -> None:
    said = speaker.say(TEXT, PromptParams(max_frames=100))
    assert len(said.samples) == 100 * speaker.decoder.spec.samples_per_frame
    assert 0 < said.marks[-1].chars < len(TEXT)


@pytest.mark.parametrize("text", ["", " \n", "😀🎉", "**", "---", "...!?", "```\ncode\n```"])
def test_nothing_to_say(speaker: Speaker, text: str) -> None:
    payloads = speaker.frames(text)
    assert [len(payload.frames) for payload in payloads] == [0]
    assert payloads[-1].last
    assert len(speaker.say(text).samples) == 0


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "I",
        "7",
        "%",
        "Привет, как дела?",
        "你好",
        "π",
        "0123456789" * 8,
        "a b c d e f g",
        "Zbigniew Brzeziński",
        "xkcd qwrtpsd",
        "word " * 120,
        "wordwithoutanyspaces" * 30,
        "!!! yes ???",
        "Ω" * 50,
    ],
)
def test_whatever_is_written_is_said(speaker: Speaker, text: str) -> None:
    said = speaker.say(text)
    assert len(said.samples) > speaker.rate // 10
    assert np.abs(said.samples).max() > 0.02
    assert np.isfinite(said.samples).all()
    assert said.marks[-1].chars == len(text)


def test_spec_tells_what_the_voice_needs(speaker: Speaker) -> None:
    spec = speaker.decoder.spec
    assert (spec.sample_rate, spec.samples_per_frame, spec.channels) == (22050, 256, 192)
    assert spec.codebook is None
    assert replace(spec, left_context=10, right_context=10) == spec
