"""QwenTalkerScheduler: a turn is stepped when its next vector is there, and never holds the others."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from scheduler_toys import Crash, Tray, turn_id
from talker_toys import Time, ToyTalker, frames_of, heard, payloads_of

from voice_app.errors import StageFailed
from voice_app.messages import CodeFrames, PromptIds, PromptParams, TokenId
from voice_app.schedulers.talker import PARK_AFTER_S, QwenTalkerScheduler


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 50), max_size=8), min_size=1, max_size=8),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_any_interleaving_gives_what_each_gives_alone(answers, max_batch, max_states, memory, random) -> None:
    tray, runner, time = Tray(), ToyTalker(max_states, memory), Time()
    scheduler = QwenTalkerScheduler(runner, tray, max_batch, time)
    queues = {turn_id(n): payloads_of(tokens) for n, tokens in enumerate(answers)}
    while any(queues.values()):
        turn = random.choice([t for t, queue in queues.items() if queue])
        tray.deliver(scheduler, turn, queues[turn].pop(0))
        tray.full = {t for t in queues if random.random() < 0.2}
        time.now += random.choice((0.0, PARK_AFTER_S / 2, PARK_AFTER_S))
        for _ in range(random.randint(0, 2)):
            tray.step(scheduler)
    tray.full = set()
    tray.run(scheduler)
    for number, tokens in enumerate(answers):
        turn = turn_id(number)
        assert heard(tray, turn) == frames_of(tokens)
        last = tray.sent[turn][-1]
        assert isinstance(last, CodeFrames)
        assert last.last
    assert tray.finished == queues.keys()
    assert tray.all_given_back()
    assert tray.twice == 0
    assert runner.open_states == 0
    assert runner.free_memory == memory
    assert runner.most_open <= max_states
    assert max(runner.sizes) <= max_batch


def test_a_slow_turn_never_holds_the_others() -> None:
    tray, runner = Tray(), ToyTalker()
    scheduler = QwenTalkerScheduler(runner, tray)
    prompt, first, *_ = payloads_of([5, 6])
    for payload in (prompt, first):
        tray.deliver(scheduler, turn_id(0), payload)
    for payload in payloads_of([1, 2, 3]):
        tray.deliver(scheduler, turn_id(1), payload)
    tray.run(scheduler)
    assert len(heard(tray, turn_id(0))) == 1
    assert heard(tray, turn_id(1)) == frames_of([1, 2, 3])
    assert runner.sizes[0] == 2


def test_a_batch_too_small_for_all_serves_them_in_turn() -> None:
    tray, runner = Tray(), ToyTalker(max_states=6)
    scheduler = QwenTalkerScheduler(runner, tray, max_batch=2)
    for number in range(6):
        for payload in payloads_of(range(20)):
            tray.deliver(scheduler, turn_id(number), payload)
    for _ in range(30):
        tray.step(scheduler)
        counts = [len(heard(tray, turn_id(n))) for n in range(6)]
        assert max(counts) - min(counts) <= 1


def test_without_room_nothing_is_stepped_and_credit_is_kept() -> None:
    tray, runner = Tray(), ToyTalker()
    scheduler = QwenTalkerScheduler(runner, tray)
    tray.full.add(turn_id(0))
    for payload in payloads_of([1, 2]):
        tray.deliver(scheduler, turn_id(0), payload)
    tray.run(scheduler)
    assert not runner.sizes
    assert tray.released == 0
    tray.full.clear()
    tray.step(scheduler)
    assert tray.released == 2
    tray.run(scheduler)
    assert heard(tray, turn_id(0)) == frames_of([1, 2])


def test_turns_over_the_limit_wait_in_order() -> None:
    tray, runner = Tray(), ToyTalker(max_states=1)
    scheduler = QwenTalkerScheduler(runner, tray)
    for number in range(3):
        for payload in payloads_of([number]):
            tray.deliver(scheduler, turn_id(number), payload)
    tray.step(scheduler)
    load = scheduler.load()
    assert (load.running, load.waiting) == (1, 2)
    tray.cancel(scheduler, turn_id(1))
    tray.run(scheduler)
    assert list(tray.sent) == [turn_id(0), turn_id(2)]
    assert heard(tray, turn_id(2)) == frames_of([2])
    assert tray.all_given_back()


def _stalled(count: int) -> tuple[Tray, ToyTalker, Time, QwenTalkerScheduler]:
    """All of the talker's places are with turns that nobody listens to any more."""
    tray, runner, time = Tray(), ToyTalker(max_states=count), Time()
    scheduler = QwenTalkerScheduler(runner, tray, clock=time)
    for number in range(count):
        for payload in payloads_of([1, 2, number]):
            tray.deliver(scheduler, turn_id(number), payload)
    tray.step(scheduler)
    tray.full = {turn_id(n) for n in range(count)}
    tray.run(scheduler)
    assert all(len(heard(tray, turn_id(n))) == 1 for n in range(count))
    return tray, runner, time, scheduler


