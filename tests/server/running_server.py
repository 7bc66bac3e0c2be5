"""A real server in the test's own event loop, on a free port."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from voice_app.server.app import create_app
from voice_app.server.hub import Hub
from voice_app.server.pipeline import Pipeline
from voice_app.server.serving import listen
from voice_app.server.settings import ServerSettings


class _Server(uvicorn.Server):
    """Tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@asynccontextmanager
async def server(
    pipeline: Pipeline, settings: ServerSettings | None = None, hub: Hub | None = None
) -> AsyncIterator[int]:
    """Gives the port."""
    app = create_app(pipeline, settings, hub)
    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(app, log_level="warning", lifespan="on", ws_per_message_deflate=False)
    running = _Server(config)
    task = asyncio.create_task(running.serve([listener]))
    async with asyncio.timeout(10):
        await running.up.wait()
    try:
        yield listener.getsockname()[1]
    finally:
        running.should_exit = True
        await task
