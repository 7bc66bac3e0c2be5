"""Code2WavScheduler: streamed sound equals the whole decode for any chunking; each end is told once."""

import random
from dataclasses import replace

import numpy as np
import pytest
from scheduler_toys import Crash, Tray, turn_id
from wave_toys import SPEC, TRIM, Clock, FirDecoder, chunked, codes, fir, sound_of

from voice_app.errors import StageFailed
from voice_app.messages import AudioDone, CodeFrames, TokenId
from voice_app.schedulers.code2wav import Code2WavScheduler


@pytest.mark.parametrize("trim", [0, TRIM])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 100, random.Random(5)], ids=str)
@pytest.mark.parametrize("taps", [(3, 2), (3, 0), (0, 2), (0, 0)])
def test_streamed_equals_whole_for_any_chunking(
    size: int | random.Random, trim: int, taps: tuple[int, int]
) -> None:
    spec = replace(SPEC, left_context=taps[0] + (trim > 0), right_context=taps[1])
    tray, runner, clock = Tray(), FirDecoder(spec, trim, taps), Clock()
    scheduler = Code2WavScheduler(runner, tray, clock=clock)
    segments = [codes(37, 1), codes(1, 2), codes(2, 3), codes(23, 4)]
    for number, segment in enumerate(segments):
        for payload in chunked(segment, size, last=number == 3):
            tray.deliver(scheduler, turn_id(0), payload)
            tray.run(scheduler)
            clock.now += 0.02
    whole = np.concatenate([fir(s, taps)[: len(s) * 4 - trim] for s in segments])
    np.testing.assert_array_equal(sound_of(tray, turn_id(0)), whole)
    # Right context is decoded last, when the end is known; without it all may be decoded by then.
    assert runner.ended == len(segments) if taps[1] else runner.ended <= len(segments)
    assert tray.all_given_back()
    assert scheduler.load().running == 0


def test_turns_are_batched_and_do_not_mix() -> None:
    tray, runner, clock = Tray(), FirDecoder(), Clock()
    scheduler = Code2WavScheduler(runner, tray, max_batch=4, clock=clock)
    dice = random.Random(3)
    queues = {turn_id(n): chunked(codes(30 + n, n), dice, last=True) for n in range(9)}
    while any(queues.values()):
        turn = dice.choice([t for t, queue in queues.items() if queue])
        tray.deliver(scheduler, turn, queues[turn].pop(0))
        tray.full = {t for t in queues if dice.random() < 0.2}
        if dice.random() < 0.3:
            tray.step(scheduler)
        clock.now += 0.01
    tray.full = set()
    tray.run(scheduler)
    for number in range(9):
        np.testing.assert_array_equal(sound_of(tray, turn_id(number)), fir(codes(30 + number, number)))
    assert max(len(sizes) for sizes in runner.windows) == 4
    assert runner.open_states == 0
    assert tray.all_given_back()


def test_the_first_window_is_small_and_the_next_grow() -> None:
    tray, runner = Tray(), FirDecoder()
    scheduler = Code2WavScheduler(runner, tray, clock=Clock())
    (whole,) = chunked(codes(40), 40, last=True)
    tray.deliver(scheduler, turn_id(0), whole)
    tray.step(scheduler)
    assert runner.windows == [[1]]
    tray.run(scheduler)
    assert runner.windows == [[1], [8], [8], [8], [8], [7]]


def test_windows_fill_while_the_lead_lasts_and_are_taken_as_they_are_when_it_ends() -> None:
    spec = replace(SPEC, right_context=0, sample_rate=40)  # 0.1 s a frame.
    tray, runner, clock = Tray(), FirDecoder(spec), Clock()
    scheduler = Code2WavScheduler(runner, tray, clock=clock)

    def frames(count: int) -> None:
        tray.deliver(scheduler, turn_id(0), CodeFrames(codes(count)))
        tray.run(scheduler)

    frames(1)
    assert runner.windows == [[1]]
    frames(7)  # 0.1 s of lead is little: all at once.
    assert runner.windows[1:] == [[7]]
    frames(3)  # 0.8 s of lead: the window of 8 may fill.
    assert len(runner.windows) == 2
    wait = scheduler.wake_after()
    assert wait == pytest.approx(0.55)
    clock.now += 0.54
    tray.run(scheduler)
    assert len(runner.windows) == 2
    clock.now += 0.02
    tray.run(scheduler)
    assert runner.windows[2:] == [[3]]
    assert scheduler.wake_after() is None


