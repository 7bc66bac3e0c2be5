"""Joins one client's session to its socket and to the pipeline: the only place that waits.

Three parts run at once: messages of the client are received, what waits in the outbox is sent, and the
events of each turn in the pipeline are read. Each tells the session what happened and then carries out what
the session wants: cancelling and submitting first, which never waits, then filling the outbox. A client that
does not read can so delay nothing but its own messages.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Protocol

import msgspec
import numpy as np

from voice_app.errors import TurnCancelled, VoiceAppError
from voice_app.log import bind
from voice_app.messages import StageTiming, TurnDone, TurnId
from voice_app.server.limits import Bucket
from voice_app.server.metrics import Metrics
from voice_app.server.outbox import Outbox
from voice_app.server.pipeline import Pipeline, TurnEvents
from voice_app.server.protocol.errors import ProtocolError
from voice_app.server.protocol.server_events import Event
from voice_app.server.session.actions import (
    Action,
    AskTurnEnd,
    Cancel,
    Close,
    Count,
    DropAudio,
    HoldAudio,
    Observe,
    ReleaseAudio,
    Send,
    SendBinary,
    Submit,
)
from voice_app.server.session.session import Session

log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode

PART_TIMEOUT_S = 2.0
"""A client that is told to go has so long to take what was sent before."""
SHORTEST_SLEEP_S = 0.001
"""Between two looks at the clock: no mistake in a deadline can keep the other talks waiting."""
LIMIT_NOTICE_S = 1.0
"""A client that sends too much is told so once in so many seconds, not for each event."""


class Socket(Protocol):
    """An accepted WebSocket."""

    def messages(self) -> AsyncIterator[str | bytes]:
        """What the client sends, until it is gone."""
        ...

    async def send(self, data: str | bytes) -> None:
        """Raises ConnectionError when the client is gone."""
        ...

    async def close(self, code: int, reason: str) -> None: ...


class Dialect(Protocol):
    """Another way to say the same; `DashScope` is one."""

    @property
    def session_update(self) -> Event:
        """What its sessions are like before the client says anything."""
        ...

    def receive(self, message: str | bytes) -> Sequence[str | bytes]:
        """The core's events for a message of the client."""
        ...

    def send(self, event: Event) -> list[Event]:
        """The client's events for an event of the core."""
        ...

    def farewell(self) -> list[Event]:
        """What is said when the client wants to end and nothing is being said any more."""
        ...


