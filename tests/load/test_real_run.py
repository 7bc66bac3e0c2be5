"""Real crowds as data: what is replayed of them, and which number of people holds."""

from math import inf

import msgspec
import pytest

from load.real_run import Answer, Crowd, Figures, Held, RealTurn, Run, talks
from load.simulate_check import most
from load.simulation.shapes import Clause, Pack, Shape
from voice_app.errors import ConfigError

PACK = Pack(
    name="toy",
    shared=0,
    frame_s=0.01,
    pages=10,
    page_size=16,
    max_positions=100,
    left_context=0,
    right_context=0,
    first_window=1,
    max_window=1,
    states=1,
    codes=False,
    shapes=(Shape(1.0, 1, 1, (), question="a"), Shape(2.0, 1, 1, (), question="b")),
)
TURNS = [
    RealTurn(talk=7, question="b", began=5.0, ended=9.0, first_audio_s=0.3),
    RealTurn(talk=3, question="a", began=1.5, ended=4.0, first_audio_s=0.1),
    RealTurn(talk=7, question="a", began=1.0, ended=4.5, first_audio_s=0.2),
]


def test_people_say_again_what_they_said_when_they_said_it():
    said = talks(Crowd([], TURNS), PACK)
    assert [talk.arrives_s for talk in said] == [1.0, 1.5]
    assert [[(s.shape.question, s.at_s) for s in talk.says] for talk in said] == [
        [("a", 1.0), ("b", 5.0)],
        [("a", 1.5)],
    ]


def test_a_question_that_was_not_measured_is_told():
    with pytest.raises(ConfigError, match="measure_stages"):
        talks(Crowd([], [RealTurn(1, "c", 0.0, 1.0, 0.1)]), PACK)


@pytest.mark.parametrize(
    ("pieces", "clauses"),
    [
        ((" Four", "teen."), [Clause(2, 90)]),
        # Of 30 letters, each with 3 frames: "The colour", and with "of".
        (
            ("The", " colour", " of", " the", " sky", " is", " blue."),
            [Clause(4, 39, end=30), Clause(7, 90, start=30)],
        ),
    ],
)
def test_an_answer_that_came_has_its_opening_and_its_clauses(pieces: tuple[str, ...], clauses: list[Clause]):
    answer = Answer("Well?", [(piece, 1) for piece in pieces], 5, len(pieces), 0.9)
    turn = RealTurn(1, "a", 0.0, 1.0, 0.1, answer=answer)
    ((said,),) = (talk.says for talk in talks(Crowd([], [turn]), PACK))
    *before, last = said.shape.clauses
    # The text may be over with a token of its own.
    assert [*before, msgspec.structs.replace(last, tokens=len(pieces))] == clauses
    assert last.tokens == said.shape.tokens
    assert said.shape.frames == 90


def test_turns_count_where_they_end():
    run = Run({}, None, [Crowd([Held(1, 0.0, 4.2), Held(2, 4.2, 10.0)], TURNS)])
    assert run.people() == [1, 2]
    assert [run.figures(people).first_audio_s for people in (1, 2)] == [[0.1], [0.3, 0.2]]


@pytest.mark.parametrize(
    ("met", "largest"),
    [
        ({1: [0.2], 2: [0.9], 4: [1.1]}, 2),
        ({1: [1.2], 2: [0.9]}, 0),
        ({1: [0.2], 2: [inf], 4: [0.5]}, 1),
    ],
)
def test_the_most_that_hold_is_below_all_that_do_not(met: dict[int, list[float]], largest: int):
    assert most({people: Figures(waits, 0) for people, waits in met.items()}) == largest


def test_a_gap_speaks_against_a_number():
    assert most({1: Figures([0.1], 0), 2: Figures([0.1], 1)}) == 1
