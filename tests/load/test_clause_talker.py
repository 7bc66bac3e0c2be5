"""The capacity model's talker: openings, clauses, and what each of its calls holds."""

import msgspec
import pytest
from talker_calls import spoken
from test_simulation import COSTS, PACK, SHAPE, costs, first_audio, met, one

from load.simulation.costs import Line, Service
from load.simulation.shapes import Clause, Shape
from voice_app.messages import Stage

OPENING = Clause(1, 60, end=40)
OPENED = msgspec.structs.replace(SHAPE, clauses=(OPENING, Clause(3, 100, start=38), Clause(4, 50)))


def test_an_answer_without_an_opening_gives_its_first_clause_in_two_parts():
    found = spoken(SHAPE, PACK)
    assert found.calls == [(1, 100, 32), (0, 0, 68), (1, 100, 100)]
    assert found.after == [2, 2, 4]
    assert found.ends == [False, True, True]


def test_an_opening_is_begun_by_itself_and_its_clause_goes_on_with_it():
    found = spoken(OPENED, PACK)
    assert found.calls == [(1, 60, 32), (0, 0, 8), (1, 100, 62), (1, 50, 50)]
    assert found.after == [1, 1, 3, 4]
    assert found.ends == [False, False, True, True]


def test_a_short_opening_is_given_in_one_part():
    found = spoken(msgspec.structs.replace(OPENED, clauses=(Clause(1, 40, end=20), Clause(4, 90, 21))), PACK)
    assert found.calls == [(1, 40, 20), (1, 90, 69)]
    assert found.ends == [False, True]


@pytest.mark.parametrize(("shape", "frames"), [(SHAPE, 200), (OPENED, 152)])
def test_an_answer_has_the_frames_that_are_given(shape: Shape, frames: int):
    assert shape.frames == frames
    assert sum(made for _, _, made in spoken(shape, PACK).calls) == frames


def test_first_audio_does_not_wait_for_the_clause_after_an_opening():
    """The opening needs the first of its tokens, which take 20 ms each; the clause three."""
    plain = msgspec.structs.replace(OPENED, clauses=(Clause(3, 100), Clause(4, 50)))
    with_it, without = (met(one(shape)) for shape in (OPENED, plain))
    assert first_audio(without)[0] - first_audio(with_it)[0] == pytest.approx(0.04, abs=1e-4)
    assert not with_it.gaps


def test_an_opening_costs_by_its_utterance_and_by_the_frames_it_gives():
    priced = costs(Stage.TALKER_AR, Service(Line(0.0, (0.0, 0.001, 0.0001))))
    free = costs(Stage.TALKER_AR, Service(Line(0.0, (0.0, 0.0, 0.0))))
    taken = first_audio(met(one(OPENED), priced))[0] - first_audio(met(one(OPENED), free))[0]
    assert taken == pytest.approx(0.060 + 0.0032, abs=1e-4)


def test_service_times_from_before_there_were_openings_are_read():
    encoded = msgspec.json.encode(COSTS)
    old = encoded.replace(b',"start":0,"end":null', b"")
    assert old != encoded
    assert msgspec.json.decode(old, type=type(COSTS)) == COSTS
