"""A real server in the test's own event loop, on a free port."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import uvicorn

from voice_app.server import auth
from voice_app.server.app import create_app
from voice_app.server.hub import Hub, make_hub
from voice_app.server.pipeline import Pipeline
from voice_app.server.serving import listen
from voice_app.server.settings import ServerSettings, TalkSettings
from voice_app.server.store.redis_store import RedisStore

FAST = TalkSettings(lead_s=1e9)
"""A voice is sent as soon as it is made, not as it is played."""


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what nobody tells of: what another process did, or a part of the server that is asked."""
    async with asyncio.timeout(60):
        while not await true():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


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
    async with asyncio.timeout(60):
        await running.up.wait()
    try:
        yield listener.getsockname()[1]
    finally:
        running.should_exit = True
        await task


@asynccontextmanager
async def kept_server(
    url: str, pipeline: Pipeline, keys: auth.Keys | None = None, settings: ServerSettings | None = None
) -> AsyncIterator[tuple[int, Hub]]:
    """Gives the port of a server with a store, and its hub."""
    store = RedisStore(url, ttl_s=60)
    await store.start()
    hub = make_hub(pipeline, settings or ServerSettings(), keys, store)
    try:
        async with server(pipeline, hub=hub) as port:
            yield port, hub
    finally:
        await store.stop()
