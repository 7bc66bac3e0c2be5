"""A real redis-server is killed in the middle of a talk, stays away, and comes back."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fake_pipeline import FakePipeline, spoken
from needs import missing
from running_server import kept_server, until
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from wire_client import WireClient, wire_client

from voice_app.server.store import embedded

AWAY_S = float(os.environ.get("REDIS_AWAY_S", "2"))
"""With 30 in the environment, the whole outage that the server is built for."""
WORDS = "one two three four five six"


class Redis:
    """A server of its own on a TCP port, which nobody starts again but the test."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self.url = f"redis://127.0.0.1:{self._port}"

    async def start(self) -> None:
        program = embedded.program()
        if program is None:
            missing("a redis-server", "apt-get install redis-server")
        options = ["--port", str(self._port), "--dir", str(self._folder), "--appendonly", "yes", "--save", ""]
        quiet = asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(program, *options, stdout=quiet, stderr=quiet)
        await until(self._answers)

    async def _answers(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return False
        writer.write(b"PING\r\n")
        line = await reader.readline()
        writer.close()
        return line == b"+PONG\r\n"

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[Redis]:
    server = Redis(tmp_path)
    await server.start()
    yield server
    await server.kill()


async def ask(client: WireClient, text: str) -> None:
    await client.say(text)
    await client.send("response.create")


async def test_a_talk_goes_on_while_redis_is_killed_and_nothing_of_it_is_lost(redis: Redis):
    pipeline = FakePipeline(lambda request: spoken(WORDS, heard=None))
    async with (
        kept_server(redis.url, pipeline) as (first, hub),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{first}") as http,
        wire_client(first, "?extensions=resume") as client,
    ):
        token = client.events[0]["session"]["extensions"]["resume"]["token"]
        await ask(client, "Before")
        await client.until("response.output_audio.delta")
        await redis.kill()
        assert (await client.until("response.done"))["response"]["status"] == "completed"
        await client.update(instructions="Be brief.")
        await ask(client, "While it is away")
        assert (await client.until("response.done"))["response"]["status"] == "completed"
        await asyncio.sleep(AWAY_S)
        assert (await http.get("/ready")).json()["store"] is False
        async with asyncio.timeout(3), connect(f"ws://127.0.0.1:{first}/v1/realtime") as refused:
            assert json.loads(await refused.recv())["error"]["code"] == "store_error"
            with pytest.raises(ConnectionClosed) as closed:
                await refused.recv()
        assert closed.value.rcvd
        assert closed.value.rcvd.code == 1013
        await ask(client, "Still away")
        await client.until("response.done")
        await redis.start()
        assert hub.store
        async with asyncio.timeout(60):
            await hub.store.written()
        assert (await http.get("/ready")).json()["store"] is True
        async with (
            kept_server(redis.url, pipeline) as (second, _),
            wire_client(second, f"?resume={token}", check=False) as again,
        ):
            told = [await again.until("conversation.item.done") for _ in range(6)]
    assert again.events[0]["session"]["instructions"] == "Be brief."
    texts = [e["item"]["content"][0].get("text") or e["item"]["content"][0]["transcript"] for e in told]
    assert texts == ["Before", WORDS, "While it is away", WORDS, "Still away", WORDS]


async def test_ready_notices_a_redis_that_dies_while_nobody_talks(redis: Redis):
    async with (
        kept_server(redis.url, FakePipeline(lambda request: [])) as (port, _),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
    ):

        async def is_ready() -> bool:
            return (await http.get("/ready")).status_code == 200

        async def is_not_ready() -> bool:
            return not await is_ready()

        assert await is_ready()
        await redis.kill()
        await until(is_not_ready)
        await redis.start()
        await until(is_ready)
