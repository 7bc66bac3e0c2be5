"""The capacity model: time and processors, and the real schedulers under it."""

import msgspec
import pytest

from load.simulation.box import Box, Machine
from load.simulation.clock import Clock, Pace, Processor
from load.simulation.costs import Around, Line, Measured, Service
from load.simulation.listening import Then, steps
from load.simulation.local import local_machine
from load.simulation.people import (
    AFTER_WORDS,
    Manner,
    Met,
    Said,
    Server,
    Talk,
    burst,
    follow,
    said_so_far,
    talks,
)
from load.simulation.runners import Asked
from load.simulation.shapes import Clause, Hearing, Pack, Shape, Stretch
from voice_app import messages as m
from voice_app.messages import Stage, TurnId
from voice_app.server.occupancy import SETTLES_S
from voice_app.server.session.turns import Rules

SHAPE = Shape(speech_s=2.0, asked=10, tokens=4, clauses=(Clause(2, 100), Clause(4, 100)), heard=8)
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
    around=Around(step_s=0.0, hop_s=0.0),
    assemble_s=0.0,
    stages={
        Stage.PREPROCESSING: Service(Line(0.010, (0.0, 0.0))),
        Stage.AUDIO_ENCODER: Service(Line(0.100, (0.0,) * 5)),
        Stage.THINKER: Service(Line(0.020, (0.0,) * 5)),
        Stage.TALKER_AR: Service(Line(0.030, (0.0, 0.0, 0.0))),
        Stage.CODE2WAV: Service(Line(0.005, (0.0, 0.0))),
    },
    pack=PACK,
)
ALL_HERE: dict[Stage, tuple[str, ...]] = dict.fromkeys(Stage, ("cpu",))
ALONE_S = 0.185
"""Milliseconds: preprocessing 10, recognition 100, prefill and a decode 2 x 20, a part of a clause 30, and a
window 5."""


def costs(stage: Stage, service: Service) -> Measured:
    return msgspec.structs.replace(COSTS, stages={**COSTS.stages, stage: service})


def machine(of: Measured = COSTS, cores: float = 8.0, step_s: float = 0.0) -> Machine:
    return Machine({"cpu": cores}, ALL_HERE, services=of.stages, step_s=step_s)


def met(
    crowd: list[Talk], of: Measured = COSTS, where: Machine | None = None, server: Server | None = None
) -> Met:
    box = Box(PACK, of, where or machine(of), Clock())
    found = follow(box, PACK, crowd, server)
    assert not box.errors
    return found


def people(count: int) -> list[Talk]:
    return talks(PACK, count, Manner(turns=2), seed=0)


def one(shape: Shape = SHAPE, turns: int = 1) -> list[Talk]:
    return [Talk(0.0, (Said(shape, 0.5),) * turns)]


def first_audio(found: Met) -> list[float]:
    return [turn.first_audio_s for turn in found.turns if turn.first_audio_s is not None]


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
    processor = Processor(clock, cores)
    for _ in ends:
        processor.work(1.0, lambda: done.append(clock.now), crowded)
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


def test_what_is_given_away_is_not_there():
    clock, done = Clock(), []
    processor = Processor(clock, 2.0)
    processor.give_away(1.5)
    processor.work(1.0, lambda: done.append(clock.now))
    clock.run(until=10.0)
    assert done == pytest.approx([2.0])
    assert processor.busy_s == pytest.approx(4.0)


def test_work_keeps_the_machine_s_pace():
    """Half as fast in every other second."""
    clock, done = Clock(), []
    processor = Processor(clock, 2.0, Pace((1.0, 2.0), 1.0))
    processor.work(2.0, lambda: done.append(clock.now))
    clock.after(1.5, lambda: processor.work(0.5, lambda: done.append(clock.now)))
    clock.run(until=10.0)
    assert done == pytest.approx([2.25, 2.5], abs=1e-6)
    assert processor.busy_s == pytest.approx(2.25 + 1.0, abs=1e-6)


def test_a_machine_is_as_uneven_as_it_was_measured_from_any_step_on():
    costs = msgspec.structs.replace(COSTS, pace=(1.0, 1.2, 0.8))
    assert local_machine(costs).pace.steps == (1.0, 1.2, 0.8)
    pace = local_machine(costs, pace=2.0).pace
    assert (pace.steps, pace.from_share(1 / 3).steps) == ((2.0, 2.4, 1.6), (2.4, 1.6, 2.0))
    # The server and the callers are slower too.
    around = Around(step_s=0.0, hop_s=0.0, server_cores=0.2, callers_cores=0.3)
    served = msgspec.structs.replace(COSTS, around=around)
    half = local_machine(served, callers=True, pace=2.0)
    assert half.talk_cores == pytest.approx(1.0)
    whole, slow = (first_audio(met(one(), where=local_machine(COSTS, pace=pace)))[0] for pace in (1.0, 2.0))
    assert slow == pytest.approx(2 * whole, rel=1e-3)


