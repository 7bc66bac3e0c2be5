"""OmniScheduler with few pages or places: turns wait, are preempted or refused, and say the same."""

import pytest
from scheduler_toys import EOS, Ask, ToyThinker, Tray, ask, check_turn, deliver, long_ask, said, turn_id

from voice_app.errors import InputError
from voice_app.messages import TokenId
from voice_app.schedulers.omni import OmniScheduler


@pytest.mark.parametrize("num_pages", [12, 13, 17, 24])
def test_a_small_budget_queues_and_preempts_and_changes_nothing(num_pages: int) -> None:
    tray, runner = Tray(), ToyThinker(num_pages=num_pages, page_size=4)
    scheduler = OmniScheduler(runner, tray, step_tokens=7)
    asks = [ask(n, max_tokens=28, speech=n % 2 > 0) for n in range(12)]
    for number, what in enumerate(asks):
        deliver(tray, scheduler, number, what)
    tray.run(scheduler)
    for number, what in enumerate(asks):
        check_turn(tray, turn_id(number), what)
    assert runner.recomputed, "nothing was preempted: the test proves nothing"
    assert scheduler.load().pages_used == 0


def test_preemption_happens_and_takes_the_newest() -> None:
    tray, runner = Tray(), ToyThinker(num_pages=10, page_size=4)
    scheduler = OmniScheduler(runner, tray)
    old, new = (long_ask(n, length=12, max_tokens=24) for n in (0, 1))
    deliver(tray, scheduler, 0, old)
    deliver(tray, scheduler, 1, new)
    order: list[int] = []
    while tray.step(scheduler):
        order += [n for n in (0, 1) if turn_id(n) in tray.finished and n not in order]
    assert order == [0, 1]
    assert runner.recomputed == 1
    check_turn(tray, turn_id(0), old)
    check_turn(tray, turn_id(1), new)


def test_a_victim_goes_before_those_that_wait_and_counts_its_cache_hit_once() -> None:
    tray, runner = Tray(), ToyThinker(num_pages=10, page_size=4)
    scheduler = OmniScheduler(runner, tray, max_running=2)
    # Once the first is done there is room for the victim or for the one that waits, not for both.
    asks = [long_ask(n, length=12, max_tokens=24) for n in range(2)] + [long_ask(2, length=30, max_tokens=4)]
    for number, what in enumerate(asks):
        deliver(tray, scheduler, number, what)
    order: list[int] = []
    while tray.step(scheduler):
        order += [n for n in range(3) if turn_id(n) in tray.finished and n not in order]
    assert runner.recomputed
    assert order == [0, 1, 2]
    for number in range(3):
        last = [p for p in tray.sent[turn_id(number)] if isinstance(p, TokenId)][-1]
        assert last.usage.cached_tokens == 0


def test_a_newcomer_waits_rather_than_become_the_next_victim() -> None:
    tray, runner = Tray(), ToyThinker(num_pages=6, page_size=4)
    scheduler = OmniScheduler(runner, tray)
    asks = [long_ask(n, length=12, max_tokens=8) for n in range(2)]
    for number, what in enumerate(asks):
        deliver(tray, scheduler, number, what)
    tray.run(scheduler)
    assert runner.recomputed == 0
    for number, what in enumerate(asks):
        check_turn(tray, turn_id(number), what)


def test_one_that_only_fits_beside_another_by_its_prefix_joins_once_that_is_computed() -> None:
    tray, runner = Tray(), ToyThinker(num_pages=9, page_size=4)
    scheduler = OmniScheduler(runner, tray)
    first = long_ask(0, length=20, max_tokens=8)
    second = Ask((tuple(first.content[:16]), (5, 6)), max_tokens=3)
    deliver(tray, scheduler, 0, first)
    deliver(tray, scheduler, 1, second)
    tray.step(scheduler)
    tray.step(scheduler)
    assert len(runner.batches[-1]) == 2
    tray.run(scheduler)
    check_turn(tray, turn_id(0), first)
    check_turn(tray, turn_id(1), second)


def test_what_is_cached_stays_while_there_are_free_pages() -> None:
    tray, runner = Tray(), ToyThinker(num_pages=20, page_size=4)
    scheduler = OmniScheduler(runner, tray)
    asks = [long_ask(n, length=13, max_tokens=3) for n in range(4)]
    for number, what in enumerate(asks):
        deliver(tray, scheduler, number, what)
        tray.run(scheduler)
    deliver(tray, scheduler, 9, asks[0])
    tray.run(scheduler)
    last = [p for p in tray.sent[turn_id(9)] if isinstance(p, TokenId)][-1]
    assert last.usage.cached_tokens == 12


def test_what_can_never_fit_fails_clearly_and_what_fits_later_waits() -> None:
    tray, runner = Tray(), ToyThinker(num_pages=5, page_size=4)
    scheduler = OmniScheduler(runner, tray)
    deliver(tray, scheduler, 0, Ask((tuple(range(20)),)))
    exact = Ask((tuple(range(900, 919)),), max_tokens=50)
    deliver(tray, scheduler, 1, exact)
    deliver(tray, scheduler, 2, ask(2, max_tokens=3))
    tray.run(scheduler)
    error = tray.failed[turn_id(0)]
    assert isinstance(error, InputError)
    assert "20 positions" in str(error)
    assert error.param == "messages"
    assert said(tray, turn_id(1)) == [t for t in exact.answer()[:1] if t != EOS]
    check_turn(tray, turn_id(2), ask(2, max_tokens=3))
    assert tray.all_given_back()
    assert runner.open_prompts == 0


def test_the_longest_prompt_and_answer_end_with_length() -> None:
    tray, runner = Tray(), ToyThinker(max_positions=20)
    scheduler = OmniScheduler(runner, tray)
    what = long_ask(0, length=12, max_tokens=8)
    deliver(tray, scheduler, 0, Ask(what.parts, max_tokens=500))
    tray.run(scheduler)
    check_turn(tray, turn_id(0), what)


def test_no_more_run_than_allowed() -> None:
    tray, runner = Tray(), ToyThinker(num_pages=300)
    scheduler = OmniScheduler(runner, tray, max_running=3)
    asks = [ask(n, max_tokens=10) for n in range(9)]
    for number, what in enumerate(asks):
        deliver(tray, scheduler, number, what)
    tray.run(scheduler)
    assert max(len(batch) for batch in runner.batches) == 3
    for number, what in enumerate(asks):
        check_turn(tray, turn_id(number), what)
