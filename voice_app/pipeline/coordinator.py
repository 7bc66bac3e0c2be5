"""The server's side of every turn: sends the request in, hands events on, ends each turn once."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from voice_app.errors import (
    DeadlineExceeded,
    Overloaded,
    PipelineError,
    TransferFailed,
    TurnCancelled,
    VoiceAppError,
    WorkerDied,
    from_info,
)
from voice_app.messages import (
    AudioDone,
    Stage,
    StageEvent,
    StageTiming,
    TextDone,
    TurnDone,
    TurnId,
    TurnRequest,
)
from voice_app.pipeline import graph
from voice_app.pipeline.control import (
    SERVER,
    Control,
    EndTurn,
    HandOffStats,
    PeerDown,
    PeerUp,
    StageReport,
    TurnEnded,
    TurnFailed,
)
from voice_app.pipeline.exchange import TICK_S, Exchange, Pools
from voice_app.pipeline.inlet import Delivery
from voice_app.pipeline.replicas import Replicas
from voice_app.pipeline.stream import TurnStream
from voice_app.pipeline.transport.base import Incoming
from voice_app.pipeline.wire import Wire

END_TIMEOUT_S = 1.0
"""Workers tell the timings of an answered turn within milliseconds; later ones are left out."""

VOICE_STAGES = frozenset(edge.target for edge in graph.EDGES if edge.voice)
"""Stages that a turn without speech does not enter."""


@dataclass(slots=True, eq=False)
class _Turn:
    """An open turn. It is answered when its text is complete and, if spoken, its voice: the talker
    gets the end of every spoken turn's tokens, so a voice follows even if it is 0 samples long."""

    turn: TurnId
    stream: TurnStream
    workers: frozenset[str]
    text_done: bool
    voice_done: bool
    deadline: asyncio.TimerHandle
    awaited: set[str] = field(default_factory=set)
    """Workers whose timings are still to come; the turn is answered."""
    answered: bool = False
    stages: dict[str, StageTiming] = field(default_factory=dict)


