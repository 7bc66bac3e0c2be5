"""The hand-off between two processes over a wire that loses, doubles and delays, in virtual time."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from voice_app import messages as m
from voice_app.errors import TransferFailed, VoiceAppError
from voice_app.messages import Stage, TurnId
from voice_app.pipeline.control import (
    AckRequest,
    Control,
    DataAck,
    DataInSlot,
    DataReady,
    from_bytes,
    to_bytes,
)
from voice_app.pipeline.exchange import TICK_S, Exchange
from voice_app.pipeline.inlet import Delivery
from voice_app.pipeline.links import BEAT_S, CUT_S
from voice_app.pipeline.outlet import ACK_PATIENCE_S, PENDING_LIMIT, SLOT_PATIENCE_S, Outlet
from voice_app.pipeline.transport.shm import SharedMemoryIn, SharedMemoryOut

TURN = TurnId("s", "t")
BIG = np.arange(100_000, dtype=np.float32)
PLACES = {stage: ("voice" if stage in (Stage.TALKER_AR, Stage.CODE2WAV) else "text",) for stage in Stage}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Mail:
    """Stands for the sockets: messages are encoded, and wait until the test delivers them."""

    def __init__(self, me: str, sent: list[tuple[str, str, bytes]]) -> None:
        self.me = me
        self.sent = sent
        self.up = {"text", "voice", "server"}
        self.malformed = 0
        self.silences: dict[str, float] = {}

    def send(self, node: str, message: Control, *, any_size: bool = False) -> None:
        data = to_bytes(message, any_size=any_size)
        if node not in self.up:
            raise TransferFailed(f"{node} is not connected")
        self.sent.append((self.me, node, data))

    def silent(self, longer_than_s: float) -> dict[str, float]:
        return {node: silence for node, silence in self.silences.items() if silence > longer_than_s}

    def connect(self, node: str, address: str) -> None:
        self.up.add(node)

    def disconnect(self, node: str) -> None:
        self.up.discard(node)


class Node:
    """One process: what arrived for it, what failed in it."""

    def __init__(self, name: str, sent: list[tuple[str, str, bytes]], clock: Clock) -> None:
        self.arrived: list[Delivery] = []
        self.failed: list[tuple[TurnId, VoiceAppError]] = []
        self.mail = Mail(name, sent)
        self.pool = SharedMemoryOut("handoff", f"{name}.0")
        self.exchange = Exchange(
            name,
            PLACES,
            self.mail,  # type: ignore[arg-type]
            lambda source, target, node: self.pool,
            SharedMemoryIn("handoff", m.StagePayload),
            self.arrived.append,
            lambda turn, error: self.failed.append((turn, error)),
            clock,
        )


class Pair:
    """The text side and the voice side."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.sent: list[tuple[str, str, bytes]] = []
        self.text = Node("text", self.sent, self.clock)
        self.voice = Node("voice", self.sent, self.clock)
        self.wakes = 0
        self.outlet: Outlet = self.text.exchange.outlet(Stage.THINKER, self._woken)
        self.outlet.open(TURN, speech=True, submitted=0.0)

    def _woken(self) -> None:
        self.wakes += 1

    def deliver(self, fate: Callable[[Control], int] = lambda message: 1) -> None:
        """Deliver what was sent, each message `fate(message)` times, and what that leads to."""
        while self.sent:
            _, node, data = self.sent.pop(0)
            for _ in range(fate(from_bytes(data))):
                {"text": self.text, "voice": self.voice}[node].exchange.handle(from_bytes(data))

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.text.exchange.tick()
        self.voice.exchange.tick()

    def send(self, value: int) -> None:
        self.outlet.send(TURN, vector(value))

    def send_big(self) -> None:
        self.outlet.send(TURN, m.PromptHidden(BIG, np.arange(3)))

    def tokens(self) -> list[int | None]:
        return [d.payload.id for d in self.voice.arrived if isinstance(d.payload, m.TokenVector)]


def vector(value: int) -> m.TokenVector:
    return m.TokenVector(value, np.full(576, value, np.float32))


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.text.pool.close()
    made.voice.pool.close()


def lose(kind: type, times: int = 10**9) -> Callable[[Control], int]:
    """Lose the first `times` messages of a kind."""
    left = times

    def fate(message: Control) -> int:
        nonlocal left
        if isinstance(message, kind) and left:
            left -= 1
            return 0
        return 1

    return fate


