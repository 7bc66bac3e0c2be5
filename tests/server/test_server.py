"""The server over real sockets: letting in, cutting off, slow and vanished clients, extensions, draining."""

import asyncio
import base64
import io
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fake_pipeline import RATE, FakePipeline, spoken, tone, written
from PIL import Image
from running_server import server
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from wire_client import LOUD, WireClient, wire_client

from voice_app import messages as m
from voice_app.errors import ConfigError
from voice_app.server import auth, connection
from voice_app.server.admission import Admission, Full
from voice_app.server.hub import Hub, make_hub
from voice_app.server.settings import ServerSettings, TalkSettings
from voice_app.server.store.embedded import EmbeddedRedis
from voice_app.server.store.redis_store import RedisStore

MANUAL = {"input": {"turn_detection": None}}
FAST = TalkSettings(lead_s=1e9)


def answer(request: m.TurnRequest):
    heard = "hello" if isinstance(request.messages[-1].parts[-1], m.AudioPart) else None
    reply = spoken if request.speech else written
    return reply("It is fine today.", heard=heard)


def endless(request: m.TurnRequest):
    """A minute of voice."""
    chunks = [
        m.AudioChunk(tone(0.1), RATE, int(i * 0.1 * RATE), (m.TextMark(4, 999_999),)) for i in range(600)
    ]
    return [m.TextDelta("Well", (1,)), *chunks, m.TextDone("stop"), m.AudioDone(0), m.TurnDone({})]


# ------------------------------------------------------------------------------------------ plain questions


async def test_operations_pages():
    pipeline = FakePipeline(answer)
    async with server(pipeline) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        assert (await http.get("/health")).json() == {"status": "alive"}
        ready = await http.get("/ready")
        assert ready.status_code == 200
        assert [row["stage"] for row in ready.json()["stages"]] == [stage.value for stage in m.Stage]
        pipeline.ready = False
        assert (await http.get("/ready")).status_code == 503
        assert (await http.get("/v1/models")).json()["data"][0]["id"] == "local"
        assert "camera" in (await http.get("/v1/realtime/capabilities")).json()["extensions"]
        async with wire_client(port) as client:
            await client.say("Hello")
            await client.send("response.create")
            await client.until("response.done")
            text = (await http.get("/metrics")).text
        assert "voice_app_talks 1.0" in text
        assert 'voice_app_responses_total{status="completed"} 1.0' in text
        assert "voice_app_first_audio_seconds_count 1.0" in text


# ------------------------------------------------------------------------------------ clients that misbehave


async def test_a_client_that_does_not_read_is_interrupted_all_the_same():
    """Cancelling does not wait behind a socket that is full."""
    pipeline = FakePipeline(endless)
    async with server(pipeline, ServerSettings(talk=FAST)) as port:
        small = socket.create_connection(("127.0.0.1", port))
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        url = f"ws://127.0.0.1:{port}/v1/realtime"
        async with connect(url, sock=small, max_queue=1, compression=None) as client:
            await client.send(json.dumps({"type": "response.create"}))
            taken, before = 0, -1
            while taken == 0 or taken != before:  # Until it is held back: nobody reads.
                await asyncio.sleep(0.3)
                before, taken = taken, pipeline.turns[0].taken if pipeline.turns else 0
            assert taken < 300, "a minute of voice is not made for nobody"
            assert not pipeline.cancelled
            await client.send(json.dumps({"type": "response.cancel"}))
            await asyncio.wait_for(pipeline.turns[0].cancelled.wait(), 0.5)
            small.shutdown(socket.SHUT_RDWR)


async def test_a_client_that_leaves_takes_its_work_along():
    pipeline = FakePipeline(endless)
    async with server(pipeline) as port:
        async with wire_client(port) as client:
            await client.send("response.create")
            await client.until("response.output_audio.delta")
        await asyncio.wait_for(pipeline.turns[0].cancelled.wait(), 5)
        assert pipeline.turns[0].closed


async def test_a_client_that_is_killed_does_no_harm():
    pipeline = FakePipeline(endless)
    async with server(pipeline) as port:
        killed = await connect(f"ws://127.0.0.1:{port}/v1/realtime", compression=None)
        await killed.send(json.dumps({"type": "response.create"}))
        await asyncio.sleep(0.1)
        killed.transport.abort()
        await asyncio.wait_for(pipeline.turns[0].cancelled.wait(), 5)
        async with wire_client(port) as client:
            await client.say("Still there?")
            await client.until("conversation.item.done")


