"""People who call a server: they speak recordings in real time and note when they hear what."""

import asyncio
import base64
import json
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


def speech(path: Path) -> np.ndarray:
    """[n] float32 at 24 kHz: a recording without the silence around its words."""
    sound = audio.read(path)
    samples = audio.resample(sound.samples, sound.sample_rate, RATE)
    loud = np.flatnonzero(np.abs(samples) > SPEECH_LEVEL)
    return samples[loud[0] : loud[-1]]


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

    async def listen(self) -> None:
        """Note all that comes, until the connection ends."""
        async for message in self.socket:
            self.events.append((time.perf_counter(), json.loads(message)))
            self._changed.set()

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
async def calling(port: int) -> AsyncIterator[Caller]:
    """A caller who listens."""
    url = f"ws://127.0.0.1:{port}/v1/realtime"
    async with connect(url, max_size=None, compression=None, open_timeout=60) as socket:
        caller = Caller(socket)
        listening = asyncio.create_task(caller.listen())
        try:
            yield caller
        finally:
            await socket.close()
            await asyncio.gather(listening, return_exceptions=True)
