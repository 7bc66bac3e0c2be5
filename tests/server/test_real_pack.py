"""The stock openai client talks to the local pack: seven stages in workers, real speech, real time."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from openai.types.realtime import RealtimeConversationItemUserMessageParam, RealtimeFunctionToolParam
from real_talk import Caller, client_of, recording, silence, words
from running_server import server

from voice_app.config import PipelineConfig
from voice_app.pipeline.client import PipelineClient
from voice_app.server.hub import make_hub
from voice_app.server.settings import ServerSettings
from voice_app.server.store.embedded import EmbeddedRedis
from voice_app.server.store.redis_store import RedisStore

pytestmark = [pytest.mark.models, pytest.mark.asyncio(loop_scope="module")]

PICTURES = Path(__file__).parents[1] / "data" / "pictures"
TOOL: RealtimeFunctionToolParam = {
    "type": "function",
    "name": "set_light",
    "description": "Switch the light on or off",
    "parameters": {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]},
}

CALCULATOR: RealtimeFunctionToolParam = {
    "type": "function",
    "name": "multiply",
    "description": "What two numbers are times each other",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    """A server with the local pack and a store."""
    redis = EmbeddedRedis(tmp_path_factory.mktemp("redis"))
    store = RedisStore(await redis.start(), ttl_s=60)
    await store.start()
    async with PipelineClient(PipelineConfig()) as pipeline:
        hub = make_hub(pipeline, ServerSettings(), store=store)
        async with server(pipeline, hub=hub) as port:
            yield port
    await store.stop()
    await redis.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def caller(port: int) -> AsyncIterator[Caller]:
    async with client_of(port).realtime.connect(model="local") as talk:
        caller = Caller(talk)
        yield caller
        await caller.hang_up()


async def say(caller: Caller, text: str) -> None:
    await caller.talk.conversation.item.create(
        item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    )


async def test_a_text_turn(caller: Caller):
    await caller.talk.session.update(session={"type": "realtime", "output_modalities": ["text"]})
    await say(caller, "What is twelve times seven?")
    await caller.talk.response.create()
    done = await caller.until("response.done")
    assert done.response.status == "completed"
    assert "84" in words(caller.of("response.output_text.delta"))


async def test_a_spoken_turn(caller: Caller):
    """Its end is heard by the server, and the answer comes as words and as sound."""
    await caller.talk.session.update(
        session={"type": "realtime", "audio": {"input": {"transcription": {"model": "local"}}}}
    )
    await caller.speak(silence(0.3), recording("sum-1-1"), silence(1.5))
    done = await caller.until("response.done")
    assert done.response.status == "completed"
    heard = await caller.until("conversation.item.input_audio_transcription.completed")
    assert "seven" in heard.transcript.lower() or "7" in heard.transcript
    assert "84" in words(caller.of("response.output_audio_transcript.delta"))
    voice = caller.voice()
    assert 0.8 * 24_000 < len(voice) < 8 * 24_000
    assert abs(voice).max() > 3_000


async def test_an_interruption_with_truncate(caller: Caller):
    """What was not heard is neither sent nor remembered, and the next turn is answered."""
    await say(caller, "Tell me why the sky is blue and why the sea is salty.")
    await caller.talk.response.create()
    first = await caller.until("response.output_audio.delta")
    begun = caller.of("response.output_audio.delta")[0][0]
    position = len(caller.events)
    await caller.speak(recording("sum-1-1"), silence(1.2))
    started = await caller.until("input_audio_buffer.speech_started", position)
    stopped_at = caller.of("input_audio_buffer.speech_started")[-1][0]
    late = [
        at
        for at, e in caller.of("response.output_audio.delta")
        if e.item_id == first.item_id and at > stopped_at
    ]
    assert not late, "no sound of the old reply follows"
    cut = await caller.until("conversation.item.truncated", position)
    heard_ms = (stopped_at - begun) * 1000
    assert cut.audio_end_ms <= heard_ms + 150
    await caller.talk.conversation.item.truncate(
        item_id=first.item_id, content_index=0, audio_end_ms=max(0, cut.audio_end_ms - 20)
    )
    answer = await caller.until("response.created", position)
    done = await caller.until("response.done", caller.position(answer))
    assert done.response.status == "completed"
    assert started.item_id != first.item_id
    await caller.talk.conversation.item.retrieve(item_id=first.item_id)
    kept = (await caller.until("conversation.item.retrieved")).item.content[0].transcript
    told = words(
        (at, e) for at, e in caller.of("response.output_audio_transcript.delta") if e.item_id == first.item_id
    )
    assert told.startswith(kept)
    assert len(kept) < len(told) or cut.audio_end_ms > 3_000


async def test_a_noise_that_interrupts_is_not_answered_and_the_answer_goes_on(caller: Caller):
    """The detector takes it for speech, the recogniser finds no words in it."""
    await say(caller, "Tell me why the sky is blue and why the sea is salty.")
    await caller.talk.response.create()
    first = await caller.until("response.output_audio.delta")
    hiss = (6_000 * np.random.default_rng(1).standard_normal(int(0.8 * 24_000))).astype("<i2")
    await caller.speak(silence(0.5), hiss, silence(1.5))
    cut = await caller.until("response.done")
    position = caller.position(cut)
    assert cut.response.status == "cancelled"
    await caller.until("input_audio_buffer.committed", position)
    resumed = await caller.until("response.done", position + 1)
    assert resumed.response.status == "completed"
    told = words(
        (at, e) for at, e in caller.of("response.output_audio_transcript.delta") if e.item_id == first.item_id
    )
    heard, rest = (done.response.output[0].content[0].transcript for done in (cut, resumed))
    assert rest, "there was something left to say"
    assert f"{heard} {rest}".split() == told.split()


async def test_a_tool_call(caller: Caller):
    await caller.talk.session.update(
        session={
            "type": "realtime",
            "output_modalities": ["text"],
            "tools": [TOOL],
            "tool_choice": {"type": "function", "name": "set_light"},
        }
    )
    await say(caller, "Please switch the light on.")
    await caller.talk.response.create()
    call = await caller.until("response.function_call_arguments.done")
    assert call.name == "set_light"
    assert json.loads(call.arguments) == {"on": True}
    await caller.until("response.done")
    position = len(caller.events)
    await caller.talk.conversation.item.create(
        item={"type": "function_call_output", "call_id": call.call_id, "output": "The light is on."}
    )
    await caller.talk.response.create(response={"tool_choice": "none"})
    done = await caller.until("response.done", position)
    assert done.response.status == "completed"
    assert done.response.output[0].type == "message"
    assert done.response.output[0].content[0].text == "The light is on."


async def test_a_spoken_turn_that_must_call_a_tool(caller: Caller):
    """The call is all of the answer; the result is told aloud, though the session still demands a call."""
    await caller.talk.session.update(
        session={"type": "realtime", "tools": [CALCULATOR, TOOL], "tool_choice": "required"}
    )
    await caller.speak(silence(0.3), recording("sum-1-1"), silence(1.5))
    call = await caller.until("response.function_call_arguments.done")
    assert call.name == "multiply"
    assert json.loads(call.arguments) == {"a": 12, "b": 7}
    done = await caller.until("response.done")
    assert [item.type for item in done.response.output] == ["function_call"]
    assert not caller.of("response.output_audio.delta")
    position = len(caller.events)
    await caller.talk.conversation.item.create(
        item={"type": "function_call_output", "call_id": call.call_id, "output": '{"product": 84}'}
    )
    await caller.talk.response.create()
    done = await caller.until("response.done", position)
    assert done.response.output[0].content[0].transcript == "The product is 84."
    assert len(caller.voice()) > 0.8 * 24_000


async def test_a_picture(caller: Caller):
    await caller.talk.session.update(session={"type": "realtime", "output_modalities": ["text"]})
    url = "data:image/jpeg;base64," + base64.b64encode((PICTURES / "coffee.jpg").read_bytes()).decode()
    item: RealtimeConversationItemUserMessageParam = {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_image", "image_url": url},
            {"type": "input_text", "text": "What do you see in front of the camera?"},
        ],
    }
    await caller.talk.conversation.item.create(item=item)
    await caller.talk.response.create()
    await caller.until("response.done")
    said = words(caller.of("response.output_text.delta")).lower()
    assert any(word in said for word in ("cup", "coffee", "espresso", "mug")), said


async def test_cancel(caller: Caller):
    await say(caller, "Tell me a long story about the sea.")
    await caller.talk.response.create()
    await caller.until("response.created")
    await caller.talk.response.cancel()
    done = await caller.until("response.done")
    assert done.response.status in ("cancelled", "completed")
    count = len(caller.of("response.output_audio.delta"))
    await asyncio.sleep(0.5)
    assert len(caller.of("response.output_audio.delta")) == count


async def test_the_conversation_is_there_after_a_reconnect(port: int):
    client = client_of(port)
    async with client.realtime.connect(model="local", extra_query={"extensions": "resume"}) as talk:
        caller = Caller(talk)
        created = await caller.until("session.created")
        token = created.session.extensions["resume"]["token"]
        await caller.talk.session.update(session={"type": "realtime", "output_modalities": ["text"]})
        await say(caller, "My name is Robert.")
        await caller.talk.response.create()
        await caller.until("response.done")
        await caller.hang_up()
    async with client.realtime.connect(model="local", extra_query={"resume": token}) as talk:
        caller = Caller(talk)
        created = await caller.until("session.created")
        assert created.session.output_modalities == ["text"]
        position = len(caller.events)
        await say(caller, "What is my name?")
        await caller.talk.response.create()
        await caller.until("response.done", position)
        assert "Robert" in words(caller.of("response.output_text.delta"))
        await caller.hang_up()
