"""A link over a connection that breaks, doubles and delays, in virtual time."""

import random
from collections import deque
from itertools import pairwise

import msgspec
import pytest

from voice_app.pipeline.credits import Arrival
from voice_app.pipeline.links import (
    BEAT_S,
    CAPACITY,
    CUT_S,
    Beat,
    Data,
    Link,
    LinkFull,
    from_frame,
    to_frame,
)


class End:
    """One node: its link, what it has under way, what it was given."""

    def __init__(self, name: str, other: str, clock: float) -> None:
        self.clock = clock
        self.link = Link(name, other, clock)
        self.queue: deque[tuple[Data | Beat, bytes]] = deque()
        self.got: list[bytes] = []

    def send(self, body: bytes) -> None:
        self.queue.append((self.link.send(body, self.clock), body))

    def beat(self, *, lost: bool = False) -> None:
        self.queue.append((self.link.beat(self.clock, lost=lost), b""))

    def take(self, head: Data | Beat, body: bytes) -> None:
        if isinstance(head, Beat):
            lost = self.link.heard(head, self.clock)
            self.queue.extend(self.link.again(head))
        else:
            arrival = self.link.accept(head, self.clock)
            if arrival is Arrival.FRESH:
                self.got.append(body)
            lost = arrival is Arrival.GAP and self.link.asks
        if lost:
            self.beat(lost=True)