async def test_too_many_events_are_refused_and_the_talk_goes_on():
    keys = auth.Keys({auth.hashed("k"): auth.Key("alice", auth.Limits(events_per_second=20))})
    pipeline = FakePipeline(answer)
    headers = {"Authorization": "Bearer k"}
    async with (
        server(pipeline, hub=make_hub(pipeline, ServerSettings(), keys)) as port,
        wire_client(port, additional_headers=headers) as client,
    ):
        for _ in range(200):
            await client.send("input_audio_buffer.clear")
        error = await client.until("error")
        assert error["error"]["code"] == "rate_limit_exceeded"
        await asyncio.sleep(0.5)
        await client.say("Sorry")
        await client.until("conversation.item.done")
    assert client.kinds.count("input_audio_buffer.cleared") < 100


async def too_much(client: WireClient) -> None:
    """A message beyond the bound, and what comes of it."""
    await client.socket.send("x" * (17 << 20))
    await client.until("never")


async def test_a_message_that_is_too_long_closes_with_1009():
    pipeline = FakePipeline(answer)
    async with server(pipeline) as port, wire_client(port) as client:
        with pytest.raises(ConnectionClosed) as closed:
            await too_much(client)
    assert closed.value.rcvd
    assert closed.value.rcvd.code == 1009


# ------------------------------------------------------------------------------------------------ letting in


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
        assert json.loads(await second.recv())["error"]["code"] == "server_full"
        with pytest.raises(ConnectionClosed) as closed:
            await second.recv()
    assert closed.value.rcvd
    assert closed.value.rcvd.code == 1013
    assert "1 talks already" in closed.value.rcvd.reason


async def test_a_full_server_lets_the_next_in_when_one_leaves():
    pipeline = FakePipeline(answer)
    settings = ServerSettings(max_talks=1, queue_size=1, queue_wait_s=5)
    async with server(pipeline, settings) as port:
        url = f"ws://127.0.0.1:{port}/v1/realtime"
        async with connect(url) as first, connect(url) as second:
            await first.recv()
            async with connect(url) as third:
                assert json.loads(await third.recv())["error"]["code"] == "server_full"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(second.recv(), 0.2)
            await first.close()
            assert json.loads(await asyncio.wait_for(second.recv(), 2))["type"] == "session.created"


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


# ---------------------------------------------------------------------------------------------- extensions


