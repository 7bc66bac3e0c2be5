"""People who call a server: they speak recordings in real time and note when they hear what."""

import asyncio
import base64
import json
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from voice_app import audio

RATE = 24_000
PACKET_S = 0.02
SPEECH_LEVEL = 0.02
UNREAD_BUFFER, READ_BUFFER = 4096, 1 << 20
"""Bytes that the system is asked to keep for a caller who does not read, and for one who does."""


def speech(path: Path) -> np.ndarray:
    """[n] float32 at 24 kHz: a recording without the silence around its words."""
    sound = audio.read(path)
    return without_silence(audio.resample(sound.samples, sound.sample_rate, RATE))


def without_silence(samples: np.ndarray) -> np.ndarray:
    """[n] float32 → from the first to the last of them that is loud enough for speech."""
    loud = np.flatnonzero(np.abs(samples) > SPEECH_LEVEL)
    return samples[loud[0] : loud[-1]] if len(loud) else samples


def silence(seconds: float) -> np.ndarray:
    """[n] float32 at 24 kHz."""
    return np.zeros(int(seconds * RATE), np.float32)


def packets(*pieces: np.ndarray) -> list[str]:
    """The sound as messages of 20 ms, ready to be sent."""
    step = int(PACKET_S * RATE) * 2
    pcm = audio.to_pcm16(np.concatenate(pieces))
    # Whole packets only, so that the time of a packet follows from its number.
    pcm += bytes(-len(pcm) % step)
    return [
        json.dumps(
            {"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm[i : i + step]).decode()}
        )
        for i in range(0, len(pcm), step)
    ]


@dataclass(slots=True)
class Caller:
    """`sent_at`: when each packet left; `events`: what came, and when."""

    socket: ClientConnection
    sent_at: list[float] = field(default_factory=list)
    events: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _listening: asyncio.Task[None] | None = None

    def listen(self) -> None:
        """Note all that comes, until the connection ends."""
        raw = self.socket.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_BUFFER)
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for message in self.socket:
            self.events.append((time.perf_counter(), json.loads(message)))
            self._changed.set()

    async def hang_up(self) -> None:
        await self.socket.close()
        if self._listening is not None:
            await asyncio.gather(self._listening, return_exceptions=True)

    async def speak(self, messages: Sequence[str]) -> None:
        """Send packets in real time."""
        begin = time.perf_counter()
        for number, message in enumerate(messages, 1):
            await self.socket.send(message)
            self.sent_at.append(time.perf_counter())
            await asyncio.sleep(max(0.0, begin + number * PACKET_S - time.perf_counter()))

    async def update(self, **session: Any) -> None:
        await self.socket.send(
            json.dumps({"type": "session.update", "session": {"type": "realtime", **session}})
        )

    async def until(self, kind: str, after: int = 0, timeout_s: float = 30.0) -> tuple[float, dict[str, Any]]:
        """The first event of `kind` from position `after` on, and when it came."""
        async with asyncio.timeout(timeout_s):
            while True:
                for at, event in self.events[after:]:
                    if event["type"] == kind:
                        return at, event
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def calling(port: int, *, reads: bool = True) -> AsyncIterator[Caller]:
    """A caller; one that does not read takes next to nothing until it is told to `listen`."""
    raw = socket.create_connection(("127.0.0.1", port))
    if not reads:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UNREAD_BUFFER)
    url = f"ws://127.0.0.1:{port}/v1/realtime"
    options = {"max_size": None, "compression": None, "open_timeout": 60, "max_queue": 16 if reads else 1}
    async with connect(url, sock=raw, **options) as connection:
        caller = Caller(connection)
        if reads:
            caller.listen()
        try:
            yield caller
        finally:
            await caller.hang_up()