def test_turns_that_nobody_listens_to_give_their_places_up_and_go_on_where_they_were() -> None:
    tray, runner, time, scheduler = _stalled(3)
    others = [turn_id(n) for n in range(3, 10)]
    for number, turn in enumerate(others, 3):
        for payload in payloads_of([number]):
            tray.deliver(scheduler, turn, payload)
    time.now += PARK_AFTER_S / 2
    assert not tray.step(scheduler)
    assert scheduler.wake_after() == PARK_AFTER_S / 2
    time.now += PARK_AFTER_S / 2
    assert scheduler.wake_after() == 0.0
    tray.run(scheduler)
    assert [heard(tray, turn) for turn in others] == [frames_of([number]) for number in range(3, 10)]
    assert scheduler.load().running + scheduler.load().waiting == 3
    tray.full = set()
    tray.run(scheduler)
    assert [heard(tray, turn_id(n)) for n in range(3)] == [frames_of([1, 2, n]) for n in range(3)]
    assert runner.most_open <= 3
    assert runner.open_states == 0
    assert tray.all_given_back()


def test_nobody_gives_a_place_up_that_nobody_wants() -> None:
    tray, runner, time, scheduler = _stalled(3)
    time.now += 100 * PARK_AFTER_S
    assert scheduler.wake_after() is None
    tray.run(scheduler)
    assert runner.parks == 0


def test_a_turn_that_waits_for_its_text_gives_its_place_up_until_there_is_more() -> None:
    tray, runner, time = Tray(), ToyTalker(max_states=1), Time()
    scheduler = QwenTalkerScheduler(runner, tray, clock=time)
    one, other = payloads_of([1, 2, 3]), payloads_of([4, 5])
    for turn, payloads in ((turn_id(0), one), (turn_id(1), other)):
        for payload in payloads[:2]:
            tray.deliver(scheduler, turn, payload)
        time.now += PARK_AFTER_S
        tray.run(scheduler)
        assert len(heard(tray, turn)) == 1
    time.now += PARK_AFTER_S
    assert scheduler.wake_after() is None, "without more text neither needs the place"
    for payload in one[2:]:
        tray.deliver(scheduler, turn_id(0), payload)
    tray.run(scheduler)
    assert heard(tray, turn_id(0)) == frames_of([1, 2, 3])
    assert runner.parks == 2
    for payload in other[2:]:
        tray.deliver(scheduler, turn_id(1), payload)
    tray.run(scheduler)
    assert heard(tray, turn_id(1)) == frames_of([4, 5])


def test_turns_that_nobody_listens_to_give_way_to_one_that_finds_no_memory() -> None:
    """Places there are, and all of its text: the memory is with those who do not go on."""
    tray, runner, time = Tray(), ToyTalker(max_states=4, free_memory=2), Time()
    scheduler = QwenTalkerScheduler(runner, tray, clock=time)
    stalled, hasty = [turn_id(0), turn_id(1)], turn_id(2)
    for turn in (*stalled, hasty):
        for payload in payloads_of([1, 2]):
            tray.deliver(scheduler, turn, payload)
    tray.step(scheduler)
    tray.full = set(stalled)
    tray.run(scheduler)
    assert [len(heard(tray, turn)) for turn in (*stalled, hasty)] == [1, 1, 0]
    assert scheduler.wake_after() == PARK_AFTER_S
    time.now += PARK_AFTER_S
    assert scheduler.wake_after() == 0.0
    tray.run(scheduler)
    assert heard(tray, hasty) == frames_of([1, 2])
    assert runner.parks == 1, "one gives enough"
    assert scheduler.wake_after() is None, "nobody waits"
    tray.full = set()
    tray.run(scheduler)
    assert [heard(tray, turn) for turn in stalled] == [frames_of([1, 2])] * 2
    assert tray.all_given_back()
    assert runner.free_memory == 2


