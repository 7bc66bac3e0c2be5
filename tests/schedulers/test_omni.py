"""OmniScheduler's batches, and turns that join and leave them, against a toy thinker whose every token
depends on every KV cell that it can reach."""

import pytest
from scheduler_toys import (
    EOS,
    Ask,
    Crash,
    ToyThinker,
    Tray,
    ask,
    check_turn,
    deliver,
    long_ask,
    said,
    toy_answer,
    turn_id,
)

from voice_app.errors import InputError, StageFailed
from voice_app.messages import CodeFrames, TokenId, TokenVector, ToolCall
from voice_app.schedulers.base import NoAnswer, PromptInputs
from voice_app.schedulers.omni import OmniScheduler


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
