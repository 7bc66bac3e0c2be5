"""Whole turns through seven stages in real processes."""

import asyncio

import needs
import numpy as np
import pytest
from pipeline_talk import ONE_WORKER_A_STAGE, config, read, request

from voice_app import messages as m
from voice_app.errors import ConfigError
from voice_app.pipeline.client import PipelineClient
from voice_app.pipeline.transport import mooncake

VOICE = (m.Stage.TALKER_AR, m.Stage.CODE2WAV)
TWO_HOSTS = "".join(
    f'[stages.{s}]\nworker = "{"voice" if s in VOICE else s.replace("_", "-")}"\n'
    f'host = "127.0.0.{1 if s.endswith("encoder") else 2}"\n'
    for s in m.Stage
)
"""Encoders on one host, each in a worker of its own; the rest on another."""
TEXT = "Grüße aus Köln, 数字 and 🙂"


FILES = {"seven": ONE_WORKER_A_STAGE, "two-hosts": TWO_HOSTS}


@pytest.fixture(params=["cpu", "single", *FILES])
def layout(request: pytest.FixtureRequest, tmp_path) -> str:
    if request.param == "two-hosts":
        try:
            mooncake.load()
        except ConfigError as error:
            needs.missing("Mooncake", str(error))
    if request.param not in FILES:
        return request.param
    path = tmp_path / "layout.toml"
    path.write_text(FILES[request.param])
    return str(path)


async def test_spoken_turns_come_back_whole_and_in_order(layout: str) -> None:
    sound = np.random.default_rng(1).standard_normal(160_000).astype(np.float32) / 8
    picture = np.random.default_rng(2).integers(0, 256, 2_408_448, np.uint8)
    heard = f"heard 160000 samples, sum {float(sound.astype(np.float64).sum()):.3f}"
    seen = f"seen 2408448 values, sum {int(picture.astype(np.int64).sum())}"
    media = (m.AudioPart(sound, 16_000), m.ImagePart(picture.tobytes()))
    async with PipelineClient(config(layout)) as client:
        answers = await asyncio.gather(
            read(client.submit(request(TEXT, turn="plain"))),
            read(client.submit(request("!repeat 500", turn="long"))),
            read(client.submit(request("", *media, turn="media"))),
            read(client.submit(request("", *media[::-1], turn="swapped"))),
        )
    long = "".join(chr(97 + n % 26) for n in range(500))
    assert [a.text for a in answers] == [TEXT, long, f"{heard}; {seen}", f"{seen}; {heard}"]
    assert [a.voice for a in answers] == [a.text for a in answers]


async def test_text_turns_do_not_enter_the_voice_side() -> None:
    async with PipelineClient(config()) as client:
        answer = await read(client.submit(request("hello", speech=False)))
        assert (answer.text, answer.voice) == ("hello", "")
        assert answer.kinds[-2:] == ["TextDone", "TurnDone"]
        assert answer.done is not None
        assert set(answer.done.stages) == {"preprocessing", "thinker", "decode"}


async def test_timings_are_of_every_stage_and_ordered() -> None:
    sound = m.AudioPart(np.zeros(1600, np.float32), 16_000)
    async with PipelineClient(config()) as client:
        answer = await read(client.submit(request("abc", sound)))
    assert answer.done is not None
    stages = answer.done.stages
    assert list(stages) == [s for s in m.Stage if s is not m.Stage.IMAGE_ENCODER]
    for timing in stages.values():
        assert 0 <= timing.first_in_ms <= timing.first_out_ms <= timing.last_out_ms < 60_000
        assert timing.busy_ms >= 0
    first = [stages[s].first_in_ms for s in ("preprocessing", "audio_encoder", "decode")]
    assert first == sorted(first)
    assert stages["thinker"].first_out_ms <= stages["code2wav"].first_in_ms


async def test_text_and_sound_leave_while_the_answer_is_made() -> None:
    """Text and sound come from different processes. Before the first chunk is read, so many tokens can be
    made as may be out on the way to it: 64 vectors, 64 frames, and 32 chunks of 8 frames; less than a
    quarter."""
    async with PipelineClient(config()) as client:
        events = [event async for event in client.submit(request("!repeat 2000"))]
    first_chunk = next(n for n, event in enumerate(events) if isinstance(event, m.AudioChunk))
    before = [event.text for event in events[:first_chunk] if isinstance(event, m.TextDelta)]
    assert len("".join(before)) < 2000 / 2
    assert sum(isinstance(event, m.TextDelta) for event in events) > 10


async def test_no_answer_still_ends_a_spoken_turn() -> None:
    async with PipelineClient(config()) as client:
        answer = await read(client.submit(request("!repeat 0")))
    assert answer.text == ""
    assert sorted(answer.kinds[:-1]) == ["AudioDone", "TextDone"]
