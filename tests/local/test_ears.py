"""The ears without models: finding speech, cutting at pauses, features, loops, what is believed."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import WhisperFeatureExtractor

from voice_app.messages import Embeddings, Media, MelFrames, Transcript, TurnId
from voice_app.models.local.audio_encoder import AudioEncoder, believed, parts, transcribe
from voice_app.models.local.prompt import UNCLEAR
from voice_app.models.local.recogniser import SAMPLE_RATE, Heard, Hearing, loop_start
from voice_app.models.local.voice_activity import WINDOW, spans
from voice_app.models.local.whisper import log_mel, mel_filters
from voice_app.schedulers.base import StageInput

SECOND = SAMPLE_RATE
MARGIN = SECOND // 4


def probabilities(*stretches: tuple[float, float]) -> np.ndarray:
    """(seconds, probability) … → one probability a window."""
    return np.concatenate([np.full(round(s * SECOND / WINDOW), p, np.float32) for s, p in stretches])


def test_speech_keeps_a_margin() -> None:
    [(start, end)] = spans(probabilities((1, 0.0), (1, 0.9), (1, 0.0)), 3 * SECOND)
    assert start == pytest.approx(SECOND - MARGIN, abs=WINDOW)
    assert end == pytest.approx(2 * SECOND + MARGIN, abs=WINDOW)


def test_a_short_pause_is_kept_and_a_long_one_dropped() -> None:
    short = spans(probabilities((1, 0.9), (0.4, 0.0), (1, 0.9)), int(2.4 * SECOND))
    long = spans(probabilities((1, 0.9), (2, 0.0), (1, 0.9)), 4 * SECOND)
    assert len(short) == 1
    assert len(long) == 2


def test_a_click_is_no_speech_and_doubt_does_not_end_it() -> None:
    assert spans(probabilities((1, 0.0), (0.032, 0.9), (1, 0.0)), 2 * SECOND) == []
    assert len(spans(probabilities((0.5, 0.9), (1, 0.4), (0.5, 0.9)), 2 * SECOND)) == 1


@given(st.lists(st.floats(0, 1), max_size=200))
def test_spans_are_ordered_apart_and_inside(values: list[float]) -> None:
    length = len(values) * WINDOW
    found = spans(np.array(values, np.float32), length)
    edges = [edge for span in found for edge in span]
    assert edges == sorted(edges)
    assert all(start < end for start, end in found)
    assert not edges or (edges[0] >= 0 and edges[-1] <= length)


@given(st.integers(0, 100), st.integers(0, 2**16))
def test_parts_join_to_the_whole(tenths: int, seed: int) -> None:
    samples = np.random.default_rng(seed).standard_normal(tenths * SECOND // 10).astype(np.float32)
    cut = parts(samples, max_seconds=2.0)
    assert np.array_equal(np.concatenate([*cut, np.zeros(0, np.float32)]), samples)
    assert all(0 < len(part) <= 2 * SECOND for part in cut)


def test_long_sound_is_cut_in_its_pauses() -> None:
    talk = np.ones(9 * SECOND, np.float32)
    talk[int(1.6 * SECOND) : int(1.8 * SECOND)] = 0
    talk[int(3.5 * SECOND) : int(3.7 * SECOND)] = 0
    first, second, *_ = parts(talk, max_seconds=2.0)
    assert len(first) / SECOND == pytest.approx(1.7, abs=0.1)
    assert (len(first) + len(second)) / SECOND == pytest.approx(3.6, abs=0.1)


@pytest.mark.parametrize("seconds", [0.5, 3.0, 10.0])
def test_features_are_those_of_whisper(seconds: float) -> None:
    samples = np.random.default_rng(0).normal(0, 0.1, int(seconds * SECOND)).astype(np.float32)
    samples *= np.linspace(0, 1, len(samples), dtype=np.float32) ** 4
    published = WhisperFeatureExtractor()
    window = np.zeros(published.chunk_length * SECOND, np.float32)
    window[: len(samples)] = samples
    expected = published(samples, sampling_rate=SAMPLE_RATE, return_tensors="np").input_features[0]
    assert np.abs(log_mel(window, mel_filters(80)) - expected).max() < 1e-3


def test_loops_are_found_and_emphasis_is_none() -> None:
    assert loop_start([5, 1, 2, 1, 2, 1, 2, 1, 2]) == 3
    assert loop_start([5, 7, 7, 7, 7]) == 2
    assert loop_start([7, 7, 7]) is None
    assert loop_start([]) is None


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_a_repeated_tail_is_cut_to_one_round(head: list[int], period: list[int]) -> None:
    ids = head + period * 4
    cut = loop_start(ids)
    assert cut is not None
    assert len(ids) - cut < len(ids)
    size = (len(ids) - cut) // 3
    assert ids[cut:] == ids[cut - size : cut] * 3


def test_only_what_is_sure_and_has_words_is_believed() -> None:
    assert believed(Heard("Hello.", -0.3)) == "Hello."
    assert believed(Heard("You", -1.5)) == ""
    assert believed(Heard("♪ ...", -0.1)) == ""


class Parrot:
    """Hears how long a stretch is."""

    identity = "parrot"
    max_seconds = 2.0

    def hear(self, samples: np.ndarray) -> Heard:
        return Heard(f"{len(samples)}", -0.1)

    def hearing(self, samples: np.ndarray, draft: Sequence[int] = ()) -> Hearing:
        yield from ()
        return self.hear(samples)


class Letters:
    """A vocabulary of code points, one wide."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def embed(self, ids: Sequence[int]) -> np.ndarray:
        return np.array(ids, np.float32)[:, None]