def test_a_short_segment_does_not_shrink_the_windows_after_it() -> None:
    spec = replace(SPEC, right_context=0, sample_rate=4)  # 1 s a frame.
    tray, runner = Tray(), FirDecoder(spec)
    scheduler = Code2WavScheduler(runner, tray, clock=Clock())
    for frames in (CodeFrames(codes(9)), CodeFrames(codes(1), segment_end=True), CodeFrames(codes(3))):
        tray.deliver(scheduler, turn_id(0), frames)
        tray.run(scheduler)
    assert runner.windows == [[1], [8], [1]]


def test_a_first_window_that_fills_is_not_waited_for_by_the_clock() -> None:
    tray, clock = Tray(), Clock()
    scheduler = Code2WavScheduler(FirDecoder(replace(SPEC, first_window=4)), tray, clock=clock)
    tray.deliver(scheduler, turn_id(0), CodeFrames(codes(5)))
    tray.run(scheduler)
    assert scheduler.wake_after() is None


def test_the_driest_turn_goes_first() -> None:
    tray, runner, clock = Tray(), FirDecoder(), Clock()
    scheduler = Code2WavScheduler(runner, tray, max_batch=1, clock=clock)
    for number in (0, 1):
        tray.deliver(scheduler, turn_id(number), CodeFrames(codes(20)))
    tray.step(scheduler)
    tray.step(scheduler)
    assert all(tray.sent[turn_id(n)] for n in (0, 1))


def test_nothing_said_ends_once_with_no_sample() -> None:
    tray, runner = Tray(), FirDecoder()
    scheduler = Code2WavScheduler(runner, tray)
    tray.deliver(scheduler, turn_id(0), CodeFrames(np.empty((0, 0), np.int64), segment_end=True, last=True))
    tray.run(scheduler)
    assert tray.sent[turn_id(0)] == [AudioDone(0)]
    assert tray.finished == {turn_id(0)}
    assert runner.open_states == 0
    assert not runner.windows


def test_an_end_that_comes_after_all_frames_were_decoded() -> None:
    tray, runner = Tray(), FirDecoder(replace(SPEC, right_context=0), taps=(3, 0))
    scheduler = Code2WavScheduler(runner, tray)
    tray.deliver(scheduler, turn_id(0), CodeFrames(codes(1)))
    tray.run(scheduler)
    tray.deliver(scheduler, turn_id(0), CodeFrames(np.empty((0, 2), np.int64), last=True))
    tray.run(scheduler)
    np.testing.assert_array_equal(sound_of(tray, turn_id(0)), fir(codes(1), (3, 0)))


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        (np.array([[0, 50]]), "code 50 is outside the codebook of 50"),
        (np.array([[-1, 0]]), "code -1 is outside"),
        (np.array([[0.5, 1]]), "float64; the decoder takes integers"),
        (np.array([[1, 2, 3]]), r"shape \[1, 3\]; the decoder takes \[n, 2\]"),
        (np.array([1, 2]), r"shape \[2\]"),
    ],
)
def test_codes_that_the_model_must_not_see_end_their_turn(frames: np.ndarray, words: str) -> None:
    tray, runner = Tray(), FirDecoder()
    scheduler = Code2WavScheduler(runner, tray)
    for number in (0, 1):
        tray.deliver(scheduler, turn_id(number), CodeFrames(codes(9)))
    tray.step(scheduler)
    tray.deliver(scheduler, turn_id(0), CodeFrames(frames))
    tray.deliver(scheduler, turn_id(1), CodeFrames(codes(0), last=True))
    tray.run(scheduler)
    error = tray.failed[turn_id(0)]
    assert isinstance(error, StageFailed)
    with pytest.raises(StageFailed, match=words):
        raise error
    np.testing.assert_array_equal(sound_of(tray, turn_id(1)), fir(codes(9)))
    assert tray.all_given_back()
    assert runner.open_states == 0


