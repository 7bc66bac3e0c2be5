"""A WebSocket client without opinions: sends what a test says, checks and keeps what comes."""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from conformance import Checker, Event
from PIL import Image
from websockets.asyncio.client import ClientConnection, connect

LOUD = (8000 * np.sin(2 * np.pi * 220 * np.arange(2400) / 24000)).astype("<i2").tobytes()
"""100 ms of a tone."""
MANUAL = {"input": {"turn_detection": None}}
"""A session's audio settings: the client says when a turn ends."""


def jpeg(shade: int, size: tuple[int, int] = (640, 480)) -> str:
    """A picture with a gradient that depends on `shade`, base64."""
    rows = np.linspace(0, 255, size[0])[None, :] * np.ones((size[1], 1))
    field = np.roll(rows, shade * size[0] // 8, axis=1).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(field).convert("RGB").save(out, "JPEG")
    return base64.b64encode(out.getvalue()).decode()


class WireClient:
    def __init__(self, socket: ClientConnection, *, check: bool = True) -> None:
        self.socket = socket
        self.checker = Checker()
        self.events: list[Event] = []
        self.binary: list[bytes] = []
        self._check = check

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def update(self, **session: Any) -> None:
        await self.send("session.update", session={"type": "realtime", **session})

    async def say(self, text: str) -> None:
        content = [{"type": "input_text", "text": text}]
        await self.send(
            "conversation.item.create", item={"type": "message", "role": "user", "content": content}
        )

    async def append(self, pcm: bytes) -> None:
        await self.send("input_audio_buffer.append", audio=base64.b64encode(pcm).decode())

    async def until(self, kind: str, timeout_s: float = 60.0) -> Event:
        """The next event of `kind`; all before it are kept."""
        async with asyncio.timeout(timeout_s):
            while True:
                event = await self.next()
                if event["type"] == kind:
                    return event

    async def next(self) -> Event:
        while True:
            message = await self.socket.recv()
            if isinstance(message, str):
                event = json.loads(message)
                if self._check:
                    self.checker.feed(event)
                self.events.append(event)
                return event
            self.binary.append(message)

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events]


@asynccontextmanager
async def wire_client(
    port: int, query: str = "", *, check: bool = True, **options: Any
) -> AsyncIterator[WireClient]:
    """Connected, and past session.created."""
    url = f"ws://127.0.0.1:{port}/v1/realtime{query}"
    async with connect(url, max_size=None, compression=None, **options) as socket:
        client = WireClient(socket, check=check)
        await client.next()
        yield client
