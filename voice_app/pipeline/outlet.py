"""The sending end of a stage (or of the client): order, credit, and what waits for credit."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from voice_app.errors import TransferFailed
from voice_app.messages import Stage, StageTiming, TurnId
from voice_app.pipeline.control import DataAck, Edge, Lane, LaneKey, lane_key
from voice_app.pipeline.credits import Window, is_stream, window_limit
from voice_app.pipeline.fence import Fence

PENDING_LIMIT = 1024
"""Payloads that may wait for credit, per turn and edge. Enough for a long talk's sounds and pictures,
which come at once; a stage that streams asks `has_room` and never comes near."""

SLOT_PATIENCE_S = 0.25
"""A payload that finds all slots lent waits so long, then travels inline: turns that hold slots may
themselves be waiting for this one."""

ACK_PATIENCE_S = 2.0
"""What is unacknowledged for so long is asked after; a consumer that is only slow says nothing."""

NO_NODES: dict[Stage, str] = {}
"""Where no stage has replicas."""

Failure = Callable[[TurnId, TransferFailed], None]
Targets = tuple[Stage | None, ...]
Route = tuple[Targets, Targets]
"""Where a payload goes: in a turn without speech, and with."""


class Carrier(Protocol):
    """Takes payloads to one target."""

    def carry(self, out: "LaneOut", seq: int, payload: object, *, inline: bool) -> bool:
        """Send it; False: no slot is free. Raises TransferFailed."""
        ...

    def acked(self, edge: Edge, seq: int) -> None:
        """The receiver is done with it."""
        ...

    def ended(self, out: "LaneOut", now: float) -> None:
        """The turn is over; slots that are still out are quarantined until their ack."""
        ...

    def tick(self, now: float) -> None:
        """Time passes: ask after quarantined slots."""
        ...

    def node_gone(self, node: str) -> None:
        """The process `node` is gone; what it was lent is free."""
        ...

    def request_acks(self, key: LaneKey, seqs: tuple[int, ...]) -> None:
        """Ask the receiver after them."""
        ...


Carriers = Mapping[Stage | None, Mapping[str, Carrier]]


@dataclass(slots=True, eq=False)
class LaneOut:
    """The sender's end of a lane."""

    lane: Lane
    key: LaneKey
    node: str
    carrier: Carrier
    window: Window
    stream: bool
    pending: deque[object] = field(default_factory=deque)
    blocked_since: float | None = None
    """Since when the first pending payload has credit but finds no slot."""
    given_up: bool = False
    """Its node is out of reach, as the turn was told."""


@dataclass(slots=True, eq=False)
class TurnOut:
    """One turn at one source. Times are seconds of the monotonic clock."""

    speech: bool
    submitted: float
    nodes: dict[Stage, str]
    """Its own node of each stage that has replicas."""
    first_in: float
    first_out: float | None = None
    last_out: float = 0.0
    busy: float = 0.0
    lanes: dict[Stage | None, LaneOut] = field(default_factory=dict)
    ways: dict[type, tuple[LaneOut, ...]] = field(default_factory=dict)
    """Those of the lanes that each type of payload takes, once it has been sent."""
    starved: bool = False
    """`has_room` said no; the stage is to be woken when it would say yes."""

    def timing(self) -> StageTiming:
        first_out = self.first_in if self.first_out is None else self.first_out
        last_out = max(self.last_out, first_out)
        return StageTiming(
            first_in_ms=1e3 * (self.first_in - self.submitted),
            first_out_ms=1e3 * (first_out - self.submitted),
            last_out_ms=1e3 * (last_out - self.submitted),
            busy_ms=1e3 * self.busy,
        )


