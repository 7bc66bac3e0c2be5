"""Payloads that have to be fetched: order on their own edge, no delay on others, nothing held for ever."""

import queue
import threading
from collections.abc import Iterator

import pytest

from voice_app import messages as m
from voice_app.errors import TransferFailed, VoiceAppError
from voice_app.messages import Stage, TurnId
from voice_app.pipeline.control import (
    AckRequest,
    DataAck,
    DataInSlot,
    DataReady,
    Edge,
    Lane,
    LaneKey,
    lane_key,
)
from voice_app.pipeline.fence import Fence
from voice_app.pipeline.fetching import Fetching
from voice_app.pipeline.inlet import Delivery, Inlet
from voice_app.pipeline.transport.base import Parcel, SlotRef

TURN, OTHER = TurnId("s", "one"), TurnId("s", "two")
WAIT_S = 60.0


def _lane(turn: TurnId, sender: str = "far") -> LaneKey:
    return lane_key(Lane(Edge(turn, Stage.THINKER, Stage.TALKER_AR), sender, True, 0.0))


class Gate:
    """An `Incoming` whose `open` waits for the test. Slots of segment "near" are at hand."""

    def __init__(self) -> None:
        self.opening: queue.Queue[int] = queue.Queue()
        self.gate = threading.Semaphore(0)
        self.refused: set[int] = set()
        self.broken: set[int] = set()
        self.broke = threading.current_thread()
        self.freed: list[int] = []

    def waits(self, slot: SlotRef) -> bool:
        return slot.segment != "near"

    def open(self, parcel: Parcel) -> object:
        if self.waits(parcel.slot):
            self.opening.put(parcel.slot.index)
            assert self.gate.acquire(timeout=WAIT_S)
        if parcel.slot.index in self.refused:
            raise TransferFailed("could not be read")
        if parcel.slot.index in self.broken:
            self.broke = threading.current_thread()
            raise ZeroDivisionError
        return m.TokenId(parcel.slot.index)

    def done(self, slot: SlotRef) -> None:
        self.freed.append(slot.index)

    def forget(self, sender: str) -> None:
        return None

    def close(self) -> None:
        return None


