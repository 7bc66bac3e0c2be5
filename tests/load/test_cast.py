"""Who calls next, by the weights of a scenario."""

from collections import Counter

import pytest

from load.cast import Cast
from load.mouth import Script
from load.scenario import PEOPLE, Person, read


def cast(**weights: int) -> Cast:
    return Cast({name: Script(Person(weight=weight, speech=["x"]), ()) for name, weight in weights.items()})


def test_kinds_come_as_often_as_their_weights_say():
    drawn = cast(asks=6, interrupts=3, shows=1)
    assert Counter(drawn.next() for _ in range(100)) == {"asks": 60, "interrupts": 30, "shows": 10}


def test_every_stretch_is_mixed():
    drawn = cast(asks=6, interrupts=3, shows=1)
    kinds = [drawn.next() for _ in range(50)]
    for begin in range(40):
        assert set(kinds[begin : begin + 10]) == {"asks", "interrupts", "shows"}


@pytest.mark.parametrize("names", [("only",), ("one", "other")])
def test_equal_weights_take_turns(names):
    drawn = cast(**dict.fromkeys(names, 2))
    assert [drawn.next() for _ in range(2 * len(names))] == [*names, *names]


def test_all_kinds_that_come_along_are_among_the_first_callers():
    people = read(PEOPLE).people
    drawn = Cast({name: Script(person, ()) for name, person in people.items()})
    total = sum(person.weight for person in people.values())
    assert {drawn.next() for _ in range(total)} == set(people)
