"""The server over real sockets: operations pages, clients that misbehave or vanish, draining."""

import asyncio
import json
import socket

import httpx
import pytest
from fake_pipeline import RATE, FakePipeline, answer, spoken, tone
from running_server import FAST, server
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from wire_client import WireClient, wire_client

from voice_app import messages as m
from voice_app.server import auth
from voice_app.server.hub import make_hub
from voice_app.server.settings import ServerSettings, TalkSettings


def endless(request: m.TurnRequest):
    """A minute of voice."""
    chunks = [
        m.AudioChunk(tone(0.1), RATE, int(i * 0.1 * RATE), (m.TextMark(4, 999_999),)) for i in range(600)
    ]
    return [m.TextDelta("Well", (1,)), *chunks, m.TextDone("stop"), m.AudioDone(0), m.TurnDone({})]


async def test_operations_pages():
    pipeline = FakePipeline(answer)
    settings = ServerSettings(talk=TalkSettings(languages=("en",), voices=("joe", "default")))
    async with (
        server(pipeline, settings) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
    ):
        assert (await http.get("/health")).json() == {"status": "alive"}
        ready = await http.get("/ready")
        assert ready.status_code == 200
        assert [row["stage"] for row in ready.json()["stages"]] == [stage.value for stage in m.Stage]
        pipeline.ready = False
        assert (await http.get("/ready")).status_code == 503
        assert (await http.get("/v1/models")).json()["data"][0]["id"] == "local"
        capabilities = (await http.get("/v1/realtime/capabilities")).json()
        assert "camera" in capabilities["extensions"]
        assert (capabilities["languages"], capabilities["voices"]) == (["en"], ["joe", "default"])
        async with wire_client(port) as client:
            await client.say("Hello")
            await client.send("response.create")
            await client.until("response.done")
            text = (await http.get("/metrics")).text
        assert "voice_app_talks 1.0" in text
        assert 'voice_app_responses_total{status="completed"} 1.0' in text
        assert "voice_app_first_audio_seconds_count 1.0" in text


@pytest.mark.parametrize(
    ("shown", "told"), [({}, False), ({"api-key": "wrong"}, False), ({"Authorization": "Bearer k"}, True)]
)
async def test_what_ails_a_worker_is_for_who_has_a_key(shown: dict[str, str], told: bool):
    """It may name hosts, ports and files."""
    pipeline = FakePipeline(answer)
    pipeline.ready, pipeline.trouble = False, "worker text: 10.0.0.7:4711 does not answer"
    keys = auth.Keys({auth.hashed("k"): auth.Key("alice")})
    async with (
        server(pipeline, hub=make_hub(pipeline, ServerSettings(), keys)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
    ):
        ready = await http.get("/ready", headers=shown)
    assert ready.status_code == 503
    assert ready.json()["stages"][0]["state"] == "starting"
    assert ("10.0.0.7" in ready.text) is told


async def test_what_ails_a_worker_is_told_where_there_are_no_keys():
    pipeline = FakePipeline(answer)
    pipeline.trouble = "worker text died"
    async with (
        server(pipeline) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
    ):
        assert (await http.get("/ready")).json()["stages"][0]["trouble"] == "worker text died"


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
        await asyncio.wait_for(pipeline.turns[0].cancelled.wait(), 30)
        assert pipeline.turns[0].closed


async def test_a_client_that_is_killed_does_no_harm():
    pipeline = FakePipeline(endless)
    async with server(pipeline) as port:
        killed = await connect(f"ws://127.0.0.1:{port}/v1/realtime", compression=None)
        await killed.send(json.dumps({"type": "response.create"}))
        while json.loads(await killed.recv())["type"] != "response.output_audio.delta":
            pass
        killed.transport.abort()
        await asyncio.wait_for(pipeline.turns[0].cancelled.wait(), 30)
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


# ------------------------------------------------------------------------------------------------ the end


async def test_draining_lets_turns_end_and_nobody_in():
    pipeline = FakePipeline(lambda request: spoken("one two three four five", heard=None))
    hub = make_hub(pipeline, ServerSettings())
    async with server(pipeline, hub=hub) as port, wire_client(port) as idle, wire_client(port) as busy:
        await busy.send("response.create")
        await busy.until("response.output_audio.delta")
        draining = asyncio.create_task(hub.drain(60))
        with pytest.raises(ConnectionClosed) as closed:
            await idle.until("never")
        assert closed.value.rcvd
        assert closed.value.rcvd.code == 1012
        async with connect(f"ws://127.0.0.1:{port}/v1/realtime") as late:
            assert "shutting down" in json.loads(await late.recv())["error"]["message"]
        assert (await busy.until("response.done"))["response"]["status"] == "completed"
        with pytest.raises(ConnectionClosed):
            await busy.until("never")
        await draining
    assert hub.admission.talks == 0
