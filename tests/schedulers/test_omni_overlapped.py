"""The overlapped loop: the plain loop's tokens, with a step under way while the next is chosen."""

import threading
from collections.abc import Callable, Sequence

import pytest
from scheduler_toys import Ask, AtOnce, ToyThinker, Tray, check_turn, deliver, long_ask, turn_id

from voice_app.schedulers.base import SequenceStep, StepOutput
from voice_app.schedulers.omni_overlapped import OverlappedOmniScheduler

Make = Callable[..., OverlappedOmniScheduler]


@pytest.fixture(params=["its own thread", "at once"])
def make(request: pytest.FixtureRequest) -> Make:
    def build(runner: ToyThinker, tray: Tray, step_tokens: int = 256) -> OverlappedOmniScheduler:
        model = AtOnce() if request.param == "at once" else None
        return OverlappedOmniScheduler(runner, tray, step_tokens=step_tokens, model=model)

    return build


@pytest.mark.parametrize("step_tokens", [1, 3, 64])
def test_a_crowd_says_what_each_says_alone(make: Make, step_tokens: int) -> None:
    tray, runner = Tray(), ToyThinker()
    scheduler = make(runner, tray, step_tokens=step_tokens)
    asks = [
        Ask((tuple(range(n, n + 3 + n % 7)), (f"m{n % 3}", (n % 3, 5, 6))), max_tokens=1 + n)
        for n in range(9)
    ]
    for number, ask in enumerate(asks):
        deliver(tray, scheduler, number, ask)
        tray.step(scheduler)
    tray.run(scheduler)
    for number, ask in enumerate(asks):
        check_turn(tray, turn_id(number), ask)
    assert runner.open_prompts == 0
    assert scheduler.load().pages_used == 0


def test_preempted_with_a_step_under_way(make: Make) -> None:
    tray, runner = Tray(), ToyThinker(page_size=2, num_pages=20)
    scheduler = make(runner, tray)
    asks = [long_ask(n, length=5, max_tokens=24) for n in range(3)]
    for number, ask in enumerate(asks):
        deliver(tray, scheduler, number, ask)
    tray.run(scheduler)
    assert runner.recomputed, "nothing was preempted: the test proves nothing"
    for number, ask in enumerate(asks):
        check_turn(tray, turn_id(number), ask)


def test_cancelled_with_a_step_under_way(make: Make) -> None:
    tray, runner = Tray(), ToyThinker(page_size=2, num_pages=20)
    scheduler = make(runner, tray)
    for number in range(12):
        doomed, kept = long_ask(2 * number, 6, 20), long_ask(2 * number + 1, 6, 8)
        deliver(tray, scheduler, 2 * number, doomed)
        deliver(tray, scheduler, 2 * number + 1, kept)
        for _ in range(number):
            tray.step(scheduler)
        tray.cancel(scheduler, turn_id(2 * number))
        tray.run(scheduler)
        check_turn(tray, turn_id(2 * number + 1), kept)
    assert runner.open_prompts == 0
    assert tray.all_given_back()


def test_a_step_that_raises_fails_its_turns_only(make: Make) -> None:
    tray, runner = Tray(), ToyThinker()
    bad, good = long_ask(1, 6, 12), long_ask(2, 6, 12)
    runner.crash = lambda batch: any(s.start == 9 for s in batch if s.prompt.keys == bad.content)
    scheduler = make(runner, tray)
    deliver(tray, scheduler, 1, bad)
    # Its prompt starts at 0 and its decodes at 6, 7, 8, 9: the fifth step is the one that raises.
    for _ in range(5):
        tray.step(scheduler)
    # The good one joins the sixth, which was to compute on from the fifth.
    deliver(tray, scheduler, 2, good)
    tray.run(scheduler)
    assert turn_id(1) in tray.failed
    check_turn(tray, turn_id(2), good)
    assert runner.open_prompts == 0
    assert scheduler.load().pages_used == 0


def test_the_next_step_is_chosen_while_one_runs() -> None:
    """The model is held inside a step: by then the scheduler has handed it the one after."""
    tray, runner = Tray(), ToyThinker()
    entered, go_on = threading.Semaphore(0), threading.Semaphore(0)
    step = runner.step

    def held(batch: Sequence[SequenceStep]) -> Sequence[StepOutput]:
        entered.release()
        assert go_on.acquire(timeout=60)
        return step(batch)

    runner.step = held
    scheduler = OverlappedOmniScheduler(runner, tray)
    ask = long_ask(1, 4, 3)
    deliver(tray, scheduler, 1, ask)
    scheduler.step()
    assert entered.acquire(timeout=60)
    assert not tray.sent[turn_id(1)]
    # Its prompt is under way; a decode is chosen on top of a token that nobody has seen yet.
    for _ in range(3):
        go_on.release()
    scheduler.step()
    assert entered.acquire(timeout=60)
    tray.run(scheduler)
    check_turn(tray, turn_id(1), ask)


def test_no_step_is_spent_beyond_the_last_token(make: Make) -> None:
    tray, runner = Tray(), ToyThinker()
    scheduler = make(runner, tray)
    ask = long_ask(1, 4, 5)
    deliver(tray, scheduler, 1, ask)
    tray.run(scheduler)
    assert [batch for batch in runner.batches if batch] == [[(0, 4)], [(4, 1)], [(5, 1)], [(6, 1)], [(7, 1)]]
