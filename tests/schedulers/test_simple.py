"""SimpleScheduler: batches what waits, waits for nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from scheduler_toys import Crash, Tray, turn_id

from voice_app.errors import InputError, VoiceAppError
from voice_app.messages import (
    EdgePayload,
    Embeddings,
    Media,
    MelFrames,
    PromptIds,
    PromptParams,
    StageEvent,
    TurnRequest,
)
from voice_app.schedulers.base import StageInput
from voice_app.schedulers.simple import SimpleScheduler

Result = Sequence[EdgePayload | StageEvent] | VoiceAppError


@dataclass
class Doubler:
    """Gives back twice the frames; NaN is an input error."""

    sizes: list[int] = field(default_factory=list)
    crash: bool = False
    watch: Callable[[], None] = lambda: None

    def warm_up(self) -> None:
        pass

    def run(self, batch: Sequence[StageInput]) -> Sequence[Result | None]:
        self.watch()
        if self.crash:
            raise Crash
        self.sizes.append(len(batch))
        return [self._one(item) for item in batch]

    def _one(self, item: StageInput) -> Result | None:
        if isinstance(item.payload, TurnRequest):
            return [PromptIds((), PromptParams())]
        assert isinstance(item.payload, MelFrames)
        if np.isnan(item.payload.frames).any():
            return InputError("the sound holds samples that are not numbers", param="audio")
        return [Embeddings(item.payload.media, item.payload.frames * 2)]


def mel(number: float, key: str = "m") -> MelFrames:
    return MelFrames(Media(key, "audio"), np.full((1, 1), number, np.float32), 1.0)


def test_what_waits_goes_in_one_call_up_to_the_limit() -> None:
    tray, runner = Tray(), Doubler()
    scheduler = SimpleScheduler(runner, tray, max_batch=4)
    for number in range(10):
        tray.deliver(scheduler, turn_id(number), mel(number))
    assert scheduler.load().waiting == 10
    assert tray.run(scheduler) == 2
    assert runner.sizes == [4, 4, 2]
    for number in range(10):
        (out,) = tray.sent[turn_id(number)]
        assert isinstance(out, Embeddings)
        assert out.rows.item() == 2 * number
    assert tray.all_given_back()
    assert not tray.finished, "an encoder cannot know that nothing is to come"


def test_a_request_is_its_stage_s_only_input() -> None:
    tray, runner = Tray(), Doubler()
    scheduler = SimpleScheduler(runner, tray)
    tray.deliver(scheduler, turn_id(0), TurnRequest(turn_id(0), ()))
    tray.run(scheduler)
    assert tray.finished == {turn_id(0)}


def test_a_long_input_goes_on_behind_those_that_came_meanwhile() -> None:
    class Parts(Doubler):
        """Takes frames one at a time, from two inputs a call."""

        def _one(self, item: StageInput) -> Result | None:
            order.append(item.turn)
            left[item.turn] -= 1
            return None if left[item.turn] else super()._one(item)

    tray, order = Tray(), []
    scheduler = SimpleScheduler(Parts(), tray, max_batch=2)
    left = {turn_id(0): 5, turn_id(1): 3, turn_id(2): 1, turn_id(3): 1}
    for turn in left:
        tray.deliver(scheduler, turn, mel(1))
    tray.run(scheduler)
    assert order[:4] == [turn_id(number) for number in range(4)]
    assert order[4:] == [turn_id(0), turn_id(1)] * 2 + [turn_id(0)] * 2
    assert [len(tray.sent[turn]) for turn in left] == [1] * 4
    assert tray.all_given_back()
    assert tray.twice == 0


def test_a_long_input_that_was_cancelled_does_not_go_on() -> None:
    class Endless(Doubler):
        def _one(self, item: StageInput) -> Result | None:
            return None

    tray = Tray()
    scheduler = SimpleScheduler(Endless(), tray)
    tray.deliver(scheduler, turn_id(0), mel(1))
    assert scheduler.step()
    tray.cancel(scheduler, turn_id(0))
    assert not scheduler.step()
    assert tray.all_given_back()


def test_an_error_ends_its_turn_and_no_other() -> None:
    tray, runner = Tray(), Doubler()
    scheduler = SimpleScheduler(runner, tray, max_batch=2)
    tray.deliver(scheduler, turn_id(0), mel(float("nan")))
    tray.deliver(scheduler, turn_id(1), mel(1))
    tray.deliver(scheduler, turn_id(0), mel(2, key="second"))
    tray.run(scheduler)
    assert isinstance(tray.failed[turn_id(0)], InputError)
    assert not tray.sent[turn_id(0)]
    assert len(tray.sent[turn_id(1)]) == 1
    assert tray.all_given_back()
    assert tray.twice == 0


def test_a_turn_without_room_is_passed_over() -> None:
    tray, runner = Tray(), Doubler()
    scheduler = SimpleScheduler(runner, tray)
    tray.full.add(turn_id(0))
    tray.deliver(scheduler, turn_id(0), mel(0))
    tray.deliver(scheduler, turn_id(1), mel(1))
    tray.run(scheduler)
    assert not tray.sent[turn_id(0)]
    assert tray.sent[turn_id(1)]
    assert scheduler.load().waiting == 1
    tray.full.clear()
    tray.run(scheduler)
    assert tray.sent[turn_id(0)]


def test_cancel_gives_back_what_waits() -> None:
    tray, runner = Tray(), Doubler()
    scheduler = SimpleScheduler(runner, tray)
    for generation in range(3):
        tray.deliver(scheduler, turn_id(0, generation), mel(generation))
    tray.cancel(scheduler, turn_id(0, 1))
    assert tray.released == 2
    tray.cancelled.add(turn_id(0, 0))
    tray.run(scheduler)
    assert list(tray.sent) == [turn_id(0, 2)]


def test_a_crash_fails_its_batch_and_nothing_else() -> None:
    tray, runner = Tray(), Doubler()
    scheduler = SimpleScheduler(runner, tray, max_batch=2)
    runner.watch = lambda: seen.append(tuple(scheduler.in_flight()))
    seen: list[tuple[object, ...]] = []
    runner.crash = True
    for number in range(3):
        tray.deliver(scheduler, turn_id(number), mel(number))
    with pytest.raises(Crash):
        scheduler.step()
    assert seen == [(turn_id(0), turn_id(1))]
    assert scheduler.in_flight() == (turn_id(0), turn_id(1))
    for turn in scheduler.in_flight():
        tray.cancel(scheduler, turn)
    runner.crash = False
    tray.run(scheduler)
    assert scheduler.in_flight() == ()
    assert list(tray.sent) == [turn_id(2)]
    assert tray.all_given_back()


def test_blame_ends_with_the_next_step() -> None:
    tray, runner = Tray(), Doubler()
    scheduler = SimpleScheduler(runner, tray)
    tray.deliver(scheduler, turn_id(0), mel(0))
    scheduler.step()
    assert scheduler.in_flight() == ()
    runner.crash = True
    tray.deliver(scheduler, turn_id(1), mel(1))
    with pytest.raises(Crash):
        scheduler.step()
    tray.cancel(scheduler, turn_id(1))
    assert scheduler.step() is False
    assert scheduler.in_flight() == ()