def test_credit_holds_the_sender_and_its_return_wakes_it(pair: Pair) -> None:
    sent = 0
    while pair.outlet.has_room(TURN):
        pair.send(sent)
        sent += 1
    pair.deliver()
    assert pair.tokens() == list(range(sent))
    for extra in range(5):
        pair.send(sent + extra)
    pair.deliver()
    assert len(pair.tokens()) == sent, "sent without credit"
    assert pair.wakes == 0
    for delivery in pair.voice.arrived[:]:
        delivery.release()
    pair.deliver()
    assert pair.tokens() == list(range(sent + 5))
    assert pair.wakes == 1
    assert pair.outlet.has_room(TURN)


def test_what_a_scheduler_emits_without_asking_is_bounded(pair: Pair) -> None:
    window = 0
    while pair.outlet.has_room(TURN):
        pair.send(window)
        window += 1
    for n in range(PENDING_LIMIT):
        pair.send(n)
    with pytest.raises(TransferFailed, match=f"{PENDING_LIMIT} payloads ahead of talker_ar"):
        pair.send(0)
    assert len(pair.sent) == window


def test_a_doubled_payload_arrives_once(pair: Pair) -> None:
    for n in range(6):
        pair.send(n)
    pair.deliver(lambda message: 2)
    assert pair.tokens() == list(range(6))
    assert pair.voice.exchange.inlet.repeated == 6


def test_a_lost_payload_fails_its_turn_when_the_next_one_comes(pair: Pair) -> None:
    pair.send(0)
    pair.deliver(lose(DataReady))
    pair.send(1)
    pair.deliver()
    assert pair.tokens() == []
    assert [(turn, type(error)) for turn, error in pair.voice.failed] == [(TURN, TransferFailed)]


def test_a_lost_last_payload_fails_its_turn_after_a_while(pair: Pair) -> None:
    pair.send(0)
    pair.deliver()
    pair.send_big()
    pair.deliver(lose(DataInSlot))
    pair.wait(ACK_PATIENCE_S)
    pair.deliver()
    assert [(turn, str(error)) for turn, error in pair.text.failed] == [
        (TURN, "thinker → talker_ar: payload 1 was lost")
    ]
    assert pair.text.exchange.stats().lent == 0, "the receiver never saw it: the slot is safe"


def test_lost_acks_are_asked_for_and_nothing_fails(pair: Pair) -> None:
    pair.send_big()
    pair.deliver()
    pair.voice.arrived[0].release()
    pair.deliver(lose(DataAck))
    assert pair.text.exchange.stats().lent == 1
    pair.wait(ACK_PATIENCE_S)
    pair.deliver(lose(AckRequest))
    assert pair.text.exchange.stats().lent == 1
    pair.wait(ACK_PATIENCE_S)
    pair.deliver()
    assert pair.text.exchange.stats().lent == 0
    assert pair.text.failed == pair.voice.failed == []


def test_a_doubled_ack_frees_nothing_twice(pair: Pair) -> None:
    pair.send_big()
    pair.deliver()
    ack = DataAck(pair.voice.arrived[0].edge, (0,))
    pair.text.exchange.handle(ack)
    pair.send_big()
    pair.deliver()
    assert pair.text.exchange.stats().lent == 1
    pair.text.exchange.handle(ack)
    assert pair.text.exchange.stats().lent == 1, "the late ack of payload 0 freed payload 1's slot"
    payload = pair.voice.arrived[1].payload
    assert isinstance(payload, m.PromptHidden)
    assert (payload.rows == BIG).all()


def test_a_consumer_that_is_slow_is_not_taken_for_lost(pair: Pair) -> None:
    pair.send_big()
    for _ in range(40):
        pair.wait(ACK_PATIENCE_S)
        pair.deliver()
    assert pair.text.failed == pair.voice.failed == []
    assert pair.text.exchange.stats().lent == 1
    pair.voice.arrived[0].release()
    pair.voice.arrived[0].release()
    pair.deliver()
    assert pair.text.exchange.stats().lent == 0


def test_slots_of_an_ended_turn_are_quarantined_until_the_receiver_lets_go(pair: Pair) -> None:
    pair.send_big()
    pair.deliver()
    pair.text.exchange.end(TURN)
    stats = pair.text.exchange.stats()
    assert (stats.turns, stats.lent, stats.quarantined) == (0, 1, 1)
    pair.wait(ACK_PATIENCE_S)
    pair.deliver()
    assert pair.text.exchange.stats().quarantined == 1, "its stage may still be reading"
    pair.voice.exchange.end(TURN)
    assert pair.voice.exchange.stats().arriving == 1
    pair.voice.arrived[0].release()
    pair.deliver(lose(DataAck))
    assert pair.voice.exchange.stats().arriving == 0
    pair.wait(ACK_PATIENCE_S)
    pair.deliver()
    stats = pair.text.exchange.stats()
    assert (stats.lent, stats.quarantined) == (0, 0)
    assert not pair.text.exchange.busy


