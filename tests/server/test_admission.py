"""Who is let in over a real socket: keys and what they allow, origins, a full server, client secrets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_pipeline import FakePipeline, answer
from running_server import kept_server, server, until
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from wire_client import LOUD, MANUAL, wire_client

from voice_app.errors import ConfigError
from voice_app.server import admission as admission_module
from voice_app.server import auth, connection
from voice_app.server.admission import Admission, Full
from voice_app.server.hub import Hub, make_hub
from voice_app.server.settings import ServerSettings
from voice_app.server.store.embedded import EmbeddedRedis

KEYS = auth.Keys({auth.hashed("secret"): auth.Key("alice", auth.Limits(sessions=1))})


@asynccontextmanager
async def guarded(settings: ServerSettings | None = None) -> AsyncIterator[int]:
    pipeline = FakePipeline(answer)
    async with server(pipeline, hub=make_hub(pipeline, settings or ServerSettings(), KEYS)) as port:
        yield port


@pytest.mark.parametrize(
    "options",
    [
        {"additional_headers": {"Authorization": "Bearer secret"}},
        {"additional_headers": {"api-key": "secret"}},
        {"subprotocols": ["realtime", "openai-insecure-api-key.secret", "other"]},
    ],
)
async def test_the_three_ways_to_show_a_key(options: dict[str, Any]):
    async with guarded() as port, wire_client(port, **options) as client:
        assert client.kinds == ["session.created"]
        assert client.socket.subprotocol == ("realtime" if "subprotocols" in options else None)


@pytest.mark.parametrize(
    ("options", "status", "code"),
    [
        ({}, 401, "missing_api_key"),
        ({"additional_headers": {"Authorization": "Bearer wrong"}}, 401, "invalid_api_key"),
        ({"additional_headers": {"Authorization": "Bearer ek_x"}}, 401, "invalid_api_key"),
        ({"origin": "http://evil.example"}, 403, "origin_not_allowed"),
    ],
)
async def test_who_is_not_let_in(options: dict[str, Any], status: int, code: str):
    async with guarded() as port:
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://127.0.0.1:{port}/v1/realtime", **options)
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body)["error"]["code"] == code


async def test_a_key_has_so_many_talks():
    headers = {"Authorization": "Bearer secret"}
    async with (
        guarded() as port,
        wire_client(port, additional_headers=headers),
        connect(f"ws://127.0.0.1:{port}/v1/realtime", additional_headers=headers) as second,
    ):
        error = json.loads(await second.recv())["error"]
        assert (error["type"], error["code"]) == ("server_error", "server_full")
        with pytest.raises(ConnectionClosed) as closed:
            await second.recv()
    assert closed.value.rcvd
    assert closed.value.rcvd.code == 1013
    assert "its 1 talk already" in closed.value.rcvd.reason


async def test_a_full_server_lets_the_next_in_when_one_leaves():
    pipeline = FakePipeline(answer)
    settings = ServerSettings(max_talks=1, queue_size=1, queue_wait_s=60)
    async with server(pipeline, settings) as port:
        url = f"ws://127.0.0.1:{port}/v1/realtime"
        async with connect(url) as first, connect(url) as second:
            await first.recv()
            async with connect(url) as third:
                assert json.loads(await third.recv())["error"]["code"] == "server_full"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(second.recv(), 0.2)
            await first.close()
            assert json.loads(await asyncio.wait_for(second.recv(), 30))["type"] == "session.created"


async def test_whoever_closes_a_talk_may_open_the_next_at_once(monkeypatch: pytest.MonkeyPatch):
    """The end of the old talk may come after the beginning of the new one, whose wait ends with it."""
    monkeypatch.setattr(admission_module, "KEY_GRACE_S", 60.0)
    admission = Admission(9, queue=1, wait_s=0.05)
    await admission.enter("a", 1)
    following = asyncio.create_task(admission.enter("a", 1))
    await asyncio.sleep(0)
    admission.leave("a")
    await asyncio.wait_for(following, 30)
    await admission.enter("b", 1)
    monkeypatch.setattr(admission_module, "KEY_GRACE_S", 0.01)
    with pytest.raises(Full, match="its 1 talk already"):
        await admission.enter("a", 1)
    assert admission.talks == 2


async def test_the_queue_forgets_who_gave_up():
    admission = Admission(1, queue=1, wait_s=0.05)
    await admission.enter("a", 9)
    with pytest.raises(Full, match="none ended within"):
        await admission.enter("b", 9)
    waiting = asyncio.create_task(admission.enter("c", 9))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (admission.talks, admission.waiting) == (1, 0)
    admission.leave("a")
    assert admission.talks == 0


@pytest.mark.parametrize(
    ("host", "has_keys", "open_to_all", "fine"),
    [
        ("127.0.0.1", False, False, True),
        ("localhost", False, False, True),
        ("::1", False, False, True),
        ("0.0.0.0", False, False, False),
        ("192.168.1.5", False, False, False),
        ("0.0.0.0", True, False, True),
        ("0.0.0.0", False, True, True),
    ],
)
def test_the_network_needs_keys(host: str, has_keys: bool, open_to_all: bool, fine: bool):
    if fine:
        auth.check_address(host, has_keys=has_keys, open_to_all=open_to_all)
    else:
        with pytest.raises(ConfigError, match="--keys"):
            auth.check_address(host, has_keys=has_keys, open_to_all=open_to_all)


@pytest.mark.parametrize(
    ("origin", "host", "allowed", "fine"),
    [
        (None, "a.example", [], True),
        ("https://a.example", "a.example", [], True),
        ("http://localhost:3000", "127.0.0.1:8000", [], True),
        ("https://evil.example", "127.0.0.1:8000", [], False),
        ("null", "127.0.0.1:8000", [], False),
        ("https://b.example", "a.example", ["https://b.example"], True),
        ("https://a.example", "a.example", ["https://b.example"], False),
        ("https://x.example", "a.example", ["*"], True),
    ],
)
def test_origins(origin: str | None, host: str, allowed: list[str], fine: bool):
    assert auth.origin_allowed(origin, host, allowed) is fine


def test_a_key_file(tmp_path: Path):
    path = tmp_path / "keys.toml"
    path.write_text(f'[keys.bob]\nsha256 = "{auth.hashed("b")}"\nlimits = {{ sessions = 3 }}\n')
    keys = auth.load_keys(path)
    assert keys.find("b") == auth.Key("bob", auth.Limits(sessions=3))
    assert keys.find("c") is None
    for text in ("", "[keys.x]\n", '[keys.x]\nsha256 = "1"\nrate = 5\n', "["):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"keys\.toml"):
            auth.load_keys(path)


# ----------------------------------------------------------------------- client secrets and keys in the store


async def test_client_secrets_open_the_session_they_were_made_for(redis: EmbeddedRedis):
    pipeline = FakePipeline(answer)
    async with kept_server(redis.url, pipeline, KEYS) as (port, _):
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/v1/realtime") as http:
            body = {
                "session": {"type": "realtime", "instructions": "Sing."},
                "expires_after": {"seconds": 60},
            }
            refused = await http.post("/client_secrets", json=body)
            assert refused.status_code == 401
            headers = {"Authorization": "Bearer secret"}
            wrong = await http.post("/client_secrets", json={"session": {"type": "x"}}, headers=headers)
            assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "session.type")
            made = (await http.post("/client_secrets", json=body, headers=headers)).json()
        assert made["session"]["instructions"] == "Sing."
        subprotocols = ["realtime", f"openai-insecure-api-key.{made['value']}"]
        async with wire_client(port, subprotocols=subprotocols) as client:
            assert client.events[0]["session"]["instructions"] == "Sing."


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"x", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b" " * 2000, "larger than 1000 bytes"),
    ],
    ids=["no JSON", "no text", "too deep", "no object", "too large"],
)
async def test_a_body_that_asks_for_no_client_secret(body: bytes, message: str):
    settings = ServerSettings(max_message_bytes=1000 if body.isspace() else 1 << 20)
    async with server(FakePipeline(answer), settings) as port, httpx.AsyncClient() as http:
        refused = await http.post(f"http://127.0.0.1:{port}/v1/realtime/client_secrets", content=body)
    assert refused.status_code == 400
    assert message in refused.json()["error"]["message"]


async def test_keys_in_the_store(redis: EmbeddedRedis):
    pipeline = FakePipeline(answer)
    async with kept_server(redis.url, pipeline, auth.Keys({}, in_store=True)) as (port, hub):
        assert hub.store
        kept = b'{"name":"carol","limits":{"sessions":2}}'
        await hub.store.put(f"key:{auth.hashed('c')}", kept, 60)
        async with wire_client(port, additional_headers={"api-key": "c"}) as client:
            assert client.kinds == ["session.created"]
        with pytest.raises(InvalidStatus):
            await connect(f"ws://127.0.0.1:{port}/v1/realtime", additional_headers={"api-key": "d"})


async def test_a_key_has_so_many_audio_minutes_a_day(redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch):
    """Counted over all its talks."""
    monkeypatch.setattr(connection, "ACCOUNT_EVERY_S", 0.05)
    keys = auth.Keys({auth.hashed("k"): auth.Key("dave", auth.Limits(audio_minutes=1))})
    pipeline = FakePipeline(answer)
    headers = {"api-key": "k"}
    async with kept_server(redis.url, pipeline, keys) as (port, hub):
        async with wire_client(port, additional_headers=headers) as client:
            await client.update(audio=MANUAL)
            await client.append(LOUD * 400)
            await until(lambda: counted(hub, 40_000))
            await client.say("Still there?")
            await client.until("conversation.item.done")
        async with wire_client(port, additional_headers=headers) as client:
            await client.update(audio=MANUAL)
            await client.append(LOUD * 250)
            assert (await client.until("error"))["error"]["code"] == "insufficient_quota"


async def counted(hub: Hub, ms: int) -> bool:
    """Whether the store has so much sound of dave's."""
    assert hub.store
    return await hub.store.add(f"audio-ms:dave:{datetime.now(UTC):%F}", 0, 60) >= ms


async def test_without_keys_only_the_servers_own_bound_holds():
    most = 2 * auth.Limits().sessions
    admission = Admission(most, queue=0, wait_s=0)
    for _ in range(most):
        await admission.enter(auth.OPEN.name, auth.OPEN.limits.sessions)
    with pytest.raises(Full, match="the server is full"):
        await admission.enter(auth.OPEN.name, auth.OPEN.limits.sessions)
