"""QwenTalkerScheduler: a turn is stepped when its next vector is there, and never holds the others."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from scheduler_toys import Crash, Tray, turn_id

from voice_app.errors import StageFailed
from voice_app.messages import (
    CodeFrames,
    EdgePayload,
    PromptIds,
    PromptParams,
    TokenId,
    TokenVector,
    TurnId,
)
from voice_app.schedulers.base import TalkerOutput
from voice_app.schedulers.talker import PARK_AFTER_S, QwenTalkerScheduler


@dataclass(eq=False)
class Speaker:
    """One turn of the toy: a frame is a running hash of the vectors used; two more follow the last."""

    turn: TurnId
    prompt: bool = False
    vectors: list[TokenVector] = field(default_factory=list)
    used: int = 0
    tail: int = 0
    value: int = 0
    parked: bool = False


@dataclass
class ToyTalker:
    """Starts when the prompt and one vector are there; a step uses up one vector."""

    max_states: int = 4
    open_states: int = 0
    most_open: int = 0
    sizes: list[int] = field(default_factory=list)
    crash: bool = False
    crash_on: TurnId | None = None
    """Whom it cannot say whether it is ready."""
    says_last: bool = True
    parks: int = 0

    def warm_up(self) -> None:
        pass

    def open(self, turn: TurnId) -> object:
        self.open_states += 1
        self.most_open = max(self.most_open, self.open_states)
        return Speaker(turn)

    def park(self, state: object) -> None:
        assert isinstance(state, Speaker)
        assert not state.parked
        state.parked = True
        self.open_states -= 1
        self.parks += 1

    def unpark(self, state: object) -> None:
        assert isinstance(state, Speaker)
        assert state.parked
        state.parked = False
        self.open_states += 1
        self.most_open = max(self.most_open, self.open_states)

    def feed(self, state: object, payload: EdgePayload) -> None:
        assert isinstance(state, Speaker)
        assert not state.parked
        if isinstance(payload, PromptIds):
            state.prompt = True
        else:
            assert isinstance(payload, TokenVector)
            state.vectors.append(payload)

    def ready(self, state: object) -> bool:
        assert isinstance(state, Speaker)
        assert not state.parked
        if state.turn == self.crash_on:
            raise Crash
        return state.prompt and (state.used < len(state.vectors) or state.tail > 0)

    def step(self, states: Sequence[object]) -> Sequence[TalkerOutput]:
        assert all(self.ready(state) for state in states)
        if self.crash:
            raise Crash
        self.sizes.append(len(states))
        return [self._advance(state) for state in states if isinstance(state, Speaker)]

    def close(self, state: object) -> None:
        assert isinstance(state, Speaker)
        self.open_states -= not state.parked

    def _advance(self, state: Speaker) -> TalkerOutput:
        consumed = 0
        if not state.tail:
            vector = state.vectors[state.used]
            state.used += 1
            consumed = 2 if state.used == 1 else 1  # With the first goes the prompt.
            state.value = _frame(state.value, vector.id)
            if vector.finish_reason:
                state.tail = 3
        state.tail -= state.tail > 0
        done = state.tail == 0 and state.vectors[state.used - 1].finish_reason is not None
        frames = CodeFrames(np.array([[state.value]]), last=done and self.says_last)
        return TalkerOutput(frames, consumed, done)


class Time:
    """The scheduler's clock."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def _frame(value: int, token: int | None) -> int:
    return (value * 31 + (0 if token is None else token + 1)) % 1009


def frames_of(tokens: Sequence[int]) -> list[int]:
    """The toy's frames of a whole answer that ends with an EOS."""
    value, frames = 0, []
    for token in (*tokens, None):
        value = _frame(value, token)
        frames.append(value)
    return [*frames, value, value]


def heard(tray: Tray, turn: TurnId) -> list[int]:
    return [p.frames.item() for p in tray.sent[turn] if isinstance(p, CodeFrames) and len(p.frames)]


def payloads_of(tokens: Sequence[int]) -> list[PromptIds | TokenVector]:
    vectors = [TokenVector(token, np.zeros(2, np.float32)) for token in tokens]
    return [PromptIds((), PromptParams()), *vectors, TokenVector(None, None, "stop")]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 50), max_size=8), min_size=1, max_size=8),
    st.integers(1, 5),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_any_interleaving_gives_what_each_gives_alone(answers, max_batch, max_states, random) -> None:
    tray, runner, time = Tray(), ToyTalker(max_states), Time()
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