class Outlet:
    """All turns of one source, which is in the process `node`. Safe to use from several threads.

    What can be sent is sent by whoever makes it possible: the emitting stage, or the thread that
    brings the ack. `carriers`: for each target, one to each node that it is in. `routes` says where each
    type of payload goes; `wake` is called (in any thread, under the lock) when a starved turn has room."""

    def __init__(
        self,
        node: str,
        source: Stage | None,
        carriers: Carriers,
        routes: Mapping[type, Route],
        fence: Fence,
        clock: Callable[[], float],
        wake: Callable[[], None],
        fail: Failure,
    ) -> None:
        self._node = node
        self._source: Stage | None = source
        self._carriers = carriers
        self._routes = routes
        self._fence = fence
        self._clock = clock
        self._wake = wake
        self._fail = fail
        self._lock = threading.Lock()
        self._turns: dict[TurnId, TurnOut] = {}

    def open(
        self, turn: TurnId, *, speech: bool, submitted: float, nodes: dict[Stage, str] = NO_NODES
    ) -> bool:
        """The turn's first input arrived. False: it is stale."""
        with self._lock:
            # Under the lock, so that `end` after the fence was raised finds what was opened before.
            if not self._fence.admits(turn):
                return False
            if turn not in self._turns:
                self._turns[turn] = TurnOut(speech, submitted, nodes, self._clock())
            return True

    def end(self, turn: TurnId) -> StageTiming | None:
        """Forget the turn (its fence is up); returns what it took, if it was ever here."""
        with self._lock:
            state = self._turns.pop(turn, None)
            if state is None:
                return None
            for lane in state.lanes.values():
                lane.carrier.ended(lane, self._clock())
            return state.timing()

    def send(self, turn: TurnId, payload: object) -> None:
        """Send over every edge that carries it, or keep it until there is credit. Dropped if the turn is
        not open. Raises TransferFailed."""
        with self._lock:
            state = self._turns.get(turn)
            if state is None:
                return
            state.last_out = now = self._clock()
            if state.first_out is None:
                state.first_out = now
            ways = state.ways.get(type(payload))
            for lane in self._ways(state, turn, type(payload)) if ways is None else ways:
                if lane.pending or not lane.window.credit:
                    self._wait(lane, payload)
                elif lane.carrier.carry(lane, lane.window.next, payload, inline=False):
                    lane.window.take(now)
                else:
                    lane.pending.append(payload)
                    lane.blocked_since = now

    def has_room(self, turn: TurnId) -> bool:
        """Whether nothing of the turn waits here and its streams have credit. If not, `wake` follows."""
        with self._lock:
            state = self._turns.get(turn)
            if state is None:
                return True
            state.starved = not _has_room(state)
            return not state.starved

    def charge(self, turn: TurnId, seconds: float) -> None:
        """Account model time."""
        with self._lock:
            state = self._turns.get(turn)
            if state is not None:
                state.busy += seconds

    def acked(self, ack: DataAck) -> None:
        """Credit and slots come back, also for turns that are over."""
        carriers = self._carriers.get(ack.edge.target)
        if carriers is None:
            return
        failed: TransferFailed | None = None
        with self._lock:
            state = self._turns.get(ack.edge.turn)
            lane = state.lanes.get(ack.edge.target) if state else None
            for seq in ack.seqs:
                for carrier in carriers.values():
                    carrier.acked(ack.edge, seq)
                known = lane is not None and lane.window.give_back(seq)
                if known and ack.outcome != "consumed":
                    failed = TransferFailed(
                        f"{self._source or 'client'} → {ack.edge.target or 'client'}: payload {seq} "
                        f"{'was lost' if ack.outcome == 'lost' else ack.reason}"
                    )
            if state and lane and failed is None:
                failed = self._try_pump(state, lane)
        if failed is not None:
            self._fail(ack.edge.turn, failed)

    def consumed(self, edge: Edge, seq: int) -> None:
        """The ack of a payload that went by reference."""
        self.acked(DataAck(edge, (seq,)))

    def retry(self) -> None:
        """A slot was freed: send what found none."""
        self._visit(lambda lane, now: lane.blocked_since is not None)

    def tick(self, now: float) -> None:
        """Time passes: what waited long enough for a slot travels inline, missing acks are asked for."""
        self._visit(
            lambda lane, now: lane.blocked_since is not None and now - lane.blocked_since >= SLOT_PATIENCE_S,
            inline=True,
        )
        with self._lock:
            for state in self._turns.values():
                for lane in state.lanes.values():
                    overdue = lane.window.overdue(now, ACK_PATIENCE_S)
                    if overdue:
                        lane.carrier.request_acks(lane.key, overdue)
            for carrier in self._all_carriers():
                carrier.tick(now)

    def node_gone(self, node: str) -> None:
        """The process `node` is gone."""
        with self._lock:
            for carrier in self._all_carriers():
                carrier.node_gone(node)

    def cut(self, node: str, silent_s: float) -> None:
        """`node` was not heard of for so long: what is out there, or waits to go there, is given up."""
        with self._lock:
            lost = [
                lane
                for state in self._turns.values()
                for lane in state.lanes.values()
                if lane.node == node and not lane.given_up and (lane.pending or len(lane.window))
            ]
            for lane in lost:
                lane.given_up = True
        for lane in lost:
            edge = lane.lane.edge
            what = f"{self._source or 'client'} → {edge.target or 'client'}"
            self._fail(edge.turn, TransferFailed(f"{what}: {node} was not heard of for {silent_s:.0f} s"))

    def __len__(self) -> int:
        return len(self._turns)

    def _all_carriers(self) -> Iterator[Carrier]:
        return (carrier for carriers in self._carriers.values() for carrier in carriers.values())

    def _ways(self, state: TurnOut, turn: TurnId, payload: type) -> tuple[LaneOut, ...]:
        route = self._routes.get(payload)
        if route is None:
            raise TransferFailed(f"no edge from {self._source or 'client'} carries a {payload.__name__}")
        ways = tuple(state.lanes.get(t) or self._add_lane(state, turn, t) for t in route[state.speech])
        state.ways[payload] = ways
        return ways

    def _wait(self, lane: LaneOut, payload: object) -> None:
        if len(lane.pending) >= PENDING_LIMIT:
            target = lane.lane.edge.target or "client"
            raise TransferFailed(f"{self._source or 'client'} is {PENDING_LIMIT} payloads ahead of {target}")
        lane.pending.append(payload)

    def _add_lane(self, state: TurnOut, turn: TurnId, target: Stage | None) -> LaneOut:
        carriers = self._carriers[target]
        node = next(iter(carriers)) if target is None or len(carriers) == 1 else state.nodes.get(target, "")
        if node not in carriers:
            raise TransferFailed(f"the turn has no node for {target}, which has replicas")
        edge = Edge(turn, self._source, target)
        lane = Lane(edge, self._node, state.speech, state.submitted, state.nodes)
        out = state.lanes[target] = LaneOut(
            lane,
            lane_key(lane),
            node,
            carriers[node],
            Window(window_limit(self._source, target)),
            is_stream(self._source, target),
        )
        return out

    def _pump(self, state: TurnOut, lane: LaneOut, now: float, *, inline: bool) -> None:
        while lane.pending and lane.window.credit:
            seq = lane.window.next
            if not lane.carrier.carry(lane, seq, lane.pending[0], inline=inline):
                if lane.blocked_since is None:
                    lane.blocked_since = now
                return
            lane.window.take(now)
            lane.pending.popleft()
            lane.blocked_since = None
        if state.starved and _has_room(state):
            state.starved = False
            self._wake()

    def _visit(self, chosen: Callable[[LaneOut, float], bool], *, inline: bool = False) -> None:
        with self._lock:
            now = self._clock()
            failures = [
                (turn, error)
                for turn, state in self._turns.items()
                for lane in state.lanes.values()
                if chosen(lane, now) and (error := self._try_pump(state, lane, inline=inline))
            ]
        for turn, error in failures:
            self._fail(turn, error)

    def _try_pump(self, state: TurnOut, lane: LaneOut, *, inline: bool = False) -> TransferFailed | None:
        try:
            self._pump(state, lane, self._clock(), inline=inline)
        except TransferFailed as error:
            return error
        return None


def _has_room(state: TurnOut) -> bool:
    return all(not lane.pending and (not lane.stream or lane.window.credit) for lane in state.lanes.values())
