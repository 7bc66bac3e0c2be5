"""The capacity model: time and processors, and the real schedulers under it."""

import msgspec
import pytest

from load.simulation.box import Box, Machine
from load.simulation.clock import Clock, Processor
from load.simulation.costs import Line, Measured
from load.simulation.people import Manner, crowd
from load.simulation.shapes import Clause, Pack, Shape
from voice_app.messages import Stage

SHAPE = Shape(speech_s=2.0, asked=10, tokens=4, clauses=(Clause(2, 100), Clause(4, 100)))
PACK = Pack(
    name="toy",
    shared=32,
    frame_s=0.01,
    pages=1000,
    page_size=16,
    max_positions=2048,
    left_context=0,
    right_context=0,
    first_window=10,
    max_window=50,
    states=8,
    codes=False,
    shapes=(SHAPE,),
)
COSTS = Measured(
    machine={},
    cores=2,
    crowded=1.0,
    step_s=0.0,
    preprocessing_line=Line(0.010, (0.0, 0.0)),
    audio_encoder_line=Line(0.100, (0.0, 0.0)),
    thinker_line=Line(0.020, (0.0, 0.0)),
    talker_line=Line(0.030, (0.0, 0.0)),
    code2wav_line=Line(0.005, (0.0, 0.0)),
    pack=PACK,
)


def met(people: int, cores: float = 2.0, costs: Measured = COSTS):
    clock = Clock()
    box = Box(PACK, costs, Machine({"cpu": (cores, 1.0)}, dict.fromkeys(Stage, ("cpu",))), clock)
    found = crowd(box, PACK, people, Manner(turns=2))
    assert not box.errors
    return found


def test_what_is_due_at_once_happens_in_order():
    clock, seen = Clock(), []
    clock.after(1.0, lambda: seen.append(("b", clock.now)))
    clock.after(0.5, lambda: seen.append(("a", clock.now)))
    clock.after(1.0, lambda: seen.append(("c", clock.now)))
    clock.run(until=2.0)
    assert seen == [("a", 0.5), ("b", 1.0), ("c", 1.0)]


@pytest.mark.parametrize(
    ("cores", "crowded", "ends"),
    [(2.0, 1.0, [1.0, 1.0]), (1.0, 1.0, [2.0, 2.0]), (2.0, 1.5, [1.5, 1.5])],
)
def test_cores_are_shared(cores: float, crowded: float, ends: list[float]):
    clock, done = Clock(), []
    processor = Processor(clock, cores, crowded)
    for _ in ends:
        processor.work(1.0, lambda: done.append(clock.now))
    clock.run(until=10.0)
    assert done == pytest.approx(ends)


def test_a_job_that_comes_later_takes_its_share_from_then_on():
    clock, done = Clock(), []
    processor = Processor(clock, 1.0)
    processor.work(1.0, lambda: done.append(clock.now))
    clock.after(0.5, lambda: processor.work(0.25, lambda: done.append(clock.now)))
    clock.run(until=10.0)
    assert done == pytest.approx([1.0, 1.25])
    assert processor.busy_s == pytest.approx(1.25)


def test_one_turn_alone_takes_the_sum_of_its_stages():
    # Milliseconds: preprocessing 10, recognition 100, prefill and a decode 2 x 20, a part of a clause 30, and
    # a window 5.
    turns = met(people=1, cores=8.0).turns
    assert len(turns) == 2
    assert turns[0].first_audio_s == pytest.approx(0.185, abs=1e-4)
    assert not turns[0].gaps


def test_more_people_wait_longer_and_more_cores_help():
    one, many = met(1).percentile(95), met(12).percentile(95)
    assert many > 1.2 * one
    assert met(12, cores=12.0).percentile(95) < many


def test_a_voice_slower_than_speech_leaves_gaps():
    slow = Line(0.0, (0.0, 0.02))  # 20 ms a frame of 10 ms
    assert met(1, costs=msgspec.structs.replace(COSTS, code2wav_line=slow)).gaps == 2