class Coordinator:
    """Runs in the event loop; none of its methods waits. Control messages that are not about turns go
    to `other`.

    The loop watches the inbox's descriptor itself: no thread stands between, and no locks. While all messages
    came through ZMQ one took 122 µs so, 119 µs by a reading thread that handed on to the loop, and 130 µs by
    zmq.asyncio; for Unix sockets the three were not compared."""

    def __init__(
        self,
        wire: Wire,
        places: dict[Stage, tuple[str, ...]],
        pools: Pools,
        incoming: Incoming,
        *,
        max_turns: int,
        turn_timeout_s: float,
        other: Callable[[Control], None],
    ) -> None:
        self._wire = wire
        self._places = places
        self.replicas = Replicas(places)
        self._max_turns = max_turns
        self._turn_timeout_s = turn_timeout_s
        self._other = other
        self._loop = asyncio.get_running_loop()
        self._turns: dict[TurnId, _Turn] = {}
        self._workers: set[str] = set()
        self._ticking: asyncio.TimerHandle | None = None
        self._exchange = Exchange(SERVER, places, wire, pools, incoming, self._deliver, self._failed)
        self._outlet = self._exchange.outlet(None, lambda: None)
        self._loop.add_reader(wire.fileno(), self._readable)

    def close(self) -> None:
        """Fail what is open and stop reading."""
        for turn in list(self._turns.values()):
            self._end(turn, PipelineError("the pipeline was stopped"))
        self._loop.remove_reader(self._wire.fileno())
        if self._ticking is not None:
            self._ticking.cancel()

    # ------------------------------------------------------------------------------------------- turns

    def route(self, request: TurnRequest, ready: Callable[[str], bool]) -> dict[Stage, str]:
        """The node of each stage that a new turn passes through; of replicas one that is `ready`."""
        stages = [stage for stage in graph.STAGES if request.speech or stage not in VOICE_STAGES]
        return self.replicas.choose(stages, ready)

    def submit(self, request: TurnRequest, route: dict[Stage, str]) -> TurnStream:
        """Send a turn in along `route`; an older generation of it that runs is ended. Raises Overloaded,
        TurnCancelled (its generation is stale, or a newer one runs), TransferFailed (too large to send)."""
        turn = request.turn
        if turn in self._turns:
            raise PipelineError(f"turn {turn.turn} of session {turn.session} runs already")
        older = self._open(turn.key)
        newer = any(state.turn.generation > turn.generation for state in older)
        if newer or not self._exchange.fence.admits(turn):
            raise TurnCancelled(f"generation {turn.generation} of turn {turn.turn} is stale")
        if len(self._turns) - len(older) >= self._max_turns:
            raise Overloaded(f"{self._max_turns} turns are running (max_turns); try again later")
        for state in older:
            self._end(state, TurnCancelled(f"turn {turn.turn} has a newer generation"))
        stream = TurnStream(turn, self.cancel)
        deadline = self._loop.call_later(self._turn_timeout_s, self._timed_out, turn)
        workers = frozenset(route.values())
        nodes = {stage: node for stage, node in route.items() if len(self._places[stage]) > 1}
        self._turns[turn] = state = _Turn(turn, stream, workers, False, not request.speech, deadline)
        self.replicas.sent(turn, workers)
        self._outlet.open(turn, speech=request.speech, submitted=self._loop.time(), nodes=nodes)
        try:
            self._outlet.send(turn, request)
        except TransferFailed as error:
            self._end(state, error)
            raise
        self._tick()
        return stream

    def cancel(self, turn: TurnId) -> None:
        """Raise the fence above `turn.generation`; whatever runs below it ends. Never waits."""
        self._exchange.fence.raise_above(turn)
        for state in self._open(turn.key):
            if state.turn.generation <= turn.generation:
                self._end(state, TurnCancelled(f"turn {turn.turn} was cancelled"))

    def __len__(self) -> int:
        return len(self._turns)

    def stats(self) -> HandOffStats:
        """The server's own part in the hand-off."""
        return self._exchange.stats()

    # ----------------------------------------------------------------------------------------- workers

    def worker_up(self, name: str, addresses: Mapping[str, str]) -> None:
        """A worker is being started; its inbox will be at `addresses`, for each node that writes to it."""
        self._wire.connect(name, addresses[SERVER])
        for worker in self._workers:
            self._tell({worker}, PeerUp(name, addresses[worker]))
        self._workers.add(name)

    def worker_down(self, name: str, error: WorkerDied) -> None:
        """A worker is gone, and the turns that were in it."""
        self._workers.discard(name)
        self.replicas.down(name)
        self._exchange.peer_down(name)
        self._tell(self._workers, PeerDown(name))
        for state in [s for s in self._turns.values() if name in s.workers]:
            if state.answered:
                self._heard_from(state, name)
            else:
                self._end(state, error)

    # ---------------------------------------------------------------------------------------- messages

    def _readable(self) -> None:
        for message in self._wire.waiting():
            if self._exchange.handle(message):
                continue
            match message:
                case TurnFailed():
                    self._failed(message.turn, from_info(message.error))
                case TurnEnded():
                    self._ended(message)
                case StageReport() if message.worker not in self._workers:
                    continue  # It has died since.
                case StageReport():
                    self.replicas.reported(message.worker, message.stage, message.load, message.met)
                case _:
                    self._other(message)

    def _deliver(self, delivery: Delivery) -> None:
        state = self._turns.get(delivery.edge.turn)
        payload = delivery.payload
        if state is None or not isinstance(payload, StageEvent):
            delivery.release()
            return
        state.stream.put(payload, delivery.release)
        state.text_done |= isinstance(payload, TextDone)
        state.voice_done |= isinstance(payload, AudioDone)
        if state.text_done and state.voice_done and not state.answered:
            self._answered(state)

    def _failed(self, turn: TurnId, error: VoiceAppError) -> None:
        state = self._turns.get(turn)
        if state is not None and not state.answered:
            self._end(state, error)

    def _answered(self, state: _Turn) -> None:
        state.answered = True
        state.awaited = set(state.workers)
        state.deadline.cancel()
        state.deadline = self._loop.call_later(END_TIMEOUT_S, self._done, state)
        self._exchange.end(state.turn)
        self._tell(state.workers, EndTurn(state.turn))

    def _ended(self, message: TurnEnded) -> None:
        state = self._turns.get(message.turn)
        if state is not None:
            state.stages |= {str(stage): timing for stage, timing in message.stages.items()}
            self._heard_from(state, message.worker)

    def _heard_from(self, state: _Turn, worker: str) -> None:
        state.awaited.discard(worker)
        if state.answered and not state.awaited:
            self._done(state)

    def _done(self, state: _Turn) -> None:
        order = {stage: state.stages[stage] for stage in graph.STAGES if stage in state.stages}
        state.stream.put(TurnDone({str(stage): timing for stage, timing in order.items()}), lambda: None)
        self._close(state, None)

    def _end(self, state: _Turn, error: VoiceAppError) -> None:
        """The turn ends without an answer."""
        self._exchange.end(state.turn)
        self._tell(state.workers, EndTurn(state.turn))
        self._close(state, error)

    def _close(self, state: _Turn, error: VoiceAppError | None) -> None:
        state.deadline.cancel()
        del self._turns[state.turn]
        self.replicas.ended(state.turn, state.workers)
        state.stream.end(error)

    def _timed_out(self, turn: TurnId) -> None:
        limit = f"{self._turn_timeout_s:g} s (turn_timeout_s)"
        self._failed(turn, DeadlineExceeded(f"turn {turn.turn} did not end within {limit}"))

    def _open(self, key: tuple[str, str]) -> list[_Turn]:
        return [state for state in self._turns.values() if state.turn.key == key]

    def _tell(self, nodes: Collection[str], message: Control) -> None:
        for node in nodes:
            try:
                self._wire.send(node, message)
            except TransferFailed:
                continue  # It is gone; the launcher says so.

    def _give_up_cut_off(self) -> None:
        """Fail the turns in workers whose hosts are out of reach."""
        cut_off = self._exchange.cut_off
        for state in [s for s in self._turns.values() if s.workers & cut_off.keys()]:
            name = min(state.workers & cut_off.keys())
            if state.answered:
                self._done(state)
            else:
                error = f"worker {name} was not heard of for {cut_off[name]:.0f} s"
                self._end(state, TransferFailed(error))

    def _tick(self) -> None:
        """Look at the hand-off's deadlines as long as a turn is open."""
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        if self._exchange.tick():
            self._give_up_cut_off()
        if self._exchange.busy:
            self._ticking = self._loop.call_later(TICK_S, self._tick)