def test_a_late_payload_of_an_ended_turn_is_dropped_and_its_slot_comes_back(pair: Pair) -> None:
    pair.send(0)
    pair.send_big()
    pair.voice.exchange.end(TURN)
    pair.deliver()
    assert pair.voice.arrived == []
    assert pair.voice.exchange.inlet.stale == 2
    assert pair.text.exchange.stats().lent == 0


def test_a_stale_generation_is_dropped_where_it_is_met_and_the_next_goes_on(pair: Pair) -> None:
    newer = TurnId("s", "t", 1)
    pair.send(0)
    for node in (pair.text, pair.voice):
        node.exchange.end(TURN)
    pair.send(1)
    assert not pair.outlet.open(TURN, speech=True, submitted=0.0)
    assert pair.outlet.open(newer, speech=True, submitted=0.0)
    pair.outlet.send(newer, vector(5))
    pair.deliver()
    assert pair.tokens() == [5]


def test_when_the_receiver_dies_its_slots_are_free_at_once(pair: Pair) -> None:
    pair.send_big()
    pair.text.exchange.end(TURN)
    pair.text.exchange.peer_down("voice")
    stats = pair.text.exchange.stats()
    assert (stats.lent, stats.quarantined) == (0, 0)
    other = TurnId("s", "other")
    pair.outlet.open(other, speech=True, submitted=0.0)
    with pytest.raises(TransferFailed, match="voice is not connected"):
        pair.outlet.send(other, vector(1))


def test_without_a_free_slot_the_sender_waits_then_goes_inline(pair: Pair) -> None:
    turns = [TurnId("s", str(n)) for n in range(40)]
    for turn in turns:
        pair.outlet.open(turn, speech=True, submitted=0.0)
        pair.outlet.send(turn, m.PromptHidden(BIG, np.arange(3)))
    pair.deliver()
    in_slots = pair.text.exchange.stats().lent
    assert len(pair.voice.arrived) == in_slots < 40
    assert not pair.outlet.has_room(turns[-1])
    # An ack lets exactly one more go.
    pair.voice.arrived[0].release()
    pair.deliver()
    assert len(pair.voice.arrived) == in_slots + 1
    pair.wait(SLOT_PATIENCE_S)
    pair.deliver()
    assert [d.edge.turn for d in pair.voice.arrived] == turns
    assert pair.wakes == 1, "the stage that found no room was not told of it"
    assert all(
        (d.payload.rows == BIG).all() for d in pair.voice.arrived if isinstance(d.payload, m.PromptHidden)
    )
    for delivery in pair.voice.arrived:
        delivery.release()
    pair.deliver()
    assert pair.text.exchange.stats().lent == 0


def test_a_slot_that_cannot_be_read_fails_one_turn(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    pair.send_big()
    with monkeypatch.context() as broken:
        broken.setattr("os.open", refuse)
        pair.deliver()
    assert [turn for turn, _ in pair.text.failed] == [TURN]
    assert "Operation not permitted" in str(pair.text.failed[0][1])
    other = TurnId("s", "other")
    pair.outlet.open(other, speech=True, submitted=0.0)
    pair.outlet.send(other, vector(1))
    pair.deliver()
    assert pair.tokens() == [1]
    assert pair.text.exchange.stats().lent == 0


def test_a_node_out_of_reach_fails_the_turns_that_wait_for_it_and_no_others(pair: Pair) -> None:
    idle = TurnId("s", "idle")
    pair.outlet.open(idle, speech=True, submitted=0.0)
    pair.send(1)
    for silence in (0.0, 0.0, 0.0, CUT_S):
        pair.text.mail.silences["voice"] = silence
        pair.wait(BEAT_S)
    assert pair.text.failed == []
    for seconds in (1.0, 2.0, 3.0):
        # Once: it may be the server that is out of reach, and what it is told waits for it.
        pair.text.mail.silences["voice"] = CUT_S + seconds
        pair.wait(BEAT_S)
    assert [(turn, str(error)) for turn, error in pair.text.failed] == [
        (TURN, "thinker → talker_ar: voice was not heard of for 6 s")
    ]


def test_who_did_not_listen_itself_waits_to_hear_from_the_others(pair: Pair) -> None:
    pair.send(1)
    pair.wait(20.0)
    pair.text.mail.silences["voice"] = 20.0
    pair.wait(TICK_S)
    assert pair.text.failed == [], "stopped, with all that the machine did, and just went on"
    for _ in range(4):
        pair.wait(BEAT_S)
    assert len(pair.text.failed) > 0
