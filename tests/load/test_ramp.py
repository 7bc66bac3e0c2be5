"""The rule for a number of talks, and the search for the largest that holds."""

import pytest

from load.ramp import Limits, Search, Step


def step(sessions: int, seconds: float = 0.5, turns: int = 40, **fields) -> Step:
    return Step(sessions, [seconds] * turns, **fields)


def run(search: Search, capacity: int, turns: int = 40) -> list[int]:
    """The numbers that are tried against a server that holds `capacity` talks."""
    tried: list[int] = []
    while (number := search.next()) is not None:
        tried.append(number)
        search.steps.append(step(number, underruns=int(number > capacity), turns=turns))
        assert len(tried) < 100
    return tried


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"underruns": 1}, "1 underruns"),
        ({"seconds": 1.01}, "p95 of first audio 1.01 s"),
        ({"overdue": 2}, "2 answers overdue"),
        ({"faults": 3}, "3 turns or talks failed"),
        ({"turns": 0}, "no turn was answered"),
        ({"client": "the callers fell behind"}, "the callers fell behind"),
    ],
)
def test_one_reason_is_enough(fields, reason):
    assert step(4, **fields).why_not(Limits()) == [reason]


def test_a_number_holds_at_its_limits():
    assert step(4, seconds=1.0).why_not(Limits()) == []


def test_the_slowest_twentieth_may_be_slower():
    nineteen_in_twenty = [0.3] * 38 + [5.0] * 2
    assert Step(4, nineteen_in_twenty).why_not(Limits()) == []
    assert Step(4, [*nineteen_in_twenty, 5.0]).why_not(Limits())


@pytest.mark.parametrize("capacity", range(1, 40))
def test_the_search_finds_the_capacity_to_its_grain(capacity):
    search = Search(start=2, most=64)
    run(search, capacity)
    failed = min(s.sessions for s in search.steps if s.underruns)
    assert search.best <= capacity < failed
    assert failed - search.best <= max(1, failed // 16)


def test_it_doubles_and_then_halves():
    assert run(Search(start=2, most=64), 11) == [2, 4, 8, 16, 12, 10, 11]


def test_the_answer_is_tried_until_it_has_enough_turns():
    search = Search(start=2, most=64)
    assert run(search, 3, turns=15) == [2, 4, 3, 3, 3]
    assert search.confirmed


def test_an_answer_falls_that_does_not_hold_a_second_time():
    search = Search(start=2, most=4)
    for number, underruns in ((2, 0), (4, 0), (4, 1)):
        assert search.next() == number
        search.steps.append(step(number, underruns=underruns, turns=30))
    assert search.best == 2
    assert search.next() == 3


def test_it_ends_at_the_most_and_where_nothing_holds():
    assert run(Search(start=2, most=5), 1000) == [2, 4, 5]
    nothing = Search(start=2, most=5)
    assert run(nothing, 0) == [2, 1]
    assert nothing.best == 0
