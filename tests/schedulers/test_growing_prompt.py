"""Prompts that come in parts: computed as they come, and answered as if they had come whole."""

import random
from collections.abc import Callable, Sequence

import pytest
from scheduler_toys import Ask, AtOnce, ToyThinker, Tray, check_turn, long_ask, said, turn_id

from voice_app.errors import InputError
from voice_app.messages import Embeddings, TokenId
from voice_app.schedulers.omni import OmniScheduler
from voice_app.schedulers.omni_overlapped import OverlappedOmniScheduler

Make = Callable[..., OmniScheduler]

MIXED = Ask(((1, 2, 3), ("a", (50, 51, 52, 53)), (4, 5), ("b", (54, 55)), (6, 7, 8)), max_tokens=9)


@pytest.fixture(params=["plain", "overlapped", "overlapped at once"])
def make(request: pytest.FixtureRequest) -> Make:
    def build(runner: ToyThinker, tray: Tray, step_tokens: int = 256) -> OmniScheduler:
        if request.param == "plain":
            return OmniScheduler(runner, tray, step_tokens=step_tokens)
        model = AtOnce() if request.param == "overlapped at once" else None
        return OverlappedOmniScheduler(runner, tray, step_tokens=step_tokens, model=model)

    return build


def deliver(tray: Tray, scheduler: OmniScheduler, number: int, payloads: Sequence) -> None:
    for payload in payloads:
        tray.deliver(scheduler, turn_id(number), payload)


@pytest.mark.parametrize("steps", [0, 1, 2, 50])
@pytest.mark.parametrize("step_tokens", [1, 3, 256])
def test_cut_anywhere(make: Make, step_tokens: int, steps: int) -> None:
    """Every cut, from an empty first part to an empty last one; the rest comes after so many steps."""
    for cut in range(len(MIXED.content) + 1):
        tray, runner = Tray(), ToyThinker(page_size=2)
        scheduler = make(runner, tray, step_tokens)
        first, second = MIXED.cut([cut])
        deliver(tray, scheduler, 0, first)
        for _ in range(steps):
            tray.step(scheduler)
        assert not said(tray, turn_id(0))
        deliver(tray, scheduler, 0, second)
        tray.run(scheduler)
        check_turn(tray, turn_id(0), MIXED)
        assert tray.all_given_back()
        assert runner.open_prompts == 0
        assert scheduler.load().pages_used == 0


def test_a_position_at_a_time(make: Make) -> None:
    tray, runner = Tray(), ToyThinker(page_size=2)
    scheduler = make(runner, tray)
    for part in MIXED.cut(range(len(MIXED.content))):
        deliver(tray, scheduler, 0, part)
        tray.run(scheduler)
    check_turn(tray, turn_id(0), MIXED)


@pytest.mark.parametrize("num_pages", [14, 40])
def test_parts_come_at_random_moments_to_a_running_crowd(make: Make, num_pages: int) -> None:
    rng = random.Random(num_pages)
    tray, runner = Tray(), ToyThinker(page_size=4, num_pages=num_pages)
    scheduler = make(runner, tray, step_tokens=5)
    asks = [long_ask(n, length=7 + n % 9, max_tokens=16) for n in range(16)]
    late = {
        number: ask.cut(rng.sample(range(len(ask.content)), rng.randrange(4)))
        for number, ask in enumerate(asks)
    }
    while late:
        number = rng.choice(list(late))
        deliver(tray, scheduler, number, late[number].pop(0))
        if not late[number]:
            del late[number]
        for _ in range(rng.randrange(4)):
            tray.step(scheduler)
    tray.run(scheduler)
    for number, ask in enumerate(asks):
        check_turn(tray, turn_id(number), ask)
    assert bool(runner.recomputed) == (num_pages == 14), "few pages are to preempt"
    assert tray.all_given_back()


def test_computed_before_the_rest_is_there(make: Make) -> None:
    """All but its last position, which may turn out to be the prompt's last."""
    ask = long_ask(1, length=20, max_tokens=4)
    tray, runner = Tray(), ToyThinker(page_size=4)
    scheduler = make(runner, tray)
    first, second = ask.cut([17])
    deliver(tray, scheduler, 0, first)
    tray.run(scheduler)
    assert runner.computed == 16
    deliver(tray, scheduler, 0, second)
    tray.run(scheduler)
    check_turn(tray, turn_id(0), ask)
    assert runner.computed == len(ask.content) + len(ask.answer()) - 1
    last = [p for p in tray.sent[turn_id(0)] if isinstance(p, TokenId)][-1]
    assert last.usage.cached_tokens == 0, "what was computed for this very turn is no cache hit"


def test_a_part_too_short_for_a_step_of_its_own_waits_for_the_rest(make: Make) -> None:
    """Eight positions beside the last of what there is are worth a step, and what a chunk leaves may not be.
    A page that was not full is computed again."""
    ask = long_ask(1, length=40, max_tokens=4)
    tray, runner = Tray(), ToyThinker(page_size=4, least_part=8)
    scheduler = make(runner, tray, 10)
    first, second, third, last = ask.cut([8, 9, 24])
    for part, computed in ((first, 0), (second, 8), (third, 8 + 10), (last, 18 + 24 + 3)):
        deliver(tray, scheduler, 0, part)
        tray.run(scheduler)
        assert runner.computed == computed
    check_turn(tray, turn_id(0), ask)
    assert (scheduler.load().pages_used, tray.all_given_back()) == (0, True)