def recording(key: str, seconds: float) -> StageInput:
    samples = np.random.default_rng(0).normal(0, 0.1, int(seconds * SECOND)).astype(np.float32)
    return StageInput(TurnId(key, key), MelFrames(Media(key, "audio"), samples, seconds), True)


def test_long_speech_is_heard_while_others_are() -> None:
    encoder = AudioEncoder(Parrot(), Letters())
    long, longer = recording("a", 19), recording("b", 30)
    results: dict[str, object] = {"a": None, "b": None}
    encoder.run([long, longer])
    encoder.run([long, longer])
    calls = 0
    while None in results.values():
        batch = [item for item in (long, longer) if results[item.turn.turn] is None]
        given = encoder.run(batch)
        results |= {item.turn.turn: result for item, result in zip(batch, given, strict=True)}
        calls += 1
        short = recording(f"short {calls}", 1)
        said = [encoder.run([*batch, short])[-1] for _ in range(2)]
        assert said[-1], "who says little waits for a step at most"
    for item, result in ((long, results["a"]), (longer, results["b"])):
        assert isinstance(item.payload, MelFrames)
        assert isinstance(result, list)
        assert result[1] == Transcript(transcribe(Parrot(), item.payload.frames))


class Slow(Parrot):
    """In three steps."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def hearing(self, samples: np.ndarray, draft: Sequence[int] = ()) -> Hearing:
        for _ in range(2):
            self.steps.append(len(samples))
            yield
        self.steps.append(len(samples))
        return self.hear(samples)


def test_who_comes_first_is_heard_first_and_told_at_once() -> None:
    encoder = AudioEncoder(Slow(), Letters())
    waiting = [recording("a", 1), recording("b", 0.5)]
    told: list[tuple[int, str]] = []
    for call in range(9):
        # A scheduler puts those that are not done behind newcomers.
        waiting = [*([recording("c", 0.7)] if call == 1 else []), *waiting]
        found = zip(waiting, encoder.run(waiting), strict=True)
        told += [(call, item.turn.turn) for item, result in found if result]
        waiting = [item for item in waiting if item.turn.turn not in {name for _, name in told}]
    assert told == [(2, "a"), (5, "b"), (8, "c")]


def test_what_nobody_waits_for_any_more_costs_no_further_step() -> None:
    slow = Slow()
    encoder = AudioEncoder(slow, Letters())
    dropped, wanted = recording("a", 1), recording("b", 0.5)
    encoder.run([dropped, wanted])
    while not encoder.run([wanted])[0]:
        pass
    assert slow.steps == [SECOND, *[SECOND // 2] * 3]
    assert [encoder.run([dropped])[0] for _ in range(2)][-1], "it goes on where it was left"
    assert slow.steps.count(SECOND) == 3


def test_a_long_recording_is_heard_to_its_end_however_many_others_come() -> None:
    encoder = AudioEncoder(Parrot(), Letters())
    long = recording("long", 19)
    for call in range(200):
        if encoder.run([long, *(recording(f"short {call + number}", 1) for number in range(5))])[0]:
            return
    raise AssertionError("never")


def test_more_than_is_kept_of_what_was_left_is_heard_when_it_all_waits() -> None:
    """Four recordings of a minute, each by itself half of what is kept."""
    encoder = AudioEncoder(Parrot(), Letters())
    waiting = [recording(name, 66) for name in "abcd"]
    for _ in range(4 * 66):
        found = zip(waiting, encoder.run(waiting), strict=True)
        waiting = [item for item, result in found if not result]
    assert not waiting


def test_what_is_written_over_after_a_cancel_is_not_heard() -> None:
    encoder = AudioEncoder(Summing(), Letters())
    first = recording("a", 3)
    assert isinstance(first.payload, MelFrames)
    whole = first.payload.frames.copy()
    encoder.run([first])
    first.payload.frames[:] = 9.0
    again = StageInput(TurnId("a", "b"), MelFrames(Media("a", "audio"), whole, 3), True)
    found = None
    while found is None:
        (found,) = encoder.run([again])
    assert isinstance(found, list)
    assert found[1] == Transcript(transcribe(Summing(), whole))


class Summing(Parrot):
    def hear(self, samples: np.ndarray) -> Heard:
        return Heard(f"{float(samples.sum()):.3f}", -0.1)


def test_a_step_that_fails_fails_once() -> None:
    class Failing(Parrot):
        failed = False

        def hear(self, samples: np.ndarray) -> Heard:
            if not self.failed:
                self.failed = True
                raise RuntimeError("out of memory")
            return super().hear(samples)

    encoder = AudioEncoder(Failing(), Letters())
    with pytest.raises(RuntimeError, match="out of memory"):
        encoder.run([recording("a", 1)])
    assert encoder.run([recording("a", 1)])[0]


class Drafted(Parrot):
    """Remembers what it was told to expect."""

    def __init__(self) -> None:
        self.drafts: list[tuple[int, ...]] = []

    def hearing(self, samples: np.ndarray, draft: Sequence[int] = ()) -> Hearing:
        self.drafts.append(tuple(draft))
        yield from ()
        return Heard(f"{len(samples)}", -0.1, ids=(len(samples),))


def test_what_a_recording_began_with_is_the_draft_of_more_of_it() -> None:
    drafted = Drafted()
    encoder = AudioEncoder(drafted, Letters())
    sound = np.random.default_rng(1).normal(0, 0.1, 2 * SECOND).astype(np.float32)
    first, other = sound[:SECOND], np.roll(sound, 1)
    for name, session, samples in (
        ("a", "one", first),
        ("b", "one", 0.5 * sound),  # At another level: it is brought to one as a whole.
        ("c", "two", sound),
        ("d", "two", other),
    ):
        mel = MelFrames(Media(name, "audio"), samples, len(samples) / SECOND)
        assert encoder.run([StageInput(TurnId(session, name), mel, True)])[0]
    assert drafted.drafts == [(), (SECOND,), (), ()]


@pytest.mark.parametrize(("seconds", "text"), [(1.1, ""), (1.3, UNCLEAR), (1.9, UNCLEAR)])
def test_whoever_spoke_for_long_meant_something(seconds: float, text: str) -> None:
    class Doubting(Parrot):
        def hear(self, samples: np.ndarray) -> Heard:
            return Heard("Burod and", -1.2)

    samples = np.random.default_rng(0).normal(0, 0.1, int(seconds * SECOND)).astype(np.float32)
    mel = MelFrames(Media("a", "audio"), samples, seconds)
    (found,) = AudioEncoder(Doubting(), Letters()).run([StageInput(TurnId("a", "a"), mel, True)])
    assert isinstance(found, list)
    embeddings, transcript = found
    assert isinstance(embeddings, Embeddings)
    assert embeddings.text == text
    assert list(embeddings.ids) == Letters().encode(text)
    assert transcript == Transcript(""), "no word was heard"


def test_the_parts_of_long_speech_are_joined_in_order() -> None:
    words = transcribe(Parrot(), np.ones(5 * SECOND, np.float32)).split()
    assert len(words) >= 3
    assert sum(map(int, words)) == 5 * SECOND
    assert transcribe(Parrot(), np.zeros(0, np.float32)) == ""