class Pair:
    """Two ends whose clocks differ by `ahead`."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.a, self.b = End("a.0", "b.0", 10.0), End("b.0", "a.0", 10.0 + ahead)

    def wait(self, seconds: float) -> None:
        self.a.clock += seconds
        self.b.clock += seconds

    def deliver(self, *, there_s: float = 0.0, back_s: float = 0.0) -> None:
        """All that is under way, until nothing is."""
        while self.a.queue or self.b.queue:
            self.wait(there_s)
            while self.a.queue:
                self.b.take(*self.a.queue.popleft())
            self.wait(back_s)
            while self.b.queue:
                self.a.take(*self.b.queue.popleft())

    def beat(self) -> None:
        self.wait(BEAT_S)
        self.a.beat()
        self.b.beat()


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, last)]


def test_what_a_cut_swallowed_comes_again_with_the_next_beat() -> None:
    pair = Pair()
    for body in bodies(0, 10):
        pair.a.send(body)
    pair.a.queue = deque([*pair.a.queue][:4])
    pair.deliver()
    assert pair.b.got == bodies(0, 4)
    pair.beat()
    pair.deliver()
    assert pair.b.got == bodies(0, 10)
    pair.beat()
    pair.deliver()
    assert pair.a.link.waiting == 0


def test_a_gap_is_told_at_once_and_only_once() -> None:
    pair = Pair()
    for body in bodies(0, 6):
        pair.a.send(body)
    del pair.a.queue[2]
    while pair.a.queue:
        pair.b.take(*pair.a.queue.popleft())
    assert len(pair.b.queue) == 1
    pair.deliver()
    assert pair.b.got == bodies(0, 6)


def test_an_end_that_is_silent_gets_few_beats_and_one_that_is_heard_all() -> None:
    pair = Pair()
    sent: list[float] = []
    for n in range(3 * 24 * 3600):
        pair.a.clock = 10.0 + n * BEAT_S
        if pair.a.link.beat_due(pair.a.clock):
            pair.a.beat()
            sent.append(pair.a.clock - 10.0)
    assert [at for at in sent if at <= CUT_S] == [n * BEAT_S for n in range(int(CUT_S / BEAT_S) + 1)]
    assert len(sent) < 200
    assert max(later / at for at, later in pairwise(sent[10:])) < 1.2, (
        "a link that heals is not missed for long"
    )
    pair.b.clock = pair.a.clock
    pair.deliver()
    assert pair.b.link.silence(pair.b.clock) == 0.0
    pair.b.beat()
    pair.deliver()
    pair.a.clock += BEAT_S
    assert pair.a.link.beat_due(pair.a.clock)


def test_what_is_doubled_arrives_once() -> None:
    pair = Pair()
    for body in bodies(0, 5):
        pair.a.send(body)
    pair.a.queue.extend([*pair.a.queue])
    pair.deliver()
    assert pair.b.got == bodies(0, 5)


def test_beats_that_come_late_do_no_harm() -> None:
    pair = Pair()
    late = [pair.a.link.beat(pair.a.clock), pair.b.link.beat(pair.b.clock, lost=True)]
    for body in bodies(0, 5):
        pair.a.send(body)
    pair.deliver()
    pair.beat()
    pair.deliver()
    pair.b.take(late[0], b"")
    pair.a.take(late[1], b"")
    pair.deliver()
    assert pair.b.got == bodies(0, 5)
    assert pair.a.link.waiting == 0


@pytest.mark.parametrize("seed", range(30))
def test_random_cuts_in_both_directions_lose_nothing(seed: int) -> None:
    dice = random.Random(seed)
    pair = Pair()
    sent = {pair.a.link.source: 0, pair.b.link.source: 0}
    for _ in range(60):
        for end in (pair.a, pair.b):
            for _ in range(dice.randrange(4)):
                end.send(b"%d" % sent[end.link.source])
                sent[end.link.source] += 1
            # A connection that breaks swallows a stretch; ZMQ keeps the order of the rest.
            if end.queue and dice.random() < 0.4:
                start = dice.randrange(len(end.queue))
                stretch = dice.randrange(1, 5)
                end.queue = deque(f for n, f in enumerate(end.queue) if not start <= n < start + stretch)
        pair.deliver()
        if dice.random() < 0.5:
            pair.beat()
    for _ in range(2):
        pair.beat()
        pair.deliver()
    assert pair.b.got == bodies(0, sent["a.0"])
    assert pair.a.got == bodies(0, sent["b.0"])
    assert pair.a.link.waiting == pair.b.link.waiting == 0


def test_what_waits_is_bounded_and_a_frame_that_did_not_go_is_not_counted() -> None:
    link = Link("a.0", "b.0", 0.0)
    for _ in range(CAPACITY):
        link.send(b"", 0.0)
    with pytest.raises(LinkFull):
        link.send(b"", 0.0)
    link.unsend()
    assert link.send(b"", 0.0).seq == CAPACITY - 1


def test_silence_is_since_anything_was_heard() -> None:
    pair = Pair()
    pair.wait(3.0)
    assert pair.b.link.silence(pair.b.clock) == 3.0
    pair.a.send(b"x")
    pair.deliver()
    pair.wait(1.0)
    assert pair.b.link.silence(pair.b.clock) == 1.0
    assert pair.a.link.silence(pair.a.clock) == 1.0, "it got nothing, but had not asked before"
    pair.wait(2.0)
    pair.a.send(b"y")
    assert pair.a.link.silence(pair.a.clock) == 3.0


def test_the_clocks_difference_is_that_of_the_quickest_beat() -> None:
    pair = Pair(ahead=1000.0)
    assert pair.a.link.ahead == 0.0
    for delay in (0.3, 0.001, 0.001, 0.4, 0.2):
        pair.beat()
        pair.deliver(there_s=delay, back_s=0.001)
    assert pair.a.link.ahead == pytest.approx(1000.0, abs=0.002)
    assert pair.b.link.ahead == pytest.approx(-1000.0, abs=0.002)


def test_frames_are_encoded_and_nonsense_is_refused() -> None:
    for head in (Data("a", "b", 7), Beat("a", "b", 1, 2, True, 3.5, None, 0.0)):
        back, body = from_frame(to_frame(head, b"body"))
        assert (back, bytes(body)) == (head, b"body")
    good = to_frame(Data("a", "b", 7), b"body")
    for bad in (good[:1], good[:5], b"\xc1\xff\xff" + good[3:], b"\xc1\x00\x00", b"\xc1\x00\x01\x05"):
        with pytest.raises(msgspec.DecodeError):
            from_frame(bad)