def jpeg(shade: int, size: tuple[int, int] = (640, 480)) -> str:
    """A picture with a gradient that depends on `shade`, base64."""
    rows = np.linspace(0, 255, size[0])[None, :] * np.ones((size[1], 1))
    field = np.roll(rows, shade * size[0] // 8, axis=1).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(field).convert("RGB").save(out, "JPEG")
    return base64.b64encode(out.getvalue()).decode()


async def test_camera_frames_belong_to_the_turn_they_were_seen_in():
    pipeline = FakePipeline(answer)
    async with (
        server(pipeline, ServerSettings(talk=FAST)) as port,
        wire_client(port, "?extensions=camera") as client,
    ):
        shown = client.events[0]["session"]["extensions"]["camera"]
        assert shown["frames_kept"] == 4
        await client.update(audio=MANUAL)
        for shade in (0, 0, 1, 1, 2, 3, 4):
            await client.send("input_image_buffer.append", image=jpeg(shade))
        await client.append(LOUD * 5)
        await client.send("input_audio_buffer.commit")
        item = (await client.until("conversation.item.done"))["item"]
        assert [part["type"] for part in item["content"]] == ["input_image"] * 4 + ["input_audio"]
        assert item["content"][0]["image_url"].endswith(jpeg(1))
        assert "frame" not in item["content"][0]
        await client.append(LOUD * 5)
        await client.send("input_audio_buffer.commit")
        item = (await client.until("conversation.item.done"))["item"]
        assert [part["type"] for part in item["content"]] == ["input_audio"]
        await client.send("response.create")
        await client.until("response.done")
    pictures = [
        p for msg in pipeline.turns[-1].request.messages for p in msg.parts if isinstance(p, m.ImagePart)
    ]
    assert [picture.data for picture in pictures] == [base64.b64decode(jpeg(n)) for n in (1, 2, 3, 4)]


async def test_frames_with_a_name_are_named_and_not_sent_back():
    async with (
        server(FakePipeline(answer), ServerSettings(talk=FAST)) as port,
        wire_client(port, "?extensions=camera") as client,
    ):
        await client.update(audio=MANUAL)
        for name, shade in (("a", 0), ("b", 0), ("c", 1), ("d", 2), ("e", 3), ("f", 4)):
            await client.send("input_image_buffer.append", image=jpeg(shade), event_id=name)
        await client.append(LOUD * 5)
        await client.send("input_audio_buffer.commit")
        item = (await client.until("conversation.item.done"))["item"]
        seen = item["content"][:-1]
        assert [part["frame"] for part in seen] == ["c", "d", "e", "f"], "b is like a, a is too old"
        assert {part["image_url"] for part in seen} == {"data:image/jpeg;base64,"}
        await client.send("conversation.item.retrieve", item_id=item["id"])
        whole = (await client.until("conversation.item.retrieved"))["item"]["content"]
        assert [part["image_url"] for part in whole[:-1]] == [
            f"data:image/jpeg;base64,{jpeg(shade)}" for shade in (1, 2, 3, 4)
        ]


async def test_the_camera_is_off_unless_asked_and_checks_its_frames():
    async with server(FakePipeline(answer)) as port:
        async with wire_client(port) as client:
            await client.send("input_image_buffer.append", image=jpeg(1))
            assert "extension" in (await client.until("error"))["error"]["message"]
        async with wire_client(port, "?extensions=camera") as client:
            for bad in ("", "AAAA", base64.b64encode(b"GIF89a").decode(), jpeg(1)[:200]):
                await client.send("input_image_buffer.append", image=bad)
                assert (await client.until("error"))["error"]["code"] == "invalid_value"


async def test_audio_as_binary_frames():
    pipeline = FakePipeline(answer)
    async with (
        server(pipeline, ServerSettings(talk=FAST)) as port,
        wire_client(port, "?extensions=binary_audio") as client,
    ):
        await client.update(audio=MANUAL)
        await client.socket.send(LOUD * 10)
        await client.send("input_audio_buffer.commit")
        await client.send("response.create")
        done = await client.until("response.done")
    heard = pipeline.turns[0].request.messages[-1].parts[0]
    assert isinstance(heard, m.AudioPart)
    assert len(heard.samples) == pytest.approx(16_000, abs=50)
    assert "response.output_audio.delta" not in client.kinds
    item_id = done["response"]["output"][0]["id"].encode()
    assert all(frame[1 : 1 + frame[0]] == item_id for frame in client.binary)
    audio = b"".join(frame[1 + frame[0] :] for frame in client.binary)
    assert len(audio) / 48_000 == pytest.approx(4 * 0.3, abs=0.01)


async def test_words_say_when_they_are_spoken():
    async with (
        server(FakePipeline(answer), ServerSettings(talk=FAST)) as port,
        wire_client(port, "?extensions=word_times") as client,
    ):
        await client.say("Hello")
        await client.send("response.create")
        await client.until("response.done")
    deltas = [e for e in client.events if e["type"] == "response.output_audio_transcript.delta"]
    assert [(e["delta"], e["start_time"]) for e in deltas] == [
        ("It", pytest.approx(0.0)),
        (" is", pytest.approx(0.3)),
        (" fine", pytest.approx(0.6)),
        (" today.", pytest.approx(0.9)),
    ]


async def test_a_transcription_session_hears_and_answers_nothing():
    pipeline = FakePipeline(answer)
    async with server(pipeline) as port, wire_client(port, "?intent=transcription") as client:
        session = client.events[0]["session"]
        assert session["type"] == "transcription"
        assert "output" not in session["audio"]
        await client.send(
            "session.update",
            session={"type": "transcription", "audio": {"input": {"turn_detection": None}}},
        )
        await client.append(LOUD * 10)
        await client.send("input_audio_buffer.commit")
        heard = await client.until("conversation.item.input_audio_transcription.completed")
        assert heard["transcript"] == "hello"
        await client.send("response.create")
        assert (await client.until("error"))["error"]["code"] == "invalid_value"
        await client.send("session.update", session={"type": "transcription", "instructions": "x"})
        assert (await client.until("error"))["error"]["code"] == "unknown_parameter"
    assert pipeline.cancelled == [pipeline.turns[0].request.turn], "ended once the words were there"


# ------------------------------------------------------------------------------- kept and taken up again


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[EmbeddedRedis]:
    embedded = EmbeddedRedis(tmp_path / "data")
    await embedded.start()
    yield embedded
    await embedded.stop()


@asynccontextmanager
async def kept_server(
    url: str, pipeline: FakePipeline, keys: auth.Keys | None = None, settings: ServerSettings | None = None
) -> AsyncIterator[tuple[int, Hub]]:
    """A server with a store."""
    store = RedisStore(url, ttl_s=60)
    await store.start()
    hub = make_hub(pipeline, settings or ServerSettings(), keys, store)
    try:
        async with server(pipeline, hub=hub) as port:
            yield port, hub
    finally:
        await store.stop()


WORDS = "one two three four five six seven eight nine ten eleven twelve"


async def test_a_talk_moves_to_another_server(redis: EmbeddedRedis):
    pipeline = FakePipeline(lambda request: spoken(WORDS, heard=None))
    async with (
        kept_server(redis.url, pipeline) as (first, _),
        kept_server(redis.url, pipeline) as (second, hub),
    ):
        async with wire_client(first, "?extensions=resume") as client:
            token = client.events[0]["session"]["extensions"]["resume"]["token"]
            await client.update(instructions="Be brief.")
            await client.say("Hello")
            await client.send("response.create")
            created = await client.until("response.created")
            await client.until("response.output_audio.delta")
            await asyncio.sleep(0.75)
            client.socket.transport.abort()
        await asyncio.sleep(0.3)
        last = created["event_id"]
        async with wire_client(second, f"?resume={token}&last_event_id={last}", check=False) as client:
            session = client.events[0]["session"]
            assert session["extensions"]["resume"]["resumed"]
            assert session["instructions"] == "Be brief."
            missed = await client.until("response.done")
            assert missed["response"]["status"] == "cancelled"
            heard = missed["response"]["output"][0]["content"][0]["transcript"]
            assert heard
            assert WORDS.startswith(heard)
            assert heard != WORDS
            await client.say("Go on")
            await client.send("response.create")
            await client.until("response.output_audio.delta")
        said = [m.TextPart("Hello")], [m.TextPart(heard)], [m.TextPart("Go on")]
        assert [list(msg.parts) for msg in pipeline.turns[-1].request.messages[1:]] == list(said)
        assert not hub.drivers or hub.admission.talks <= 1
        # Without the last event's id the items are told again.
        async with wire_client(first, f"?resume={token}", check=False) as client:
            added = [await client.until("conversation.item.added") for _ in range(3)]
            assert [e["item"]["role"] for e in added] == ["user", "assistant", "user"]


async def test_the_older_of_two_clients_is_told(redis: EmbeddedRedis):
    pipeline = FakePipeline(answer)
    async with (
        kept_server(redis.url, pipeline) as (first, _),
        kept_server(redis.url, pipeline) as (second, _),
        wire_client(first, "?extensions=resume") as old,
    ):
        token = old.events[0]["session"]["extensions"]["resume"]["token"]
        async with wire_client(second, f"?resume={token}", check=False):
            assert (await old.until("error", 3))["error"]["code"] == "session_taken_over"
            with pytest.raises(ConnectionClosed) as closed:
                await old.until("never")
    assert closed.value.rcvd
    assert closed.value.rcvd.code == 4001


async def test_an_unknown_token_is_refused(redis: EmbeddedRedis):
    pipeline = FakePipeline(answer)
    async with (
        kept_server(redis.url, pipeline) as (port, _),
        connect(f"ws://127.0.0.1:{port}/v1/realtime?resume=sess_1.x") as client,
    ):
        assert json.loads(await client.recv())["error"]["code"] == "session_expired"


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
    async with kept_server(redis.url, pipeline, keys) as (port, _):
        async with wire_client(port, additional_headers=headers) as client:
            await client.update(audio=MANUAL)
            await client.append(LOUD * 400)
            await asyncio.sleep(0.3)
            await client.say("Still there?")
            await client.until("conversation.item.done")
        async with wire_client(port, additional_headers=headers) as client:
            await client.update(audio=MANUAL)
            await client.append(LOUD * 250)
            assert (await client.until("error", 3))["error"]["code"] == "insufficient_quota"


async def test_while_redis_is_away_talks_go_on_and_new_ones_are_told(redis: EmbeddedRedis):
    pipeline = FakePipeline(answer)
    async with kept_server(redis.url, pipeline) as (port, _), wire_client(port) as client:
        await redis.stop()
        await client.say("Hello")
        await client.send("response.create")
        assert (await client.until("response.done"))["response"]["status"] == "completed"
        async with connect(f"ws://127.0.0.1:{port}/v1/realtime") as socket:
            assert json.loads(await socket.recv())["error"]["code"] == "store_error"
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
        await redis.start()
    assert closed.value.rcvd
    assert closed.value.rcvd.code == 1013


# ------------------------------------------------------------------------------------------------ the end


async def test_draining_lets_turns_end_and_nobody_in():
    pipeline = FakePipeline(lambda request: spoken("one two three four five", heard=None))
    hub = make_hub(pipeline, ServerSettings())
    async with server(pipeline, hub=hub) as port, wire_client(port) as idle, wire_client(port) as busy:
        await busy.send("response.create")
        await busy.until("response.output_audio.delta")
        draining = asyncio.create_task(hub.drain(10))
        with pytest.raises(ConnectionClosed) as closed:
            await idle.until("never", 1)
        assert closed.value.rcvd
        assert closed.value.rcvd.code == 1012
        async with connect(f"ws://127.0.0.1:{port}/v1/realtime") as late:
            assert "shutting down" in json.loads(await late.recv())["error"]["message"]
        assert (await busy.until("response.done"))["response"]["status"] == "completed"
        with pytest.raises(ConnectionClosed):
            await busy.until("never", 5)
        await draining
    assert hub.admission.talks == 0