def test_one_that_waits_for_memory_neither_gives_its_place_up_nor_wakes_for_nothing() -> None:
    tray, runner, time = Tray(), ToyTalker(max_states=2, free_memory=0), Time()
    scheduler = QwenTalkerScheduler(runner, tray, clock=time)
    for number in range(3):
        for payload in payloads_of([number]):
            tray.deliver(scheduler, turn_id(number), payload)
    tray.run(scheduler)
    time.now += 10 * PARK_AFTER_S
    assert scheduler.wake_after() is None
    tray.run(scheduler)
    assert runner.parks == 0
    runner.free_memory = 1
    tray.run(scheduler)
    assert [heard(tray, turn_id(n)) for n in range(3)] == [frames_of([n]) for n in range(3)]


def test_a_parked_turn_that_is_cancelled_leaves_nothing() -> None:
    tray, runner, time, scheduler = _stalled(1)
    for payload in payloads_of([5])[:2]:
        tray.deliver(scheduler, turn_id(1), payload)
    time.now += PARK_AFTER_S
    tray.run(scheduler)
    assert (runner.parks, runner.open_states) == (1, 1)
    tray.cancel(scheduler, turn_id(0))
    assert runner.open_states == 1
    tray.cancel(scheduler, turn_id(1))
    assert (runner.open_states, scheduler.load().running) == (0, 0)
    assert tray.all_given_back()


def test_an_end_that_the_runner_did_not_mark_is_marked() -> None:
    tray, runner = Tray(), ToyTalker(says_last=False)
    scheduler = QwenTalkerScheduler(runner, tray)
    for payload in payloads_of([1]):
        tray.deliver(scheduler, turn_id(0), payload)
    tray.run(scheduler)
    last = tray.sent[turn_id(0)][-1]
    assert isinstance(last, CodeFrames)
    assert (len(last.frames), last.segment_end, last.last) == (0, True, True)


def test_cancel_and_crash_leave_nothing() -> None:
    tray, runner = Tray(), ToyTalker()
    scheduler = QwenTalkerScheduler(runner, tray)
    for number in range(3):
        for payload in payloads_of([1, 2, 3])[: 4 if number else 1]:
            tray.deliver(scheduler, turn_id(number), payload)
    tray.step(scheduler)
    tray.cancel(scheduler, turn_id(1))
    runner.crash = True
    with pytest.raises(Crash):
        scheduler.step()
    assert scheduler.in_flight() == (turn_id(2),)
    tray.cancel(scheduler, turn_id(2))
    runner.crash = False
    for payload in payloads_of([1, 2, 3])[1:]:
        tray.deliver(scheduler, turn_id(0), payload)
    tray.run(scheduler)
    assert heard(tray, turn_id(0)) == frames_of([1, 2, 3])
    assert tray.all_given_back()
    assert runner.open_states == 0
    assert scheduler.load().running == scheduler.load().waiting == 0


def test_a_turn_that_cannot_say_whether_it_is_ready_is_the_one_to_blame() -> None:
    tray, runner = Tray(), ToyTalker(crash_on=turn_id(1))
    scheduler = QwenTalkerScheduler(runner, tray)
    for number in range(3):
        for payload in payloads_of([number]):
            tray.deliver(scheduler, turn_id(number), payload)
    tray.run(scheduler)
    assert tray.failed.keys() == {turn_id(1)}
    assert tray.finished == {turn_id(0), turn_id(2)}
    assert tray.all_given_back()


def test_a_foreign_payload_fails_its_turn() -> None:
    tray, runner = Tray(), ToyTalker()
    scheduler = QwenTalkerScheduler(runner, tray)
    tray.deliver(scheduler, turn_id(0), PromptIds((), PromptParams()))
    tray.step(scheduler)
    tray.deliver(scheduler, turn_id(0), TokenId(1))
    assert isinstance(tray.failed[turn_id(0)], StageFailed)
    assert runner.open_states == 0
    assert tray.all_given_back()