class Receiver:
    """An inlet, and what came out of it."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.fence = Fence()
        self.arrived: queue.Queue[Delivery] = queue.Queue()
        self.acks: queue.Queue[DataAck] = queue.Queue()
        self.failed: list[VoiceAppError] = []
        self.inlet = Inlet(
            self.fence,
            self.gate,
            lambda node, ack: self.acks.put(ack),
            self.arrived.put,
            lambda turn, error: self.failed.append(error),
        )

    def send(self, turn: TurnId, seq: int, *, sender: str = "far", slot: str | None = "far") -> None:
        """Payload `seq` arrives: in a slot, or (None) within its message. Its number is its content."""
        if slot is None:
            self.inlet.ready(DataReady(_lane(turn, sender), seq, m.TokenId(seq)))
        else:
            place = SlotRef(slot, seq, 0, 1)
            self.inlet.ready(DataInSlot(_lane(turn, sender), seq, b"", place))

    def next(self) -> tuple[TurnId, int]:
        """The next delivery, which is consumed."""
        delivery = self.arrived.get(timeout=WAIT_S)
        delivery.release()
        assert isinstance(delivery.payload, m.TokenId)
        assert delivery.payload.id is not None
        return delivery.edge.turn, delivery.payload.id

    def end(self, turn: TurnId) -> None:
        self.fence.raise_above(turn)
        self.inlet.ended(turn)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    for _ in range(100):
        receiver.gate.gate.release()
    receiver.inlet.peer_down("far")
    receiver.inlet.peer_down("farther")


def test_nothing_overtakes_a_payload_that_is_being_fetched(receiver: Receiver) -> None:
    receiver.send(TURN, 0)
    receiver.send(TURN, 1, slot=None)
    receiver.send(TURN, 2, slot="near")
    receiver.send(TURN, 3)
    assert receiver.gate.opening.get(timeout=WAIT_S) == 0
    assert receiver.arrived.empty()
    receiver.gate.gate.release(2)
    assert [receiver.next() for _ in range(4)] == [(TURN, n) for n in range(4)]
    receiver.send(TURN, 4, slot=None)
    assert receiver.arrived.get_nowait().payload == m.TokenId(4), "nothing is being fetched: it need not wait"


def test_other_turns_and_other_senders_do_not_wait_for_it(receiver: Receiver) -> None:
    receiver.send(TURN, 0)
    assert receiver.gate.opening.get(timeout=WAIT_S) == 0
    receiver.send(OTHER, 0, slot=None)
    assert receiver.arrived.get_nowait().edge.turn == OTHER
    receiver.send(OTHER, 1, slot="near")
    assert receiver.arrived.get_nowait().edge.turn == OTHER
    receiver.send(TurnId("s", "three"), 0, sender="farther")
    assert receiver.gate.opening.get(timeout=WAIT_S) == 0, "it waits for another host"


def test_a_fetch_that_fails_is_told_and_the_next_goes_on(receiver: Receiver) -> None:
    receiver.gate.refused = {0}
    receiver.send(TURN, 0)
    receiver.send(TURN, 1)
    receiver.gate.gate.release(2)
    assert receiver.next() == (TURN, 1)
    ack = receiver.acks.get(timeout=WAIT_S)
    assert (ack.seqs, ack.outcome, ack.reason) == ((0,), "failed", "could not be read")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fetch_that_breaks_fails_its_turn_and_its_slot_comes_back(receiver: Receiver) -> None:
    """Whatever was raised. What is behind it goes on, without waiting for a further message."""
    receiver.send(OTHER, 0)
    receiver.gate.gate.release()
    assert receiver.next() == (OTHER, 0)
    assert receiver.acks.get(timeout=WAIT_S).edge.turn == OTHER
    receiver.gate.broken = {0}
    receiver.send(TURN, 0)
    receiver.send(OTHER, 1)
    receiver.gate.gate.release(2)
    assert receiver.next() == (OTHER, 1)
    ack = receiver.acks.get(timeout=WAIT_S)
    assert (ack.edge.turn, ack.seqs, ack.outcome) == (TURN, (0,), "consumed")
    assert receiver.gate.freed == [0, 0, 1]
    (error,) = receiver.failed
    assert isinstance(error, TransferFailed)
    assert error.message.startswith("thinker → talker_ar: payload 0 could not be taken in")
    for turn in (TURN, OTHER):
        receiver.end(turn)
    assert len(receiver.inlet) == 0
    receiver.gate.broke.join(WAIT_S)


def test_a_turn_that_ends_meanwhile_is_not_fetched_and_its_slots_come_back(receiver: Receiver) -> None:
    receiver.send(TURN, 0)
    receiver.send(TURN, 1)
    receiver.send(TURN, 2)
    assert receiver.gate.opening.get(timeout=WAIT_S) == 0
    receiver.end(TURN)
    receiver.inlet.asked(AckRequest(_lane(TURN), (0, 1, 2)))
    assert receiver.acks.empty(), "a slot was given back that is being read"
    receiver.gate.gate.release()
    receiver.next()  # Under way when the turn ended: whoever gets it gives it back.
    given_back = {seq for _ in range(3) for seq in receiver.acks.get(timeout=WAIT_S).seqs}
    assert given_back == {0, 1, 2}
    assert receiver.gate.opening.empty()
    assert sorted(receiver.gate.freed) == [0, 1, 2]
    assert len(receiver.inlet) == 0


def test_threads_end_with_their_senders(receiver: Receiver) -> None:
    receiver.send(TURN, 0)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "fetch-far"]
    receiver.gate.gate.release()
    receiver.next()
    receiver.inlet.peer_down("far")
    thread.join(WAIT_S)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_work_that_breaks_its_thread_does_not_take_the_rest_along() -> None:
    fetching = Fetching()
    goes_on, done = threading.Event(), threading.Event()

    def break_it() -> None:
        assert goes_on.wait(WAIT_S)
        raise ZeroDivisionError

    fetching.put("far", break_it)
    fetching.put("far", done.set)
    goes_on.set()
    assert done.wait(WAIT_S)
    fetching.end("far")
    for thread in threading.enumerate():
        if thread.name == "fetch-far":
            thread.join(WAIT_S)
            assert not thread.is_alive()