def test_one_turn_alone_takes_the_sum_of_its_stages():
    found = met(one(turns=2))
    assert first_audio(found) == pytest.approx([ALONE_S, ALONE_S], abs=1e-4)
    assert not found.gaps


def test_more_people_wait_longer_and_more_cores_help():
    here = machine(cores=2.0)
    alone, many = (met(people(count), where=here).percentile(95) for count in (1, 12))
    assert many > 1.2 * alone
    assert met(people(12), where=machine(cores=12.0)).percentile(95) < many


def test_a_voice_slower_than_speech_leaves_gaps():
    slow = costs(Stage.CODE2WAV, Service(Line(0.0, (0.0, 0.02))))  # 20 ms a frame of 10 ms
    assert met(one(turns=2), slow).gaps == 2


def test_steps_and_hops_cost_what_they_cost():
    """On the way to the first sound: six steps, two of them the thinker's, and three hops: in, to the talker,
    and out."""
    workers = {stage: "voice" if stage in (Stage.TALKER_AR, Stage.CODE2WAV) else "text" for stage in Stage}
    hopping = Machine({"cpu": 8.0}, ALL_HERE, workers=workers, hop_s=0.001)
    assert first_audio(met(one(), where=hopping)) == pytest.approx([ALONE_S + 0.003], abs=1e-4)
    assert first_audio(met(one(), where=machine(step_s=0.001))) == pytest.approx([ALONE_S + 0.006], abs=1e-4)


def test_the_first_call_after_a_rest_is_slow():
    cold = costs(Stage.AUDIO_ENCODER, Service(Line(0.1, (0.0,) * 5), cold_s=0.05))
    found = met([Talk(arrives_s, one()[0].says) for arrives_s in (0.0, 0.8, 9.0)], cold)
    assert first_audio(found) == pytest.approx([ALONE_S + 0.05, ALONE_S, ALONE_S + 0.05], abs=1e-4)


def test_the_same_question_is_computed_once():
    prefill = costs(Stage.THINKER, Service(Line(0.0, (0.0, 0.0, 0.0, 0.001, 0.0))))
    new = msgspec.structs.replace(SHAPE, asked=33)
    named = msgspec.structs.replace(new, question="q")

    def twice(shape: Shape) -> list[float]:
        return first_audio(met([*one(shape), Talk(9.0, one(shape)[0].says)], prefill))

    assert twice(new)[1] == pytest.approx(twice(new)[0])
    # Two pages of 16 are found again; the last position is always computed.
    assert twice(named)[0] - twice(named)[1] == pytest.approx(0.032, abs=1e-4)


LISTENED = (Stretch(50, 0), Stretch(10, 20), Stretch(40, 0), Stretch(30, 20))
"""Two seconds of speech with a pause of 200 ms in it."""
HESITANT = msgspec.structs.replace(SHAPE, listened=LISTENED)
IN_STEPS = costs(Stage.AUDIO_ENCODER, Service(Line(0.0, (0.02, 0.02, 0.02, 0.0, 0.0025))))
"""60 ms for encoding two seconds, 40 ms for writing eight words."""
STEPS = (Hearing(encodes=1, encoded_s=2.0), Hearing(writes=1, written_s=2.0, passes=8))
HEARD = msgspec.structs.replace(SHAPE, hears=STEPS)


def test_a_recording_is_heard_in_its_steps_and_the_first_come_first():
    found = met([*one(HEARD), *one(HEARD)], IN_STEPS)
    assert first_audio(found)[0] == pytest.approx(ALONE_S, abs=1e-4)
    # Its preprocessing is shared with the first one's, its recognition waits for that.
    assert first_audio(found)[1] == pytest.approx(ALONE_S + 0.1, abs=1e-4)


@pytest.mark.parametrize(("shape", "heard_s"), [(HEARD, 0.010 + 0.06 + 0.1), (SHAPE, 0.010 + 0.1 + 0.1)])
def test_what_is_cancelled_ends_before_its_next_step(shape: Shape, heard_s: float):
    """In the middle of its first; what came meanwhile is heard then."""
    told: list[float] = []
    whole = costs(Stage.AUDIO_ENCODER, Service(Line(0.0, (0.0, 0.03, 0.0, 0.02, 0.0))))
    clock = Clock()
    box = Box(PACK, whole, machine(whole), clock)
    asked = Asked(shape, list(range(42)), [1, 2, 3, 4])

    def hear(event: m.StageEvent) -> None:
        if isinstance(event, m.Transcript):
            told.append(clock.now)

    box.submit(TurnId("a", "0"), asked, hear)
    clock.after(0.03, lambda: box.cancel(TurnId("a", "0")))
    clock.after(0.03, lambda: box.submit(TurnId("b", "0"), asked, hear) and None)
    clock.run(until=10.0)
    assert told == pytest.approx([heard_s], abs=1e-4)


