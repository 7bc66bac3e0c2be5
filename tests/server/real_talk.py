"""The stock openai client as a caller: speaks recordings in real time, listens at the pace of an ear."""

import asyncio
import base64
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection

SPOKEN = Path(__file__).parents[1] / "data" / "spoken"
RATE = 24_000
PACKET_S = 0.04


def recording(name: str) -> np.ndarray:
    """[n] int16 at 24 kHz, without the silence around the words."""
    samples, rate = soundfile.read(SPOKEN / f"{name}.flac", dtype="float32")
    samples = soxr.resample(samples, rate, RATE)
    loud = np.flatnonzero(np.abs(samples) > 0.02)
    return (samples[loud[0] : loud[-1]] * 32767).astype("<i2")


def silence(seconds: float) -> np.ndarray:
    return np.zeros(int(seconds * RATE), "<i2")


class Caller:
    """One talk. `events` is all that came, with the time."""

    def __init__(self, talk: AsyncRealtimeConnection) -> None:
        self.talk = talk
        self.events: list[tuple[float, Any]] = []
        self._changed = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for event in self.talk:
            self.events.append((time.monotonic(), event))
            self._changed.set()

    async def hang_up(self) -> None:
        await self.talk.close()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def speak(self, *pieces: np.ndarray) -> float:
        """In real time; gives when the last packet was sent."""
        pcm = np.concatenate(pieces)
        step = int(PACKET_S * RATE)
        begin = time.monotonic()
        for start in range(0, len(pcm), step):
            packet = base64.b64encode(pcm[start : start + step].tobytes()).decode()
            await self.talk.input_audio_buffer.append(audio=packet)
            await asyncio.sleep(max(0.0, begin + (start + step) / RATE - time.monotonic()))
        return time.monotonic()

    async def until(self, kind: str, after: int = 0, timeout_s: float = 60.0) -> Any:
        """The first event of `kind` at or after position `after`."""
        async with asyncio.timeout(timeout_s):
            while True:
                for _, event in self.events[after:]:
                    if event.type == kind:
                        return event
                self._changed.clear()
                await self._changed.wait()

    def of(self, kind: str) -> list[tuple[float, Any]]:
        return [(at, event) for at, event in self.events if event.type == kind]

    def position(self, event: object) -> int:
        """Where among all that came `event` is."""
        return next(place for place, (_, found) in enumerate(self.events) if found is event)

    def voice(self) -> np.ndarray:
        """All audio so far: [n] int16 at 24 kHz."""
        pieces = [base64.b64decode(event.delta) for _, event in self.of("response.output_audio.delta")]
        return np.frombuffer(b"".join(pieces), "<i2")


def client_of(port: int) -> AsyncOpenAI:
    return AsyncOpenAI(api_key="none", websocket_base_url=f"ws://127.0.0.1:{port}/v1")


def words(events: Iterable[tuple[float, Any]]) -> str:
    """What the deltas say."""
    return "".join(event.delta for _, event in events)
