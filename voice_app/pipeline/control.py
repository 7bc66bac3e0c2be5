"""Control messages between the server process and the workers, and between workers.

Each crosses as one message: its msgpack, small arrays within. Everything is typed; nothing is pickled.
In `source` and `target` None stands for the client, who gives requests and takes events.
"""

from typing import Literal

import msgspec

from voice_app.config import PackConfig
from voice_app.errors import ErrorInfo
from voice_app.messages import Stage, StageEvent, StagePayload, StageTiming, TurnId
from voice_app.pipeline.transport.base import SlotRef
from voice_app.pipeline.transport.codec import Bytes, inliner, read_inline
from voice_app.pipeline.transport.router import Place
from voice_app.schedulers.base import SchedulerLoad

SERVER = "server"
"""The server process's name among the nodes; the others are named after their workers."""


class Edge(msgspec.Struct, frozen=True, array_like=True):
    """One turn's stream over one edge: what credits and sequence numbers are counted by."""

    turn: TurnId
    source: Stage | None
    target: Stage | None


class Lane(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What all payloads of one turn that the node `sender` sends over one edge have in common.

    `submitted`: when the client submitted the turn, in seconds of the sender's monotonic clock.
    `nodes`: the turn's own node of each stage that has replicas."""

    edge: Edge
    sender: str
    speech: bool
    submitted: float
    nodes: dict[Stage, str] = {}


LaneKey = bytes
"""A `Lane`, encoded: once by its sender; decoded once by its receiver, who knows it again by its bytes."""


class DataReady(msgspec.Struct, frozen=True, gc=False, tag="ready", omit_defaults=True):
    """Sender to receiver: payload number `seq` (from 0) of `lane`, within this message.

    `ahead`: noted by the receiver, how many seconds the sender's clock is ahead of its own."""

    lane: LaneKey
    seq: int
    payload: StagePayload | StageEvent
    ahead: float = 0.0


class DataInSlot(msgspec.Struct, frozen=True, gc=False, tag="in_slot", omit_defaults=True):
    """`DataReady` for a payload whose arrays lie in `slot`; `head` is the rest of it, encoded."""

    lane: LaneKey
    seq: int
    head: bytes
    slot: SlotRef
    ahead: float = 0.0


class DataAck(msgspec.Struct, frozen=True, tag="ack"):
    """Receiver to sender: the payloads `seqs` of `edge` were consumed (their slots and credit go
    back), are `lost` (never came), or `failed` (came, but could not be read; `reason` says why)."""

    edge: Edge
    seqs: tuple[int, ...]
    outcome: Literal["consumed", "lost", "failed"] = "consumed"
    reason: str = ""


class AckRequest(msgspec.Struct, frozen=True, tag="ack_request"):
    """Sender to receiver: no ack came for `seqs` in a while; answer for those not held any more."""

    lane: LaneKey
    seqs: tuple[int, ...]


class EndTurn(msgspec.Struct, frozen=True, tag="end"):
    """Server to worker: the turn is over (answered, failed or cancelled): raise the fence of
    `turn.key` above `turn.generation` and forget it."""

    turn: TurnId


class TurnEnded(msgspec.Struct, frozen=True, tag="ended"):
    """Worker to server: the fence is up; this is what the worker's stages spent on the turn."""

    turn: TurnId
    worker: str
    stages: dict[Stage, StageTiming]


class TurnFailed(msgspec.Struct, frozen=True, tag="failed"):
    """Worker to server: the turn cannot be answered."""

    turn: TurnId
    error: ErrorInfo


class StageReport(msgspec.Struct, frozen=True, tag="load"):
    """Worker to server: a stage's fill changed. `met`: turns that came to it for the first time since it last
    told."""

    worker: str
    stage: Stage
    load: SchedulerLoad
    met: tuple[TurnId, ...] = ()


class HandOffStats(msgspec.Struct, frozen=True):
    """One process's hand-off: open turns per sending end, slots that are with receivers (`lent`; of turns
    that are over: `quarantined`), and what was dropped since it started."""

    turns: int = 0
    arriving: int = 0
    """Streams of turns that arrive from other processes."""
    lent: int = 0
    quarantined: int = 0
    malformed: int = 0
    stale: int = 0
    repeated: int = 0


class HandOffReport(msgspec.Struct, frozen=True, tag="hand_off"):
    """Worker to server: its hand-off's figures changed."""

    worker: str
    stats: HandOffStats


class WorkerProgress(msgspec.Struct, frozen=True, tag="progress"):
    """Worker to server: what it is doing while it starts, for a person."""

    worker: str
    text: str


class WorkerReady(msgspec.Struct, frozen=True, tag="worker_ready"):
    """Worker to server: models are loaded and warm, its inbox is open."""

    worker: str
    incarnation: int


class WorkerRefused(msgspec.Struct, frozen=True, tag="worker_refused"):
    """Worker to server: it cannot start with this configuration; starting it again would not help."""

    worker: str
    incarnation: int
    error: ErrorInfo


class PeerUp(msgspec.Struct, frozen=True, tag="peer_up"):
    """Server to worker: `node` takes messages at `address` from now on (a restarted worker)."""

    node: str
    address: str


class PeerDown(msgspec.Struct, frozen=True, tag="peer_down"):
    """Server to worker: the process behind `node` is gone; what was lent to it is free."""

    node: str


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Worker to itself: end. From a signal's handler or another thread; it wakes the one that reads."""


Control = (
    DataReady
    | DataInSlot
    | DataAck
    | AckRequest
    | EndTurn
    | TurnEnded
    | TurnFailed
    | StageReport
    | HandOffReport
    | WorkerProgress
    | WorkerReady
    | WorkerRefused
    | PeerUp
    | PeerDown
    | Shutdown
)


class WorkerConfig(msgspec.Struct, frozen=True):
    """What a worker reads, as one line of JSON, from its stdin. `places`: of each stage, several where it has
    replicas; `host`: its host's address, as other hosts reach it; `inboxes`: where it listens; `addresses`:
    where it reaches every node, itself too; `curve_keys`: the folder of the keys for what crosses hosts."""

    name: str
    incarnation: int
    run: str
    pack: PackConfig
    places: dict[Stage, tuple[Place, ...]]
    host: str
    inboxes: tuple[str, ...]
    addresses: dict[str, str]
    curve_keys: str | None = None


class Malformed(Exception):
    """Bytes that are not a control message."""


INLINE_LIMIT = 32 * 1024
"""An array of up to so many bytes travels within its message. `voice-app bench edges` measures both ways: at
16 KB a message took no longer than a slot (0.6 and 1.0 of its time in two runs), at 64 KB it was quicker in
one run and slower in the other (0.8 and 1.1). The limit is half of where the two cross."""

_small = msgspec.msgpack.Encoder(enc_hook=inliner(INLINE_LIMIT))
_any_size = msgspec.msgpack.Encoder(enc_hook=inliner())
_decoder = msgspec.msgpack.Decoder(Control, dec_hook=read_inline)
_lane_encoder = msgspec.msgpack.Encoder()
_lane_decoder = msgspec.msgpack.Decoder(Lane)


def lane_key(lane: Lane) -> LaneKey:
    """`lane` as its messages name it."""
    return _lane_encoder.encode(lane)


def read_lane(key: LaneKey) -> Lane:
    """The lane. Raises Malformed."""
    try:
        return _lane_decoder.decode(key)
    except msgspec.DecodeError as error:
        raise Malformed(str(error)) from error


def to_bytes(message: Control, *, any_size: bool = False) -> bytes:
    """`message` as it goes on the wire. Raises TooLargeInline for an array above INLINE_LIMIT, unless
    `any_size`; TypeError for values that cannot cross."""
    return (_any_size if any_size else _small).encode(message)


def from_bytes(data: Bytes) -> Control:
    """The message. Raises Malformed."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise Malformed(str(error)) from error
