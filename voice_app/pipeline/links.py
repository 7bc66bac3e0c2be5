"""What makes a TCP connection between two nodes lose nothing: numbers, what is kept until it was received,
and beats. Pure: no I/O, no locks, time is passed in.

A connection that breaks drops what was under way; when ZMQ has made it anew, the rest of the queue follows,
in order. So each frame has a number, and a beat, sent every BEAT_S, says how many frames went before it: who
has received fewer knows that they are lost, says so, and they are sent again. Beats also say that the other
end lives, and what its clock shows.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from voice_app.pipeline.credits import Arrival
from voice_app.pipeline.transport.codec import Bytes

BEAT_S = 0.5
"""How often each end of a link tells the other of itself."""
SILENT_S = 2.0
"""A node that has not been heard of for so long gets no new turns."""
CUT_S = 5.0
"""A node that has not been heard of for so long fails the turns that are in it. A link that was down for a
shorter time goes on where it was."""
CAPACITY = 16384
"""Frames that may wait to be received."""
_SPARSER = 16
"""Beats to an end that is silent wait in its connection's queue, so they become fewer: the next one comes
when the silence is longer by this part of itself. That is some 260 in a year."""
_CLOCK_SAMPLES = 16
"""The clocks' difference is that of the quickest of so many beats."""


class Data(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Head of a frame that carries a message: number `seq` (from 0) from inbox `source` to inbox `target`."""

    source: str
    target: str
    seq: int


class Beat(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """`sent` frames went before this one; of the other end's, `received` came. `lost`: more were announced
    than came, send from there again. `now`: the sender's monotonic clock in seconds; `echo`: `now` of the
    last beat that it heard (None: none yet), `held` seconds ago."""

    source: str
    target: str
    sent: int
    received: int
    lost: bool
    now: float
    echo: float | None
    held: float


MARK = 0xC1
"""First byte of a frame; no msgpack begins with it."""
_HEAD_SIZE = 2
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Data | Beat)


def to_frame(head: Data | Beat, body: bytes = b"") -> bytes:
    """The frame as it goes on the wire: mark, size of the head, head, body."""
    encoded = _encoder.encode(head)
    return b"".join((bytes((MARK,)), len(encoded).to_bytes(_HEAD_SIZE, "big"), encoded, body))


def from_frame(data: Bytes) -> tuple[Data | Beat, Bytes]:
    """Head and body. Raises msgspec.DecodeError."""
    view = memoryview(data)
    end = 1 + _HEAD_SIZE + int.from_bytes(view[1 : 1 + _HEAD_SIZE], "big")
    return _decoder.decode(view[1 + _HEAD_SIZE : end]), view[end:]


class LinkFull(Exception):
    """CAPACITY frames wait for the other end."""


@dataclass(slots=True)
class Link:
    """One node's end of its connection with another, from the inbox `source` to the inbox `target`. An inbox
    is one incarnation of a node: a new one shares nothing with the old. `heard_at`: when the connection was
    opened, or first used, and then when the other end was last heard."""

    source: str
    target: str
    heard_at: float
    silent: bool = False
    """It was found silent, and was not heard of since."""
    _kept: deque[bytes] = field(default_factory=deque)
    _sent: int = 0
    _received: int = 0
    _asked: bool = False
    """The other end was told of a gap; until that is filled, only its beats are answered."""
    _beat_at: float = -math.inf
    """When the other end was last told of us."""
    _echo: tuple[float, float] | None = None
    """The clock that the last beat showed, and ours when it came."""
    _clocks: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_CLOCK_SAMPLES))
    """Of beats: how long they and their answer took, and the difference of the clocks by them."""

    def send(self, body: bytes, now: float) -> Data:
        """The head for `body`, which is kept until it was received. Raises LinkFull."""
        if len(self._kept) >= CAPACITY:
            raise LinkFull
        if self._sent == 0 and self._echo is None:
            self.heard_at = now  # A node that is just starting is not missed before.
        self._kept.append(body)
        self._sent += 1
        return Data(self.source, self.target, self._sent - 1)

    def unsend(self) -> None:
        """The last frame could not be given to the socket, and nobody was told of it."""
        self._kept.pop()
        self._sent -= 1

    def accept(self, head: Data, now: float) -> Arrival:
        """Judge an arriving frame; only a FRESH one is to be used, and after a GAP a `beat` is due if
        `asks`."""
        self.heard_at = now
        if head.seq != self._received:
            return Arrival.AGAIN if head.seq < self._received else Arrival.GAP
        self._received += 1
        self._asked = False
        return Arrival.FRESH

    @property
    def asks(self) -> bool:
        """Whether the gap that was just met is news."""
        return not self._asked

    def beat_due(self, now: float) -> bool:
        """Whether to send a beat; asked every BEAT_S."""
        return now - self._beat_at >= self.silence(now) / _SPARSER - BEAT_S

    def beat(self, now: float, *, lost: bool = False) -> Beat:
        """What to tell the other end now."""
        self._beat_at = now
        self._asked = self._asked or lost
        echo, at = self._echo or (None, now)
        return Beat(self.source, self.target, self._sent, self._received, lost, now, echo, now - at)

    def heard(self, beat: Beat, now: float) -> bool:
        """Take the other end's beat; True: some of what it sent is lost, a `beat` should tell it."""
        self.heard_at = now
        self._echo = (beat.now, now)
        if beat.echo is not None:
            took = now - beat.echo - beat.held
            self._clocks.append((took, beat.now + took / 2 - now))
        for _ in range(min(len(self._kept), beat.received - self._first)):
            self._kept.popleft()
        return beat.sent > self._received

    def again(self, beat: Beat) -> list[tuple[Data, bytes]]:
        """What to send once more after `beat`, which was heard."""
        if not beat.lost:
            return []
        skipped = max(0, beat.received - self._first)
        return [
            (Data(self.source, self.target, self._first + skipped + n), body)
            for n, body in enumerate(islice(self._kept, skipped, None))
        ]

    def silence(self, now: float) -> float:
        """For how many seconds nothing was heard."""
        return now - self.heard_at

    def falls_silent(self, now: float) -> bool:
        """Whether an end that was there has just been silent for SILENT_S; True once for each silence."""
        if self.silent or self._echo is None or self.silence(now) < SILENT_S:
            return False
        self.silent = True
        return True

    @property
    def ahead(self) -> float:
        """By how many seconds the other end's monotonic clock is ahead of ours; 0 until that is known."""
        return min(self._clocks)[1] if self._clocks else 0.0

    @property
    def waiting(self) -> int:
        """Frames that are not known to have been received."""
        return len(self._kept)

    @property
    def _first(self) -> int:
        """The number of the first frame that is kept."""
        return self._sent - len(self._kept)
