"""Somebody who talks to either system: a microphone that never stops, an ear, one clock."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from load.listener import Listener
from load.rivals.lines import Kind, Line, Wire
from voice_app.bench.callers import PACKET_S, RATE, silence
from voice_app.errors import DeadlineExceeded

READY_S = 60.0
ANSWER_S = 20.0
"""A reply that has not begun by then does not come."""
REPLY_S = 40.0


@dataclass(slots=True)
class Turn:
    """Seconds since the last packet of speech had left. None: it never came."""

    wait_s: float | None = None
    """Until the server said that the turn's silence is over."""
    first_audio_s: float | None = None
    gaps: list[float] = field(default_factory=list)
    heard_s: float = 0.0
    unanswered: str = ""
    """What is known of why no sound came."""


class Missed(StrEnum):
    """Why there is nothing to measure of an interruption."""

    NO_REPLY = "there was no reply"
    OVER = "the reply was over before"
    WENT_ON = "the reply went on"


@dataclass(slots=True)
class Interruption:
    """Seconds since the first packet of the speech over a reply had left."""

    last_sound_s: float
    """The last sound of the old reply came; 0: before."""
    silent_s: float
    """The ear fell silent."""


class Caller:
    """One talk over `line`."""

    def __init__(self, socket: ClientConnection, line: Line) -> None:
        self._socket = socket
        self._line = line
        self._pause = line.packet(silence(PACKET_S))
        self._saying: deque[Wire] = deque()
        self._sent: list[float] = []
        self._changed = asyncio.Event()
        self._begin()

    def _begin(self) -> None:
        """Forget what the turn before was."""
        self._ear = Listener()
        self._first_at: float | None = None
        self._at: dict[Kind, float] = {}
        self._silent_at: float | None = None
        self._last_sound = 0.0
        self._ends: list[str] = []

    # ------------------------------------------------------------------------------------ what runs beside

    async def speak_on(self) -> None:
        """Send a packet every 20 ms: what is to be said, else silence."""
        begin = time.perf_counter()
        number = 0
        while True:
            saying = bool(self._saying)
            await self._socket.send(self._saying.popleft() if saying else self._pause)
            if saying:
                self._sent.append(time.perf_counter())
                if not self._saying:
                    self._changed.set()
            number += 1
            await asyncio.sleep(max(0.0, begin + number * PACKET_S - time.perf_counter()))

    async def listen_on(self) -> None:
        """Take in what comes, until the connection ends."""
        async for message in self._socket:
            now = time.perf_counter()
            said = self._line.read(message)
            if said is None:
                continue
            if said.kind is Kind.SOUND:
                self._first_at = self._first_at or now
                self._ear.hear(said.seconds, now)
                if self._silent_at is None:
                    self._last_sound = now
            elif said.kind is Kind.FLUSH and self._first_at is not None and self._silent_at is None:
                self._silent_at = self._ear.silence(now)
            elif said.kind is Kind.COMPLETE:
                self._ends.append(said.detail or "a reply without sound")
            self._at[said.kind] = now
            self._changed.set()

    # ------------------------------------------------------------------------------------------ what is done

    async def ready(self, stop_s: float) -> None:
        """Raises DeadlineExceeded if the server does not get ready."""
        for message in self._line.opening(stop_s):
            await self._socket.send(message)
        if not await self._until(lambda: Kind.READY in self._at, READY_S):
            raise DeadlineExceeded("the server did not let the talk begin")

    async def ask(self, question: Sequence[np.ndarray]) -> Turn:
        """Say it and hear the whole reply; `question`: packets of [480] float32 at 24 kHz."""
        self._begin()
        await self._say(question)
        ended = self._sent[-1]
        if not await self._until(lambda: self._first_at is not None, ANSWER_S):
            why = "; ".join(self._ends) or "nothing came"
            return Turn(wait_s=self._since(ended, self._at.get(Kind.SPEECH_ENDED)), unanswered=why)
        # What the server hears after its first sound is not this turn's end.
        wait = self._since(ended, self._at.get(Kind.SPEECH_ENDED))
        await self._to_the_end()
        gaps = [underrun.seconds for underrun in self._ear.underruns]
        return Turn(wait, self._since(ended, self._first_at), gaps, self._ear.sound_s)

    async def interrupt(
        self, question: Sequence[np.ndarray], over: Sequence[np.ndarray]
    ) -> Interruption | Missed:
        """Say `question`, half a second into its reply say `over`, and hear the reply to that."""
        self._begin()
        await self._say(question)
        if not await self._until(lambda: self._first_at is not None, ANSWER_S):
            return Missed.NO_REPLY
        await asyncio.sleep(0.5)
        if not self._ear.plays(time.perf_counter()):
            return Missed.OVER
        await self._say(over)
        begin = self._sent[0]
        stopped = await self._until(lambda: self._silent_at is not None, ANSWER_S / 4)
        silent, last = self._silent_at, self._last_sound
        await self._until(lambda: self._ear.dry_at() > (silent or 0.0), ANSWER_S)
        await self._to_the_end()
        if not stopped or silent is None:
            return Missed.WENT_ON
        return Interruption(max(0.0, last - begin), max(0.0, silent - begin))

    async def _say(self, packets: Sequence[np.ndarray]) -> None:
        self._sent.clear()
        self._saying.extend(map(self._line.packet, packets))
        await self._until(lambda: len(self._sent) == len(packets), len(packets) * PACKET_S + ANSWER_S)

    async def _to_the_end(self) -> None:
        """Until the reply is complete, played, and nothing more has come for a while."""
        await self._until(lambda: Kind.COMPLETE in self._at, REPLY_S)
        left = 1.0
        while left > 0:
            await self._until(lambda: False, left)
            left = self._ear.dry_at() + self._line.settle_s - time.perf_counter()

    async def _until(self, true: Callable[[], bool], timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while not true():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    @staticmethod
    def _since(begin: float, at: float | None) -> float | None:
        return None if at is None else at - begin


@asynccontextmanager
async def calling(port: int, line: Line, stop_s: float) -> AsyncIterator[Caller]:
    """A talk that is ready for its first turn."""
    url = f"ws://127.0.0.1:{port}{line.path}"
    async with connect(url, max_size=None, compression=None, open_timeout=READY_S) as socket:
        caller = Caller(socket, line)
        listening = asyncio.create_task(caller.listen_on())
        await caller.ready(stop_s)
        speaking = asyncio.create_task(caller.speak_on())
        try:
            yield caller
        finally:
            speaking.cancel()
            await socket.close()
            await asyncio.gather(listening, speaking, return_exceptions=True)


def in_packets(speech: np.ndarray) -> list[np.ndarray]:
    """[n] float32 at 24 kHz as whole packets, the last filled up with silence."""
    step = int(PACKET_S * RATE)
    padded = np.concatenate([speech, np.zeros(-len(speech) % step, np.float32)])
    return list(padded.reshape(-1, step))
