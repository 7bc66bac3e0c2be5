"""What a client asks for in its address: extensions over a real socket, a transcription session."""

import base64

import pytest
from fake_pipeline import FakePipeline, answer
from running_server import FAST, server
from wire_client import LOUD, MANUAL, jpeg, wire_client

from voice_app import messages as m
from voice_app.server.settings import ServerSettings


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