def test_work_that_begins_again_looks_at_what_is_new_of_the_question():
    """50 ms for each second of speech, of which 1.06 s were looked at in the pause, which is not the end."""
    slow = costs(Stage.PREPROCESSING, Service(Line(0.010, (0.0, 0.05))))
    found = met(one(HESITANT), slow, server=Server(silence_ms=220))
    assert first_audio(found) == pytest.approx([0.06 + 0.94 * 0.05 + ALONE_S], abs=1e-4)


def test_words_that_were_heard_in_vain_are_written_once():
    """20 ms for each second that is encoded, and 20 ms for each of the eight words that is new."""
    shape = msgspec.structs.replace(HESITANT, hears=STEPS)
    slow = costs(Stage.AUDIO_ENCODER, Service(Line(0.0, (0.0, 0.02, 0.0, 0.0, 0.02))))
    heard = met(one(shape), slow, server=Server(silence_ms=220))
    assert first_audio(heard) == pytest.approx([0.06 + 0.04 + 8 * 0.47 * 0.02 + ALONE_S - 0.1], abs=1e-4)


def test_what_was_dropped_before_it_was_written_is_no_draft():
    """The pause is over 140 ms after work on it begins, while two seconds are still being encoded."""
    shape = msgspec.structs.replace(HESITANT, hears=STEPS)
    slow = costs(Stage.AUDIO_ENCODER, Service(Line(0.0, (0.2, 0.0, 0.0, 0.0, 0.02))))
    heard = met(one(shape), slow, server=Server(silence_ms=220))
    assert first_audio(heard) == pytest.approx([0.06 + 0.2 + 8 * 0.02 + ALONE_S - 0.1], abs=1e-4)


@pytest.mark.parametrize(
    ("share", "same"),
    [(1.0, 16), (0.99, 16), (0.5, 7), (0.0, 3)],
)
def test_a_prompt_of_half_a_question_begins_as_the_whole_does(share: float, same: int):
    """Three positions, then eight words, and five."""
    question = list(range(100, 116))
    half = said_so_far(SHAPE, question, share)
    assert len(half) == same if same == 16 else same + AFTER_WORDS
    assert len([1 for a, b in zip(half, question, strict=False) if a == b]) == same


PASSES = costs(Stage.THINKER, Service(Line(0.0, (1.0, 0.0, 0.0, 0.0, 0.0))))
"""A second for each pass of the network."""


def passes(shape: Shape, company: int = 1) -> float:
    """That the steps for so many took. The recogniser is done with the first of them sooner: the others join
    in its second step."""
    box = Box(PACK, PASSES, machine(PASSES), Clock())
    follow(box, PACK, [*one(shape)] * company, None)
    return sum(stage.busy_s for (name, _), stage in box.stages.items() if name is Stage.THINKER)


@pytest.mark.parametrize(
    ("company", "expected"),
    [
        (1, 1.0),  # The prompt ends at 42 of 48 positions: three more tokens fit.
        (4, 2.0),
        (5, 5.0),  # The four others in steps of five, but for their last: four passes.
    ],
)
def test_answers_that_a_rule_gives_are_computed_as_far_as_their_page_goes(company: int, expected: float):
    ruled = msgspec.structs.replace(SHAPE, ruled=True)
    assert passes(ruled, company) == pytest.approx(expected, abs=1e-3)


def test_a_page_is_the_most_that_is_computed_ahead():
    """Eleven tokens of which six lie in the prompt's last page, the others in the next."""
    ruled = msgspec.structs.replace(SHAPE, ruled=True, tokens=11, clauses=(Clause(11, 100),))
    assert passes(ruled) == pytest.approx(2.0, abs=1e-3)


@pytest.mark.parametrize(
    ("guessed", "passed", "company", "expected"),
    [
        (0, (), 1, 4.0),  # Nothing is known of what was guessed.
        (0, (1, 1, 1), 1, 4.0),
        (0, (2, 0, 1), 1, 3.0),
        (0, (3, 0, 0), 1, 2.0),
        (0, (3, 0, 1), 1, 3.0),  # Of two guesses the first was right.
        (0, (3, 0, 0), 2, 5.0),  # Who is in company makes none.
        (2, (1, 1, 1), 1, 4.0),  # Those of the beginning were wrong.
        (2, (0, 0, 1), 1, 2.0),
        (1, (0, 2, 0), 1, 2.0),
        (2, (0, 0, 1), 2, 5.0),
    ],
)
def test_guesses_that_were_right_spare_passes(
    guessed: int, passed: tuple[int, ...], company: int, expected: float
):
    shape = msgspec.structs.replace(SHAPE, guessed=guessed, passed=passed)
    assert passes(shape, company) == pytest.approx(expected, abs=1e-3)


