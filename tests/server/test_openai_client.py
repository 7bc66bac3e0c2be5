"""The stock openai client, unmodified, against a real server."""

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from fake_pipeline import FakePipeline, spoken, written
from openai import AsyncOpenAI
from running_server import server

from voice_app import messages as m
from voice_app.server.settings import ServerSettings, TalkSettings

SPEECH = Path(__file__).parents[1] / "data" / "spoken"
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "talk.py"
FAST = ServerSettings(talk=TalkSettings(lead_s=1e9))


def _answer(request: m.TurnRequest) -> list[m.TurnEvent]:
    last = request.messages[-1].parts[-1]
    heard = "what is the capital of france" if isinstance(last, m.AudioPart) else None
    return spoken("It is Paris.", heard=heard) if request.speech else written("It is Paris.", heard=heard)


@pytest.fixture
def pipeline() -> FakePipeline:
    return FakePipeline(_answer)


@pytest.fixture
async def client(pipeline: FakePipeline) -> AsyncIterator[AsyncOpenAI]:
    async with server(pipeline, FAST) as port:
        yield AsyncOpenAI(api_key="none", websocket_base_url=f"ws://127.0.0.1:{port}/v1")


async def test_a_text_turn(client: AsyncOpenAI, pipeline: FakePipeline):
    async with client.realtime.connect(model="local") as talk:
        await talk.session.update(session={"type": "realtime", "output_modalities": ["text"]})
        await talk.conversation.item.create(
            item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello?"}]}
        )
        await talk.response.create()
        text = ""
        async for event in talk:
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type == "response.done":
                assert event.response.status == "completed"
                break
    assert text == "It is Paris."
    asked = pipeline.turns[0].request.messages[-1]
    assert asked == m.Message("user", (m.TextPart("Hello?"),))


async def test_a_spoken_turn(client: AsyncOpenAI, pipeline: FakePipeline):
    """Real speech in, found by the server's own turn detection; the voice comes back whole."""
    samples, rate = soundfile.read(SPEECH / "fact-1-1.flac", dtype="int16")
    pcm = np.interp(np.arange(0, len(samples), rate / 24_000), np.arange(len(samples)), samples)
    pcm = np.concatenate([np.zeros(12_000), pcm, np.zeros(24_000)]).astype("<i2").tobytes()
    voice = b""
    kinds: list[str] = []
    async with client.realtime.connect(model="local") as talk:
        for start in range(0, len(pcm), 4800):
            await talk.input_audio_buffer.append(audio=base64.b64encode(pcm[start : start + 4800]).decode())
        async for event in talk:
            kinds.append(event.type)
            if event.type == "response.output_audio.delta":
                voice += base64.b64decode(event.delta)
            if event.type == "response.done":
                break
    order = [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
        "response.output_item.added",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.done",
    ]
    assert [kinds.index(kind) for kind in order] == sorted(kinds.index(kind) for kind in order)
    assert len(voice) / 2 / 24_000 == pytest.approx(3 * 0.3, abs=0.01)
    heard = pipeline.turns[-1].request.messages[-1].parts[0]
    assert isinstance(heard, m.AudioPart)
    assert 0.9 < len(heard.samples) / 16_000 / (len(samples) / rate) < 1.5


async def test_the_example_sends_loud_sound_without_wrapping(pipeline: FakePipeline, tmp_path: Path):
    """A resampler's ripple goes beyond full scale, where 16 bits turn a peak into its opposite."""
    square = np.where(np.arange(44_100) % 441 < 220, 1.0, -1.0)
    question, answer = tmp_path / "question.wav", tmp_path / "answer.wav"
    soundfile.write(question, square, 44_100, subtype="FLOAT")
    async with server(pipeline, FAST) as port:
        url = f"ws://127.0.0.1:{port}/v1"
        run = await asyncio.create_subprocess_exec(sys.executable, EXAMPLE, question, answer, url)
        assert await asyncio.wait_for(run.wait(), 60) == 0
    [sent] = [part for part in pipeline.turns[0].request.messages[-1].parts if isinstance(part, m.AudioPart)]
    meant = soxr.resample(square, 44_100, sent.sample_rate)
    assert len(sent.samples) == pytest.approx(len(meant), abs=16)
    n = min(len(sent.samples), len(meant))
    assert np.abs(sent.samples[:n] - meant[:n]).max() < 0.5, "a wrapped sample is off by 2"
    assert soundfile.info(answer).duration > 0.5