@pytest.mark.parametrize("step_tokens", [2, 256])
def test_what_comes_amidst_a_part_is_looked_up_in_the_cache_too(step_tokens: int) -> None:
    """The same was asked before, as far as that was kept: what the cache has is not computed again."""
    ask = long_ask(1, length=22, max_tokens=4)
    tray, runner = Tray(), ToyThinker(page_size=4)
    scheduler = OmniScheduler(runner, tray, step_tokens=step_tokens)
    deliver(tray, scheduler, 0, ask.payloads())
    tray.run(scheduler)
    before = runner.computed
    first, second = ask.cut([11])
    deliver(tray, scheduler, 1, first)
    tray.step(scheduler)
    assert runner.computed == before + 2
    deliver(tray, scheduler, 1, second)
    tray.run(scheduler)
    assert runner.computed == before + 2 + (22 - 20) + len(ask.answer()) - 1
    check_turn(tray, turn_id(1), ask)
    assert (scheduler.load().pages_used, tray.all_given_back()) == (0, True)


def test_a_prompt_that_waits_for_more_holds_no_pages(make: Make) -> None:
    """Half-told prompts of more positions than there are pages for; others are answered meanwhile."""
    tray, runner = Tray(), ToyThinker(page_size=4, num_pages=12)
    scheduler = make(runner, tray)
    slow = [long_ask(n, length=30, max_tokens=4) for n in range(1, 5)]
    for number, ask in enumerate(slow):
        deliver(tray, scheduler, number, ask.cut([29])[0])
        tray.run(scheduler)
    assert scheduler.load().pages_used == 0
    assert scheduler.load().waiting == len(slow)
    quick = long_ask(9, length=30, max_tokens=12)
    deliver(tray, scheduler, 9, quick.payloads())
    tray.run(scheduler)
    check_turn(tray, turn_id(9), quick)
    for number, ask in enumerate(slow):
        deliver(tray, scheduler, number, ask.cut([29])[1])
    tray.run(scheduler)
    for number, ask in enumerate(slow):
        check_turn(tray, turn_id(number), ask)


def test_a_part_waits_for_its_own_media_only(make: Make) -> None:
    tray, runner = Tray(), ToyThinker(page_size=2)
    scheduler = make(runner, tray)
    (ids, image), (rest, other) = MIXED.cut([7])
    deliver(tray, scheduler, 0, [ids])
    tray.run(scheduler)
    assert runner.computed == 0
    deliver(tray, scheduler, 0, [image, rest])
    tray.run(scheduler)
    assert runner.computed == 6
    deliver(tray, scheduler, 0, [other])
    tray.run(scheduler)
    check_turn(tray, turn_id(0), MIXED)


def test_media_beyond_a_senders_credit(make: Make) -> None:
    """A long talk's pictures come before its words: most are given back at once, and read from copies."""
    ask = Ask(tuple((f"m{n}", (n, n + 1)) for n in range(40)), max_tokens=5)
    tray, runner = Tray(), ToyThinker(page_size=2)
    scheduler = make(runner, tray)
    prompt, *media = ask.payloads()
    for payload in media:
        tray.deliver(scheduler, turn_id(0), payload)
        tray.run(scheduler)
        assert tray.delivered - tray.released <= 8
        if tray.released == tray.delivered - 8 > 0:
            assert isinstance(payload, Embeddings)
            payload.rows.fill(99)  # Its space is its sender's again.
    tray.deliver(scheduler, turn_id(0), prompt)
    tray.run(scheduler)
    check_turn(tray, turn_id(0), ask)
    assert (tray.all_given_back(), tray.twice) == (True, 0)


def test_the_same_picture_in_two_parts(make: Make) -> None:
    """Both embeddings come before either part's ids."""
    ask = Ask(((1, 2), ("a", (50, 51)), (3, 4), ("a", (50, 51)), (5,)), max_tokens=5)
    tray, runner = Tray(), ToyThinker(page_size=2)
    scheduler = make(runner, tray)
    (first, one), (second, other) = ask.cut([5])
    for payload in (one, other, first):
        tray.deliver(scheduler, turn_id(0), payload)
        tray.run(scheduler)
    tray.deliver(scheduler, turn_id(0), second)
    tray.run(scheduler)
    check_turn(tray, turn_id(0), ask)
    assert tray.all_given_back()


def test_a_runner_that_wants_the_whole_prompt_gets_it(make: Make) -> None:
    tray, runner = Tray(), ToyThinker(page_size=2, grows=False)
    scheduler = make(runner, tray)
    *parts, last = MIXED.cut([2, 5, 8])
    for part in parts:
        deliver(tray, scheduler, 0, part)
        tray.run(scheduler)
    assert runner.open_prompts == 0
    deliver(tray, scheduler, 0, last)
    tray.run(scheduler)
    check_turn(tray, turn_id(0), MIXED)


def test_cancelled_between_parts(make: Make) -> None:
    for steps in range(4):
        tray, runner = Tray(), ToyThinker(page_size=2)
        scheduler = make(runner, tray, step_tokens=3)
        first, second = MIXED.cut([8])
        deliver(tray, scheduler, 0, first)
        for _ in range(steps):
            tray.step(scheduler)
        deliver(tray, scheduler, 0, second[:1])
        tray.cancel(scheduler, turn_id(0))
        tray.run(scheduler)
        load = scheduler.load()
        assert (load.waiting, load.running, load.pages_used) == (0, 0, 0)
        assert runner.open_prompts == 0
        assert tray.all_given_back()


def test_a_prompt_that_grows_too_long_is_refused(make: Make) -> None:
    tray, runner = Tray(), ToyThinker(page_size=2, num_pages=8)
    scheduler = make(runner, tray)
    ask = long_ask(1, length=30, max_tokens=4)
    for part in ask.cut([10, 20]):
        deliver(tray, scheduler, 0, part)
        tray.run(scheduler)
    assert isinstance(tray.failed[turn_id(0)], InputError)
    assert runner.open_prompts == 0
    assert scheduler.load().pages_used == 0
