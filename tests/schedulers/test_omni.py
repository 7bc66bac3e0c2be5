"""OmniScheduler against a toy thinker whose every token depends on every KV cell that it can reach."""

import pytest
from scheduler_toys import EOS, Ask, Crash, ToyThinker, Tray, check_turn, long_ask, said, toy_answer, turn_id

from voice_app.errors import InputError, StageFailed
from voice_app.messages import CodeFrames, TokenId, TokenVector, ToolCall
from voice_app.schedulers.base import NoAnswer, PromptInputs
from voice_app.schedulers.omni import OmniScheduler

PREFIX = tuple(range(100, 120))


def ask(number: int, length: int = 9, **rest: object) -> Ask:
    return Ask((PREFIX[:8], tuple(number * 50 + i for i in range(length))), **rest)  # type: ignore[arg-type]


def deliver(tray: Tray, scheduler: OmniScheduler, number: int, what: Ask) -> None:
    for payload in what.payloads():
        tray.deliver(scheduler, turn_id(number), payload, speech=what.speech)


def test_toy_answers_are_long_and_different() -> None:
    answers = [tuple(toy_answer(ask(n).content, 30)) for n in range(12)]
    assert len(set(answers)) == 12
    assert {a[-1] == EOS for a in answers} == {True, False}


@pytest.mark.parametrize("step_tokens", [1, 2, 3, 5, 16, 256])
def test_staggered_requests_equal_each_alone(step_tokens: int) -> None:
    """12 requests join a running batch, one a step; chunk sizes from 1 up."""
    tray, runner = Tray(), ToyThinker(num_pages=200)
    scheduler = OmniScheduler(runner, tray, step_tokens=step_tokens)
    asks = [ask(n, length=3 + 2 * n, max_tokens=30, speech=n % 3 > 0) for n in range(12)]
    for number, what in enumerate(asks):
        deliver(tray, scheduler, number, what)
        tray.step(scheduler)
    tray.run(scheduler)
    for number, what in enumerate(asks):
        check_turn(tray, turn_id(number), what)
    assert max(len(batch) for batch in runner.batches) > 1
    assert tray.finished == {turn_id(n) for n in range(12)}
    assert tray.all_given_back()
    assert runner.open_prompts == 0
    assert scheduler.load().pages_used == 0


def test_every_step_takes_all_decodes_and_a_bounded_chunk() -> None:
    """A long prompt that arrives does not hold up running answers: rivals' longest gap is bounded."""
    tray, runner = Tray(), ToyThinker(num_pages=400)
    scheduler = OmniScheduler(runner, tray, step_tokens=10)
    asks = [long_ask(n, length=5, max_tokens=30) for n in range(3)]
    for number, what in enumerate(asks):
        deliver(tray, scheduler, number, what)
    for _ in range(4):
        tray.step(scheduler)
    long = Ask((tuple(range(1000, 1200)),), max_tokens=5)
    deliver(tray, scheduler, 99, long)
    before = [len(said(tray, turn_id(n))) for n in range(len(asks))]
    for extra in range(1, 11):
        tray.step(scheduler)
        assert [len(said(tray, turn_id(n))) for n in range(len(asks))] == [b + extra for b in before]
        assert sum(count for _, count in runner.batches[-1]) <= 10
    tray.run(scheduler)
    check_turn(tray, turn_id(99), long)


def test_decodes_over_the_budget_still_let_a_prompt_in() -> None:
    tray, runner = Tray(), ToyThinker(num_pages=400)
    scheduler = OmniScheduler(runner, tray, step_tokens=2)
    asks = [ask(n, max_tokens=40) for n in range(8)]
    for number, what in enumerate(asks):
        deliver(tray, scheduler, number, what)
    tray.run(scheduler)
    for number, what in enumerate(asks):
        check_turn(tray, turn_id(number), what)


# -------------------------------------------------------------------------------------- prefix cache


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


# ------------------------------------------------------------------------------------------ KV budget


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


# --------------------------------------------------------------------------------- joining and leaving


def test_a_late_input_holds_only_its_own_turn() -> None:
    tray, runner = Tray(), ToyThinker()
    scheduler = OmniScheduler(runner, tray)
    late = Ask(((1, 2, 3), ("photo", (7, 8, 9)), (4, 5)))
    prompt, photo = late.payloads()
    tray.deliver(scheduler, turn_id(0), prompt)
    deliver(tray, scheduler, 1, ask(1))
    tray.run(scheduler)
    check_turn(tray, turn_id(1), ask(1))
    assert not tray.sent[turn_id(0)]
    assert scheduler.load().waiting == 1
    tray.deliver(scheduler, turn_id(0), photo)
    tray.run(scheduler)
    check_turn(tray, turn_id(0), late)


def test_media_before_prompt_and_the_same_media_twice() -> None:
    tray, runner = Tray(), ToyThinker()
    scheduler = OmniScheduler(runner, tray)
    what = Ask(((1, 2), ("photo", (7, 8)), (3,), ("photo", (7, 8))))
    prompt, photo, again = what.payloads()
    tray.deliver(scheduler, turn_id(0), photo)
    tray.deliver(scheduler, turn_id(0), prompt)
    tray.step(scheduler)
    tray.deliver(scheduler, turn_id(0), again)
    tray.run(scheduler)
    check_turn(tray, turn_id(0), what)
    assert tray.all_given_back()


def test_inputs_are_given_back_once_the_prompt_is_built() -> None:
    tray, runner = Tray(), ToyThinker()
    scheduler = OmniScheduler(runner, tray)
    deliver(tray, scheduler, 0, Ask(((1, 2), ("photo", (7, 8)))))
    assert tray.released == 1, "the ids, which have no arrays"
    tray.step(scheduler)
    assert tray.all_given_back()


