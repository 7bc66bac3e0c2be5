"""Talks kept in Redis and taken up again, by the same server or another."""

import asyncio
import json

import pytest
from fake_pipeline import FakePipeline, answer, spoken
from running_server import kept_server, until
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from wire_client import wire_client

from voice_app import messages as m
from voice_app.server.store.embedded import EmbeddedRedis

WORDS = " ".join(["one two three four five six seven eight nine ten eleven twelve"] * 10)
"""So many that the end is never heard, however late the connection is cut."""


async def test_a_talk_moves_to_another_server(redis: EmbeddedRedis):
    pipeline = FakePipeline(lambda request: spoken(WORDS, heard=None))
    async with (
        kept_server(redis.url, pipeline) as (first, left),
        kept_server(redis.url, pipeline) as (second, hub),
    ):

        async def is_gone() -> bool:
            return not left.drivers

        async with wire_client(first, "?extensions=resume") as client:
            token = client.events[0]["session"]["extensions"]["resume"]["token"]
            await client.update(instructions="Be brief.")
            await client.say("Hello")
            await client.send("response.create")
            created = await client.until("response.created")
            await client.until("response.output_audio.delta")
            await asyncio.sleep(0.75)
            client.socket.transport.abort()
        await until(is_gone)
        assert left.store
        await left.store.written()
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
            # Before the next write would tell it: nothing changes in the talk but what keeps it, each 20 s.
            assert (await old.until("error", 15))["error"]["code"] == "session_taken_over"
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
        error = json.loads(await client.recv())["error"]
    # As OpenAI's server says it; clients tell by the type what is no fault of the server's.
    assert (error["type"], error["code"]) == ("invalid_request_error", "session_expired")


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