def test_a_server_begins_early_drops_and_begins_again():
    found = steps(HESITANT, Rules(silence_ms=500, early_ms=None, speculate_ms=160))
    assert [(round(at, 3), then) for at, then in found] == [
        (-0.86, Then.BEGIN),
        (-0.78, Then.DROP),
        (0.14, Then.BEGIN),
        (0.48, Then.ANSWER),
    ]


def test_a_server_with_nothing_else_to_do_may_begin_sooner():
    """In any frame until it has to."""
    found = steps(HESITANT, Rules(silence_ms=500, early_ms=120, speculate_ms=160))
    assert [(round(at, 3), then) for at, then in found] == [
        (-0.9, Then.MAY_BEGIN),
        (-0.88, Then.MAY_BEGIN),
        (-0.86, Then.BEGIN),
        (-0.78, Then.DROP),
        (0.1, Then.MAY_BEGIN),
        (0.12, Then.MAY_BEGIN),
        (0.14, Then.BEGIN),
        (0.48, Then.ANSWER),
    ]


def test_what_was_begun_sooner_is_dropped_too():
    """A pause of 140 ms: too short for a server that has something to do."""
    brief = (Stretch(50, 0), Stretch(7, 20), Stretch(43, 0), Stretch(30, 20))
    found = steps(msgspec.structs.replace(SHAPE, listened=brief), Rules(silence_ms=500, early_ms=120))
    assert [(round(at, 3), then) for at, then in found][:3] == [
        (-0.9, Then.MAY_BEGIN),
        (-0.88, Then.MAY_BEGIN),
        (-0.84, Then.DROP),
    ]


@pytest.mark.parametrize(
    ("silence_ms", "first_s"),
    [
        (500, 0.48 + 0.002),  # All of the work is done while it is silent.
        (220, 0.06 + ALONE_S),
    ],
)
def test_the_silence_hides_the_work(silence_ms: int, first_s: float):
    found = met(one(HESITANT), server=Server(silence_ms, reply_s=0.002))
    assert first_audio(found) == pytest.approx([first_s], abs=1e-4)


def test_half_a_question_that_was_answered_is_dropped():
    """The pause ends the turn: the work on it is in vain, and what counts is the answer to the whole."""
    found = met(one(HESITANT), server=Server(silence_ms=200))
    assert first_audio(found) == pytest.approx([0.06 + ALONE_S], abs=1e-4)


def test_the_work_begins_as_late_as_ever_while_somebody_else_s_is_done():
    """The second question ends 50 ms after the first."""
    first, second = Talk(0.0, (Said(SHAPE, 0.0),)), Talk(0.05, (Said(SHAPE, 0.0),))
    found = met([first, second], server=Server(silence_ms=220))
    assert first_audio(found) == pytest.approx([0.06 + ALONE_S, 0.14 + ALONE_S], abs=1e-4)


def test_what_a_talk_cut_short_itself_does_not_hold_back_its_next_start():
    """A pause of 60 ms, dropped 40 ms before the next begins."""
    short = (Stretch(50, 0), Stretch(5, 20), Stretch(3, 0), Stretch(42, 20))
    shape = msgspec.structs.replace(SHAPE, speech_s=1.16, listened=short)
    begun = [at for at, then in steps(shape, Rules(silence_ms=220)) if then is Then.MAY_BEGIN]
    dropped = [at for at, then in steps(shape, Rules(silence_ms=220)) if then is Then.DROP]
    assert max(begun) - max(dropped) < SETTLES_S
    found = met(one(shape), server=Server(silence_ms=220))
    first = min(at for at in begun if at > max(dropped))
    assert first_audio(found) == pytest.approx([max(first + ALONE_S, 0.2)], abs=1e-4)


@pytest.mark.parametrize("at_s", [0.0, 5.0])
def test_a_question_that_is_replayed_begins_when_it_did_but_not_within_the_answer_before(at_s: float):
    first, second = met([Talk(0.0, (Said(SHAPE, 0.5), Said(SHAPE, 0.5, at_s)))]).turns
    assert first.ended is not None
    assert second.at == pytest.approx(max(first.ended, at_s))


def test_a_burst_ends_its_questions_within_its_time():
    found = met(burst(PACK, 20, 1.0, seed=1), server=Server(200))
    ends = [turn.at for turn in found.turns]
    assert len(ends) == 20
    assert max(ends) - min(ends) <= 1.0