def test_silence_ends_both_edges_at_once() -> None:
    tray, runner = Tray(), ToyThinker()
    scheduler = OmniScheduler(runner, tray)
    deliver(tray, scheduler, 0, Ask(((),)))
    tray.run(scheduler)
    assert tray.sent[turn_id(0)] == [TokenId(None, "silence"), TokenVector(None, None, "silence")]
    assert turn_id(0) in tray.finished
    assert tray.all_given_back()


def test_a_call_that_needs_no_model_comes_before_the_end() -> None:
    class Caller(ToyThinker):
        def assemble(self, inputs: PromptInputs) -> NoAnswer:
            return NoAnswer("tool_call", call)

    call = ToolCall("set_light", '{"on": true}')
    tray, runner = Tray(), Caller()
    scheduler = OmniScheduler(runner, tray)
    deliver(tray, scheduler, 0, ask(0))
    tray.run(scheduler)
    assert tray.sent[turn_id(0)] == [
        TokenId(None, call=call),
        TokenId(None, "tool_call"),
        TokenVector(None, None, "tool_call"),
    ]
    assert turn_id(0) in tray.finished
    assert tray.all_given_back()


def test_an_impossible_prompt_fails_its_turn() -> None:
    tray, runner = Tray(), ToyThinker()
    scheduler = OmniScheduler(runner, tray)
    deliver(tray, scheduler, 0, Ask(((404,),)))
    tray.run(scheduler)
    assert isinstance(tray.failed[turn_id(0)], InputError)
    assert tray.all_given_back()


def test_a_foreign_payload_fails_its_turn() -> None:
    tray, runner = Tray(), ToyThinker()
    scheduler = OmniScheduler(runner, tray)
    deliver(tray, scheduler, 0, ask(0))
    tray.step(scheduler)
    prompt, _ = Ask(((1,), ("photo", (2,)))).payloads()
    tray.deliver(scheduler, turn_id(1), prompt)
    tray.deliver(scheduler, turn_id(1), CodeFrames(runner.cells))
    assert isinstance(tray.failed[turn_id(1)], StageFailed)
    tray.run(scheduler)
    check_turn(tray, turn_id(0), ask(0))
    assert tray.all_given_back()


def test_cancel_ends_its_generation_and_those_below() -> None:
    tray, runner = Tray(), ToyThinker()
    scheduler = OmniScheduler(runner, tray)
    what = ask(1, max_tokens=30)
    for generation in (0, 1, 2):
        for payload in what.payloads():
            tray.deliver(scheduler, turn_id(1, generation), payload)
    tray.step(scheduler)
    tray.cancelled.add(turn_id(1, 0))
    tray.cancel(scheduler, turn_id(1, 1))
    tray.cancel(scheduler, turn_id(5))
    tray.run(scheduler)
    check_turn(tray, turn_id(1, 2), what)
    assert tray.finished == {turn_id(1, 2)}
    assert runner.open_prompts == 0


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


def test_a_turn_without_room_keeps_its_pages_and_holds_nobody() -> None:
    tray, runner = Tray(), ToyThinker()
    scheduler = OmniScheduler(runner, tray)
    slow, other = ask(0, max_tokens=20), ask(1, max_tokens=20)
    deliver(tray, scheduler, 0, slow)
    deliver(tray, scheduler, 1, other)
    for _ in range(3):
        tray.step(scheduler)
    tray.full.add(turn_id(0))
    done = said(tray, turn_id(0))
    tray.run(scheduler)
    check_turn(tray, turn_id(1), other)
    assert said(tray, turn_id(0)) == done
    assert scheduler.load().pages_used > 0
    runner.computed = 0
    tray.full.clear()
    tray.run(scheduler)
    check_turn(tray, turn_id(0), slow)
    assert runner.computed == len(slow.answer()) - len(done)


def test_a_prompt_without_room_is_not_prefilled() -> None:
    tray, runner = Tray(), ToyThinker()
    scheduler = OmniScheduler(runner, tray)
    tray.full.add(turn_id(0))
    deliver(tray, scheduler, 0, ask(0))
    tray.run(scheduler)
    assert runner.computed == 0
    tray.full.clear()
    tray.run(scheduler)
    check_turn(tray, turn_id(0), ask(0))


def test_a_crash_fails_its_batch_and_nothing_else() -> None:
    tray, runner = Tray(), ToyThinker()
    scheduler = OmniScheduler(runner, tray)
    deliver(tray, scheduler, 0, ask(0, max_tokens=20))
    tray.step(scheduler)
    waiting = Ask(((1, 2, 3), ("photo", (5, 6))))
    prompt, photo = waiting.payloads()
    tray.deliver(scheduler, turn_id(1), prompt)
    runner.crash = lambda batch: True
    with pytest.raises(Crash):
        scheduler.step()
    assert scheduler.in_flight() == (turn_id(0),)
    tray.cancel(scheduler, turn_id(0))
    runner.crash = lambda batch: False
    tray.deliver(scheduler, turn_id(1), photo)
    again = ask(0, max_tokens=20)
    deliver(tray, scheduler, 2, again)
    tray.run(scheduler)
    assert scheduler.in_flight() == ()
    check_turn(tray, turn_id(1), waiting)
    check_turn(tray, turn_id(2), again)


def test_time_is_charged_to_the_turns_of_the_batch() -> None:
    tray, runner = Tray(), ToyThinker()
    ticks = iter(range(1000))
    scheduler = OmniScheduler(runner, tray, clock=lambda: next(ticks))
    deliver(tray, scheduler, 0, ask(0, max_tokens=3))
    tray.run(scheduler)
    assert tray.charged[turn_id(0)] == 1 + len(runner.batches)
