"""Windows, arrivals, slots and fences: pure bookkeeping."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from voice_app.messages import Stage, TurnId
from voice_app.pipeline import graph
from voice_app.pipeline.credits import (
    Arrival,
    Arrivals,
    SlotClass,
    SlotState,
    SlotTable,
    Window,
    is_stream,
    window_limit,
)
from voice_app.pipeline.fence import Fence


class OneLane(RuleBasedStateMachine):
    """A sender and a receiver with a wire that loses, doubles and delays acks."""

    def __init__(self) -> None:
        super().__init__()
        self.window = Window(8)
        self.arrivals = Arrivals(8)
        self.held: list[int] = []
        self.consumed: set[int] = set()
        self.acks: list[int] = []
        self.sent = 0

    @precondition(lambda self: self.window.credit)
    @rule()
    def send(self) -> None:
        seq = self.window.next
        self.window.take(0.0)
        assert self.arrivals.accept(seq) is Arrival.FRESH
        self.held.append(seq)
        self.sent += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data(), at_once=st.booleans())
    def consume(self, data: st.DataObject, at_once: bool) -> None:
        seq = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.consumed.add(seq)
        self.acks += self.arrivals.consumed(seq, at_once=at_once)

    @precondition(lambda self: self.acks)
    @rule(data=st.data(), fate=st.sampled_from(["arrives", "lost", "twice"]))
    def ack(self, data: st.DataObject, fate: str) -> None:
        seq = self.acks.pop(data.draw(st.integers(0, len(self.acks) - 1)))
        if fate != "lost":
            out = len(self.window)
            first = self.window.give_back(seq)
            assert len(self.window) == out - first
        if fate == "twice":
            assert not self.window.give_back(seq)

    @rule(seq=st.integers(0, 30))
    def payload_comes_again(self, seq: int) -> None:
        expected = Arrival.AGAIN if seq < self.sent else Arrival.GAP
        if seq != self.sent:
            assert self.arrivals.accept(seq) is expected

    @rule()
    def ask_for_missing_acks(self) -> None:
        done, lost = self.arrivals.answer(self.window.overdue(1e9, 0.0))
        assert not lost
        assert set(done) <= self.consumed
        for seq in done:
            self.window.give_back(seq)
        assert len(self.window) == len(self.held)

    @invariant()
    def never_more_than_the_window(self) -> None:
        assert len(self.held) <= len(self.window) <= 8
        assert len(self.arrivals) == len(self.held)


TestOneLane = OneLane.TestCase


def test_overdue_names_each_once_per_patience() -> None:
    window = Window(4)
    window.take(0.0)
    window.take(1.5)
    assert window.overdue(1.9, 2.0) == ()
    assert window.overdue(2.0, 2.0) == (0,)
    assert window.overdue(3.4, 2.0) == ()
    assert window.overdue(3.5, 2.0) == (1,)
    assert window.overdue(4.0, 2.0) == (0,)


def test_payloads_that_never_came_are_named_lost() -> None:
    arrivals = Arrivals(16)
    arrivals.accept(0)
    assert arrivals.answer([0, 1, 2]) == ((), (1, 2))
    arrivals.consumed(0, at_once=False)
    assert arrivals.answer([0, 1]) == ((0,), (1,))


def test_most_of_the_window_is_the_senders_though_acks_come_in_groups() -> None:
    for limit in (1, 2, 16, 32, 64):
        arrivals = Arrivals(limit)
        owed = 0
        for seq in range(limit):
            arrivals.accept(seq)
            owed += 1
            owed -= len(arrivals.consumed(seq, at_once=False))
            assert owed <= limit // 4


def test_both_ends_know_the_same_window() -> None:
    assert {e.number for e in graph.EDGES if is_stream(e.source, e.target)} == {6, 7, 8}
    assert window_limit(Stage.CODE2WAV, None) < window_limit(Stage.THINKER, Stage.TALKER_AR)
    assert window_limit(None, Stage.PREPROCESSING) >= 1


# -------------------------------------------------------------------------------------------------- slots

_OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["lend", "give back", "quarantine"]), st.integers(0, 1), st.integers(0, 3))
)


@given(_OPERATIONS)
def test_a_slot_is_never_lent_twice(operations: list[tuple[str, int, int]]) -> None:
    table = SlotTable((SlotClass(10, 3), SlotClass(100, 1)))
    states = {(0, 0): SlotState.FREE, (0, 1): SlotState.FREE, (0, 2): SlotState.FREE, (1, 0): SlotState.FREE}
    for what, kind, index in operations:
        state = states.get((kind, index))
        if what == "lend":
            got = table.lend(kind)
            if got is None:
                assert all(s is not SlotState.FREE for (k, _), s in states.items() if k == kind)
            else:
                assert states[kind, got] is SlotState.FREE
                states[kind, got] = SlotState.LENT
        elif what == "give back":
            assert table.give_back(kind, index) == (state in (SlotState.LENT, SlotState.QUARANTINED))
            if state is not None:
                states[kind, index] = SlotState.FREE
        else:
            table.quarantine(kind, index)
            if state is SlotState.LENT:
                states[kind, index] = SlotState.QUARANTINED
        for s in SlotState:
            assert table.count(s) == sum(1 for other in states.values() if other is s)


@pytest.mark.parametrize(
    ("size", "classes"), [(0, (0, 1)), (10, (0, 1)), (11, (1, 2)), (1000, (2,)), (1001, ())]
)
def test_a_payload_takes_the_smallest_class_or_the_next(size: int, classes: tuple[int, ...]) -> None:
    table = SlotTable((SlotClass(10, 1), SlotClass(100, 1), SlotClass(1000, 1)))
    assert tuple(table.fitting(size)) == classes


# -------------------------------------------------------------------------------------------------- fence


def test_the_fence_rises_and_never_falls() -> None:
    fence = Fence()
    assert fence.admits(TurnId("s", "t", 0))
    fence.raise_above(TurnId("s", "t", 4))
    fence.raise_above(TurnId("s", "t", 2))
    assert [fence.admits(TurnId("s", "t", g)) for g in (0, 4, 5)] == [False, False, True]
    assert fence.admits(TurnId("s", "other", 0))
    assert fence.admits(TurnId("other", "t", 0))


def test_the_fence_is_bounded_and_keeps_the_newest() -> None:
    fence = Fence(capacity=10)
    for n in range(50):
        fence.raise_above(TurnId("s", str(n)))
    assert len(fence) == 10
    assert not fence.admits(TurnId("s", "49"))
    assert not fence.admits(TurnId("s", "40"))