def test_latents_that_are_not_finite_end_their_turn() -> None:
    tray = Tray()
    scheduler = Code2WavScheduler(FirDecoder(replace(SPEC, codebook=None)), tray)
    tray.deliver(scheduler, turn_id(0), CodeFrames(np.array([[1.0, np.nan]])))
    assert "not finite" in str(tray.failed[turn_id(0)])


def test_a_foreign_payload_fails_its_turn() -> None:
    tray = Tray()
    scheduler = Code2WavScheduler(FirDecoder(), tray)
    tray.deliver(scheduler, turn_id(0), CodeFrames(codes(3)))
    tray.deliver(scheduler, turn_id(0), TokenId(1))
    assert isinstance(tray.failed[turn_id(0)], StageFailed)
    assert tray.all_given_back()


# ------------------------------------------------------------------------------- bounds and leaving


def test_a_turn_without_room_is_not_decoded_and_holds_back_its_senders() -> None:
    tray, runner = Tray(), FirDecoder()
    scheduler = Code2WavScheduler(runner, tray)
    tray.full.add(turn_id(0))
    for _ in range(30):
        tray.deliver(scheduler, turn_id(0), CodeFrames(codes(1)))
    tray.run(scheduler)
    assert not runner.windows
    assert scheduler.wake_after() is None
    assert tray.released == SPEC.max_window + SPEC.right_context
    tray.deliver(scheduler, turn_id(0), CodeFrames(codes(0), last=True))
    tray.deliver(scheduler, turn_id(1), CodeFrames(codes(0), last=True))
    tray.full.add(turn_id(1))
    tray.run(scheduler)
    assert not tray.sent[turn_id(1)]
    tray.full.clear()
    tray.run(scheduler)
    assert tray.sent[turn_id(1)] == [AudioDone(0)]
    assert tray.all_given_back()
    assert len(sound_of(tray, turn_id(0))) == 30 * 4


def test_one_frame_a_payload_and_a_single_slot_do_not_lock_up() -> None:
    """A window with its context needs more payloads than the sender has slots; a slot is used again."""
    tray, runner, clock = Tray(), FirDecoder(), Clock()
    scheduler = Code2WavScheduler(runner, tray, clock=clock)
    frames = codes(60)
    slot = np.empty((1, 2), np.int64)
    for index in range(60):
        assert tray.delivered == tray.released
        slot[:] = frames[index]
        tray.deliver(scheduler, turn_id(0), CodeFrames(slot, last=index == 59))
        tray.run(scheduler)
    np.testing.assert_array_equal(sound_of(tray, turn_id(0)), fir(frames))


def test_cancel_and_crash_leave_nothing() -> None:
    tray, runner = Tray(), FirDecoder()
    scheduler = Code2WavScheduler(runner, tray)
    for number in range(3):
        tray.deliver(scheduler, turn_id(number), CodeFrames(codes(30)))
    tray.step(scheduler)
    tray.cancel(scheduler, turn_id(0))
    tray.full.add(turn_id(1))
    runner.crash = True
    with pytest.raises(Crash):
        scheduler.step()
    assert scheduler.in_flight() == (turn_id(2),)
    tray.cancel(scheduler, turn_id(2))
    runner.crash = False
    tray.full.clear()
    tray.deliver(scheduler, turn_id(1), CodeFrames(codes(0), last=True))
    tray.run(scheduler)
    np.testing.assert_array_equal(sound_of(tray, turn_id(1)), fir(codes(30)))
    assert runner.open_states == 0
    assert tray.all_given_back()
    assert scheduler.load().waiting == scheduler.load().running == 0
