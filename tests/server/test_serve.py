"""`voice-app serve` as processes: two of them over one Redis, a talk that moves, and an orderly end."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import psutil
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol
from wire_client import wire_client

from voice_app.server import auth
from voice_app.server.store.embedded import EmbeddedRedis

pytestmark = [pytest.mark.models, pytest.mark.asyncio(loop_scope="module")]

START_S = 240


class Process:
    """One server."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port

    async def ready(self) -> None:
        async with asyncio.timeout(START_S), httpx.AsyncClient() as http:
            while True:
                assert self.process.returncode is None, "the server ended"
                try:
                    if (await http.get(f"http://127.0.0.1:{self.port}/ready")).status_code == 200:
                        return
                except httpx.HTTPError:
                    pass
                await asyncio.sleep(0.2)


async def start(*options: str, **environment: str) -> Process:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "voice_app", "serve", "--port", str(port), *options]
    variables = {**os.environ, "VOICE_APP_LOG_FORMAT": "json", **environment}
    process = await asyncio.create_subprocess_exec(
        *command, env=variables, stderr=asyncio.subprocess.PIPE, limit=1 << 20
    )
    return Process(process, port)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Process, Process]]:
    redis = EmbeddedRedis(tmp_path_factory.mktemp("redis"))
    url = await redis.start()
    pair = await start("--redis", url), await start("--redis", url, "--layout", "single")
    for one in pair:
        await one.ready()
    yield pair
    for one in pair:
        if one.process.returncode is None:
            one.process.terminate()
            await one.process.communicate()
    await redis.stop()


async def test_other_machines_are_let_in_only_with_keys():
    server = await start("--host", "0.0.0.0")
    _, log = await asyncio.wait_for(server.process.communicate(), START_S)
    assert server.process.returncode == 2
    assert b"--keys FILE, or --open" in log


async def test_secrets_are_never_logged(tmp_path: Path):
    """Neither keys, however they are shown, nor client secrets, nor resume tokens; at the finest level."""
    key = "voice-app-test-key-123"
    (tmp_path / "keys.toml").write_text(f'[keys.alice]\nsha256 = "{auth.hashed(key)}"\n')
    options = ("--keys", str(tmp_path / "keys.toml"), "--data", str(tmp_path / "data"), "--layout", "single")
    server = await start(*options, VOICE_APP_LOG="debug")
    await server.ready()
    shown = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}/v1/realtime") as http:
        secret = (await http.post("/client_secrets", headers=shown)).json()["value"]
        await http.post("/client_secrets", headers={"api-key": "wrong-key-456"})
    async with wire_client(server.port, "?extensions=resume", additional_headers=shown) as client:
        token = client.events[0]["session"]["extensions"]["resume"]["token"]
        await client.say("Hello")
        await client.send("response.create")
        await client.until("response.done")
        await client.send("session.update", session={"type": "realtime", "api_key": key})
        await client.until("error")
    async with wire_client(server.port, f"?resume={token}", check=False, additional_headers={"api-key": key}):
        pass
    browser = [Subprotocol("realtime"), Subprotocol(f"openai-insecure-api-key.{secret}")]
    async with wire_client(server.port, subprotocols=browser):
        pass
    with pytest.raises(InvalidStatus):
        await connect(
            f"ws://127.0.0.1:{server.port}/v1/realtime?resume=sess_1.stolen", subprotocols=browser[:1]
        )
    server.process.terminate()
    _, log = await asyncio.wait_for(server.process.communicate(), 60)
    assert b"talk begins" in log
    for secret_text in (key, secret, token.partition(".")[2], "wrong-key-456", "stolen"):
        assert secret_text.encode() not in log


async def test_a_talk_moves_from_process_to_process(servers: tuple[Process, Process]):
    first, second = servers
    async with wire_client(first.port, "?extensions=resume") as client:
        token = client.events[0]["session"]["extensions"]["resume"]["token"]
        await client.update(output_modalities=["text"])
        await client.say("My name is Robert.")
        await client.send("response.create")
        await client.until("response.done")
    async with wire_client(second.port, f"?resume={token}", check=False) as client:
        await client.until("conversation.item.done")
        await client.until("conversation.item.done")
        await client.say("What is my name?")
        await client.send("response.create")
        done = await client.until("response.done")
    assert "Robert" in done["response"]["output"][0]["content"][0]["text"]


async def test_sigterm_lets_the_turn_end_and_leaves_nothing_behind(servers: tuple[Process, Process]):
    server = servers[0]
    children = psutil.Process(server.process.pid).children(recursive=True)
    assert len(children) >= 2, "workers"
    async with wire_client(server.port) as client:
        await client.say("Tell me why the sky is blue.")
        await client.send("response.create")
        await client.until("response.created")
        server.process.send_signal(signal.SIGTERM)
        done = await client.until("response.done")
        assert done["response"]["status"] == "completed"
        with pytest.raises(ConnectionClosed) as closed:
            await client.until("never")
    assert closed.value.rcvd
    assert closed.value.rcvd.code == 1012
    _, log = await asyncio.wait_for(server.process.communicate(), 60)
    assert server.process.returncode == 0
    assert not psutil.wait_procs(children, timeout=5)[1], "no worker is left"
    assert b'"session": "sess_' in log, "lines know their session"
    assert b"Traceback" not in log
