"""The Qwen dialect, as its SDK speaks it, over a real socket."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from fake_pipeline import FakePipeline, spoken, written
from running_server import server
from websockets.asyncio.client import ClientConnection, connect
from wire_client import jpeg

from voice_app import messages as m
from voice_app.server.settings import ServerSettings, TalkSettings

SECOND = (8000 * np.sin(2 * np.pi * 220 * np.arange(16_000) / 16_000)).astype("<i2").tobytes()
UPDATE = {
    "modalities": ["text", "audio"],
    "voice": "Cherry",
    "input_audio_format": "pcm16",
    "output_audio_format": "pcm24",
    "smooth_output": True,
    "input_audio_transcription": {"model": "gummy-realtime-v1"},
    "turn_detection": None,
    "temperature": 0.7,
    "top_k": 20,
    "instructions": "You are Xiaoyun.",
}


def answer(request: m.TurnRequest):
    heard = "ni hao" if isinstance(request.messages[-1].parts[-1], m.AudioPart) else None
    return spoken("Hello there.", heard=heard) if request.speech else written("Hello there.", heard=heard)


@pytest.fixture
def pipeline() -> FakePipeline:
    return FakePipeline(answer)


@pytest.fixture
async def socket(pipeline: FakePipeline) -> AsyncIterator[ClientConnection]:
    async with (
        server(pipeline, ServerSettings(talk=TalkSettings(lead_s=1e9))) as port,
        connect(f"ws://127.0.0.1:{port}/api-ws/v1/realtime?model=qwen3-omni") as socket,
    ):
        yield socket


async def send(socket: ClientConnection, kind: str, **fields: Any) -> None:
    await socket.send(json.dumps({"event_id": "event_x", "type": kind, **fields}))


async def until(socket: ClientConnection, kind: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The event of that kind, and all before it."""
    before: list[dict[str, Any]] = []
    while True:
        event = json.loads(await socket.recv())
        if event["type"] == kind:
            return event, before
        before.append(event)


async def test_the_session_is_flat_with_its_own_defaults(socket: ClientConnection):
    created, _ = await until(socket, "session.created")
    session = created["session"]
    assert session["modalities"] == ["text", "audio"]
    assert session["input_audio_format"] == "pcm16"
    assert session["turn_detection"]["threshold"] == 0.2
    assert session["turn_detection"]["silence_duration_ms"] == 800
    await send(socket, "session.update", session=UPDATE)
    updated, _ = await until(socket, "session.updated")
    session = updated["session"]
    assert (session["voice"], session["turn_detection"], session["temperature"]) == ("Cherry", None, 0.7)


@pytest.mark.parametrize(
    ("asked", "shown", "given"), [("Momo", "default", None), ("Joe", "Joe", "Joe"), ("alloy", "alloy", None)]
)
async def test_a_voice_that_is_not_there_is_the_packs_own(
    pipeline: FakePipeline, asked: str, shown: str, given: str | None
):
    """And costs nothing of the update that it comes in."""
    talk = TalkSettings(lead_s=1e9, voices=("joe", "default"), stand_in_voices=frozenset(("alloy",)))
    async with (
        server(pipeline, ServerSettings(talk=talk)) as port,
        connect(f"ws://127.0.0.1:{port}/api-ws/v1/realtime") as socket,
    ):
        await send(socket, "session.update", session={**UPDATE, "voice": asked})
        session = (await until(socket, "session.updated"))[0]["session"]
        assert (session["voice"], session["instructions"]) == (shown, UPDATE["instructions"])
        await send(socket, "response.create")
        await until(socket, "response.done")
    assert pipeline.turns[-1].request.voice == given


async def test_a_manual_turn_with_a_picture(socket: ClientConnection, pipeline: FakePipeline):
    await send(socket, "session.update", session=UPDATE)
    for start in range(0, len(SECOND), 3200):
        audio = base64.b64encode(SECOND[start : start + 3200]).decode()
        await send(socket, "input_audio_buffer.append", audio=audio)
    await send(socket, "input_image_buffer.append", image=jpeg(1))
    await send(socket, "input_audio_buffer.commit")
    await send(socket, "response.create")
    done, before = await until(socket, "response.done")
    kinds = [event["type"] for event in before]
    assert "response.audio.delta" in kinds
    assert "response.audio_transcript.done" in kinds
    assert "conversation.item.created" in kinds
    assert not [kind for kind in kinds if "output_audio" in kind or kind == "conversation.item.added"]
    assert done["response"]["modalities"] == ["text", "audio"]
    assert done["response"]["output"][0]["content"][0] == {"type": "audio", "transcript": "Hello there."}
    request = pipeline.turns[-1].request
    picture, heard = request.messages[-1].parts
    assert picture == m.ImagePart(base64.b64decode(jpeg(1)))
    assert isinstance(heard, m.AudioPart)
    assert (heard.sample_rate, len(heard.samples)) == (16_000, 16_000)
    assert (request.sampling.temperature, request.sampling.top_k, request.voice) == (0.7, 20, "Cherry")
    words = "conversation.item.input_audio_transcription.completed"
    assert [event["transcript"] for event in before if event["type"] == words] == ["ni hao"]


async def test_text_only(socket: ClientConnection):
    await send(socket, "session.update", session={"modalities": ["text"], "turn_detection": None})
    await send(socket, "input_audio_buffer.append", audio=base64.b64encode(SECOND).decode())
    await send(socket, "input_audio_buffer.commit")
    await send(socket, "response.create")
    done, before = await until(socket, "response.done")
    assert "".join(e["delta"] for e in before if e["type"] == "response.text.delta") == "Hello there."
    assert done["response"]["modalities"] == ["text"]


async def test_finish_waits_for_the_answer(socket: ClientConnection):
    await send(socket, "session.update", session=UPDATE)
    await send(socket, "input_audio_buffer.append", audio=base64.b64encode(SECOND).decode())
    await send(socket, "input_audio_buffer.commit")
    await send(socket, "response.create")
    await until(socket, "response.created")
    await send(socket, "session.finish")
    _, before = await until(socket, "session.finished")
    assert before[-1]["type"] == "response.done"


async def test_finish_of_an_idle_talk_is_at_once(socket: ClientConnection):
    await send(socket, "session.finish")
    _, before = await until(socket, "session.finished")
    assert [event["type"] for event in before] == ["session.created"]


async def test_mistakes_are_answered_as_elsewhere(socket: ClientConnection):
    await until(socket, "session.created")
    for message in ("{", "[]", '{"type":"session.magic"}', '{"type":"session.update","session":5}'):
        await socket.send(message)
        error, _ = await until(socket, "error")
        assert error["error"]["code"] in ("invalid_value", "missing_required_parameter")


@pytest.mark.parametrize("message", ["{", b"\xff", "[" * 100_000], ids=["no JSON", "no text", "too deep"])
async def test_what_is_no_json_leaves_the_talk_as_it_was(socket: ClientConnection, message: str | bytes):
    await socket.send(message)
    refused, _ = await until(socket, "error")
    assert "not valid JSON" in refused["error"]["message"]
    await send(socket, "input_audio_buffer.clear")
    await until(socket, "input_audio_buffer.cleared")