class Driver:
    """Runs one session. `keep` gets the id and the encoding of every event sent that is not audio, `acted` is
    called whenever the session may have changed. `events_per_s`: what the client may send. `dialect`
    translates both ways for a client that speaks another. `judge` says how likely a turn is complete. `trace`
    is told of every turn that is done: its wall clock at the start in ns, and the times of its stages."""

    def __init__(
        self,
        session: Session,
        socket: Socket,
        pipeline: Pipeline,
        outbox: Outbox,
        metrics: Metrics,
        *,
        event_prefix: str,
        send_timeout_s: float,
        events_per_s: float = 1e9,
        keep: Callable[[str, bytes], None] | None = None,
        acted: Callable[[], None] = lambda: None,
        dialect: Dialect | None = None,
        judge: Callable[[np.ndarray], Awaitable[float]] | None = None,
        trace: Callable[[TurnId, int, dict[str, StageTiming]], None] | None = None,
    ) -> None:
        self.session = session
        self._socket = socket
        self._pipeline = pipeline
        self._outbox = outbox
        self._metrics = metrics
        self._event_prefix = event_prefix
        self._send_timeout_s = send_timeout_s
        self._keep = keep
        self._acted = acted
        self._dialect = dialect
        self._judge = judge
        self._trace = trace
        self._allowance = Bucket(events_per_s, 2 * events_per_s)
        self._noticed_at = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()
        self._moved = asyncio.Event()
        """Set whenever the session was told something: there may be room again."""
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        """When that timer ends."""
        self._events = 0
        self._closing: Close | None = None
        self._fault: BaseException | None = None
        self._over = asyncio.Event()

    async def run(self, replay: Callable[[], None] = lambda: None) -> None:
        """Until the client is gone or the session is over; leaves no work behind. `replay` is called once
        the client was told what session it has."""
        if self._dialect is not None:
            self.session.receive(_encode(self._dialect.session_update), self._now())
            self.session.take()
        self.session.start()
        self.act()
        replay()
        self.act()
        parts = [
            asyncio.create_task(self._receive(), name="receive"),
            asyncio.create_task(self._emit(), name="emit"),
            asyncio.create_task(self._over.wait(), name="over"),
        ]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
            if self._fault is not None:
                raise self._fault
            if self._closing is not None:
                parts[1].cancel()
                await self._part(self._closing)
        except ConnectionError:
            log.info("the client is gone")
        except TimeoutError:
            log.info("the client has taken nothing for %g s: connection dropped", self._send_timeout_s)
        finally:
            self.session.close(self._now())
            self.act()
            if self._timer is not None:
                self._timer.cancel()
            for task in (*parts, *self._tasks):
                task.cancel()
            await asyncio.gather(*parts, *self._tasks, return_exceptions=True)

    async def _part(self, close: Close) -> None:
        """Let what was sent before leave, then close."""
        self._outbox.release_audio()
        try:
            async with asyncio.timeout(PART_TIMEOUT_S):
                while self._outbox:
                    await self._socket.send(await self._outbox.get())
                await self._socket.close(close.code, close.reason)
        except TimeoutError:
            log.info("the client takes nothing more: connection dropped")

    async def _receive(self) -> None:
        async for message in self._socket.messages():
            at = self._now()
            if self._allowance.take(1, at):
                self._hear(message, at)
            elif at - self._noticed_at > LIMIT_NOTICE_S:
                self._noticed_at = at
                self.session.error(ProtocolError("rate_limit_exceeded", "Too many events a second."))
            self.act()

    def _hear(self, message: str | bytes, at: float) -> None:
        if self._dialect is None:
            self.session.receive(message, at)
            return
        for event in self._dialect.receive(message):
            self.session.receive(event, at)
        for event in self._dialect.farewell():
            self._put(event, None)

    async def _emit(self) -> None:
        while True:
            data = await self._outbox.get()
            async with asyncio.timeout(self._send_timeout_s):
                await self._socket.send(data)
            if self._outbox.calm and self.session.congested:
                self.session.congested = False
                self._tick()

    def _tick(self) -> None:
        self.session.tick(self._now())
        self.act()

    async def _read(self, turn: TurnId, stream: TurnEvents) -> None:
        """One turn's events; the next is taken only when the session has room for it."""
        submitted_ns = time.time_ns()
        with bind(turn=turn.turn):
            try:
                async for event in stream:
                    if isinstance(event, TurnDone):
                        self.session.occupancy.done(turn)
                    while not self.session.room(turn):
                        self._moved.clear()
                        await self._moved.wait()
                    self.session.event(turn, event, self._now())
                    self.act()
                    if isinstance(event, TurnDone) and self._trace is not None:
                        self._trace(turn, submitted_ns, event.stages)
            except TurnCancelled:
                log.debug("the turn was cancelled")
            except VoiceAppError as error:
                log.warning("the turn failed: %s", error)
                self.session.failed(turn, error, self._now())
                self.act()
            finally:
                await stream.aclose()

    # ------------------------------------------------------------------------------ what others may want

    def end(self, error: ProtocolError, code: int) -> None:
        """Tell the client why, and close."""
        self.session.end(error, code)
        self.act()

    def finish_up(self) -> None:
        """Let the turn in progress end, then close."""
        self.session.finish_up(self._now())
        self.act()

    def close(self, close: Close) -> None:
        """Close once what was sent before has left."""
        if self._closing is None:
            self._closing = close
        self._over.set()

    def resend(self, data: bytes) -> None:
        """Send an event again, as it was."""
        self._outbox.put(data.decode())

    # ----------------------------------------------------------------------------- what the session wants

    def act(self) -> None:
        """Never waits."""
        for action in self.session.take():
            self._carry_out(action)
        self.session.congested = not self._outbox.calm
        if self._outbox.full:
            self.close(Close(1013, "the client reads too slowly"))
        self._acted()
        self._moved.set()
        self._arm()

    def _carry_out(self, action: Action) -> None:
        match action:
            case Cancel(turn):
                self._pipeline.cancel(turn)
            case Submit():
                self._submit(action)
            case Send():
                self._send(action)
            case SendBinary(data, response):
                self._outbox.put(data, response)
            case AskTurnEnd(samples, pause):
                self._start(self._ask_turn_end(samples, pause))
            case HoldAudio(response):
                self._outbox.hold_audio(response)
            case ReleaseAudio():
                self._outbox.release_audio()
            case DropAudio(response):
                self._outbox.drop_audio(response)
            case Observe(measure, seconds):
                self._metrics.observe(measure, seconds)
            case Count(tally, label):
                self._metrics.count(tally, label)
            case Close():
                self.close(action)

    def _send(self, send: Send) -> None:
        told = [send.event] if self._dialect is None else self._dialect.send(send.event)
        for event in told:
            self._put(event, send.response)

    def _put(self, event: Event, response: str | None) -> None:
        self._events += 1
        event_id = f"{self._event_prefix}_{self._events}"
        data = _encode({**event, "event_id": event_id})
        self._outbox.put(data.decode(), response)
        if self._keep is not None and response is None:
            self._keep(event_id, data)

    def _submit(self, submit: Submit) -> None:
        turn = submit.request.turn
        try:
            stream = self._pipeline.submit(submit.request)
        except VoiceAppError as error:
            # The session hears of it as of any failure, but not while it still decides.
            self._loop.call_soon(self._refused, turn, error)
            return
        self.session.occupancy.enter(turn)
        # However it ends: a task that is cancelled before its first step runs none of its own code.
        self._start(self._read(turn, stream)).add_done_callback(
            lambda _: self.session.occupancy.leave(turn, self._now())
        )

    async def _ask_turn_end(self, samples: np.ndarray, pause: int) -> None:
        if self._judge is not None:
            probability = await self._judge(samples)
            self.session.judged(pause, probability, self._now())
            self.act()

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run beside the talk, no longer than it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            # A fault of ours, not of the turn (that would be a typed error): end the session over it.
            self._fault = fault
            self._over.set()

    def _refused(self, turn: TurnId, error: VoiceAppError) -> None:
        self.session.failed(turn, error, self._now())
        self.act()

    def _arm(self) -> None:
        """Wake up when the session's deadline comes. A timer that is early only looks again."""
        at = self._now()
        when = max(self.session.deadline(at), at + SHORTEST_SLEEP_S)
        if self._timer is not None:
            if at < self._wakes_at <= when:
                return
            self._timer.cancel()
        self._wakes_at = when
        self._timer = self._loop.call_at(when, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._tick()


def now() -> float:
    """The clock of the event loop, so that timers and times agree."""
    return asyncio.get_running_loop().time()


def unix_time() -> float:
    """The wall clock."""
    return time.time()
