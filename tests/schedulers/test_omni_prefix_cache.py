"""OmniScheduler's prefix cache: what is found again and not computed twice, and what is never shared."""

import pytest
from scheduler_toys import Ask, ToyThinker, Tray, check_turn, deliver, long_ask, said, turn_id

from voice_app.messages import TokenId
from voice_app.schedulers.omni import OmniScheduler

PREFIX = tuple(range(100, 120))


def test_next_turn_finds_prompt_and_answer_of_the_last() -> None:
    tray, runner = Tray(), ToyThinker(page_size=4)
    scheduler = OmniScheduler(runner, tray)
    first = long_ask(0, length=17, max_tokens=9)
    deliver(tray, scheduler, 0, first)
    tray.run(scheduler)
    answer = said(tray, turn_id(0))
    runner.computed = 0
    second = Ask((tuple(first.content), tuple(answer), (7, 8, 9)), max_tokens=4)
    deliver(tray, scheduler, 1, second)
    tray.run(scheduler)
    check_turn(tray, turn_id(1), second)
    # 17 + 9 positions, the last token never fed: 25 computed, 6 whole pages of 4.
    last = [p for p in tray.sent[turn_id(1)] if isinstance(p, TokenId)][-1]
    assert last.usage.cached_tokens == 24
    outputs_fed = len(second.answer()) - 1
    assert runner.computed == len(second.content) - 24 + outputs_fed


@pytest.mark.parametrize("step_tokens", [3, 256])
def test_the_opening_of_many_turns_is_there_before_the_first(step_tokens: int) -> None:
    opening = tuple(range(900, 918))
    tray, runner = Tray(), ToyThinker(page_size=4, opening_ids=[opening])
    scheduler = OmniScheduler(runner, tray, step_tokens=step_tokens)
    assert runner.open_prompts == 0
    assert runner.computed == len(opening)
    assert scheduler.load().pages_used == 0
    what = Ask((opening, (1, 2, 3)), max_tokens=6)
    deliver(tray, scheduler, 0, what)
    tray.run(scheduler)
    check_turn(tray, turn_id(0), what)
    last = [p for p in tray.sent[turn_id(0)] if isinstance(p, TokenId)][-1]
    assert last.usage.cached_tokens == 16  # Four whole pages of the eighteen positions.


def test_an_opening_that_does_not_fit_is_left_out() -> None:
    tray = Tray()
    runner = ToyThinker(page_size=4, num_pages=4, opening_ids=[tuple(range(900, 930))])
    scheduler = OmniScheduler(runner, tray)
    assert (runner.open_prompts, runner.computed) == (0, 0)
    what = Ask(((1, 2, 3),), max_tokens=4)
    deliver(tray, scheduler, 0, what)
    tray.run(scheduler)
    check_turn(tray, turn_id(0), what)


def test_a_prompt_that_is_cached_whole_still_computes_its_last_token() -> None:
    tray, runner = Tray(), ToyThinker(page_size=4)
    scheduler = OmniScheduler(runner, tray)
    what = Ask((tuple(range(500, 516)),), max_tokens=6)
    for number in range(3):
        deliver(tray, scheduler, number, what)
        tray.run(scheduler)
        check_turn(tray, turn_id(number), what)
    last = [p for p in tray.sent[turn_id(2)] if isinstance(p, TokenId)][-1]
    assert last.usage.cached_tokens == 12


def test_a_prefix_is_found_while_its_first_user_still_answers() -> None:
    tray, runner = Tray(), ToyThinker(page_size=4)
    scheduler = OmniScheduler(runner, tray)
    a, b = (Ask((PREFIX, (n, n, n)), max_tokens=30) for n in (51, 53))
    deliver(tray, scheduler, 0, a)
    tray.step(scheduler)
    runner.computed = 0
    deliver(tray, scheduler, 1, b)
    tray.step(scheduler)
    assert runner.computed == 1 + len(b.content) - len(PREFIX)
    tray.run(scheduler)
    check_turn(tray, turn_id(0), a)
    check_turn(tray, turn_id(1), b)


def test_equal_text_with_different_images_never_shares() -> None:
    tray, runner = Tray(), ToyThinker(page_size=4)
    scheduler = OmniScheduler(runner, tray)
    text = (11, 12, 13, 14)
    asks = [Ask((text, (f"image-{n}", tuple(range(n, n + 10))), text)) for n in (0, 1)]
    for number, what in enumerate(asks):
        deliver(tray, scheduler, number, what)
        tray.run(scheduler)
        check_turn(tray, turn_id(number), what)
    last = [p for p in tray.sent[turn_id(1)] if isinstance(p, TokenId)][-1]
    assert last.usage.cached_tokens == len(text)


def test_a_hit_may_end_inside_an_image() -> None:
    tray, runner = Tray(), ToyThinker(page_size=4)
    scheduler = OmniScheduler(runner, tray)
    image = ("image", tuple(range(40, 51)))
    asks = [Ask(((11, 12), image, tail)) for tail in ((1, 2, 3), (4, 5, 6))]
    for number, what in enumerate(asks):
        deliver(tray, scheduler, number, what)
        tray.run(scheduler)
        check_turn(tray, turn_id(number), what)
    last = [p for p in tray.sent[turn_id(1)] if isinstance(p, TokenId)][-1]
    assert last.usage.cached_tokens == 12


def test_cancelled_work_leaves_its_prefix() -> None:
    """A turn begun on a guess is cancelled when the user goes on; what it computed is not lost."""
    tray, runner = Tray(), ToyThinker(page_size=4)
    scheduler = OmniScheduler(runner, tray, step_tokens=10)
    deliver(tray, scheduler, 0, Ask((PREFIX, (1,))))
    tray.step(scheduler)
    tray.cancel(scheduler, turn_id(0))
    what = Ask((PREFIX, (2,)))
    deliver(tray, scheduler, 1, what)
    tray.run(scheduler)
    check_turn(tray, turn_id(1), what)
    last = [p for p in tray.sent[turn_id(1)] if isinstance(p, TokenId)][-1]
    assert last.usage.cached_tokens == 8
