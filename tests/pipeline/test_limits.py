"""Readers that stall, and what is refused because it is too much."""

import asyncio

import numpy as np
import pytest
from pipeline_talk import config, read, request, settled, until
from pipeline_toys import Talker

from voice_app import messages as m
from voice_app.errors import DeadlineExceeded, Overloaded, PipelineError
from voice_app.messages import Stage
from voice_app.pipeline.client import PipelineClient

pytestmark = pytest.mark.usefixtures("nothing_left")


async def test_a_stalled_client_holds_back_only_its_own_turn() -> None:
    async with PipelineClient(config()) as client:
        stalled = client.submit(request("!repeat 2000", turn="stalled"))
        first = await anext(stalled)
        for n in range(20):
            answer = await asyncio.wait_for(read(client.submit(request(f"turn {n}", turn=str(n)))), 60)
            assert answer.voice == f"turn {n}"
        # It stopped for want of credit, long before its end, and goes on when it is read again.
        await until(lambda: client.status().stages[Stage.THINKER].running == 1)
        assert len((await read(stalled, first)).text) == 2000


async def test_stalled_clients_beyond_the_talkers_places_hold_back_only_their_own_turns() -> None:
    async with PipelineClient(config()) as client:
        stalled = [
            client.submit(request("!repeat 1000", turn=f"stalled {n}")) for n in range(2 * Talker.max_states)
        ]
        first = [await anext(stream) for stream in stalled]
        for n in range(20):
            answer = await asyncio.wait_for(read(client.submit(request(f"turn {n}", turn=str(n)))), 60)
            assert answer.voice == f"turn {n}"
        # None of them came to its end by itself: their listeners' credit is used up.
        assert client.status().turns == len(stalled)
        answers = await asyncio.gather(*(read(s, event) for s, event in zip(stalled, first, strict=True)))
        assert [len(answer.voice) for answer in answers] == [1000] * len(stalled)
        assert [answer.text for answer in answers] == [answer.voice for answer in answers]
        await until(lambda: settled(client))


async def test_more_turns_than_the_bound_are_refused() -> None:
    async with PipelineClient(config(max_turns=2)) as client:
        streams = [client.submit(request("!repeat 500", turn=str(n))) for n in range(2)]
        with pytest.raises(Overloaded, match="max_turns"):
            client.submit(request("one too many", turn="3"))
        streams[0] = client.submit(request("in place of the older", turn="0", generation=1))
        await asyncio.gather(*(read(s) for s in streams))
        assert (await read(client.submit(request("again", turn="4")))).text == "again"


async def test_a_turn_that_takes_too_long_is_failed() -> None:
    async with PipelineClient(config(turn_timeout_s=0.3)) as client:
        with pytest.raises(DeadlineExceeded, match="turn_timeout_s"):
            await read(client.submit(request("!repeat 4000")))
        await until(lambda: settled(client))


async def test_more_sound_than_the_largest_slot_is_refused() -> None:
    huge = m.AudioPart(np.zeros(40_000_000, np.float32), 48_000)
    async with PipelineClient(config()) as client:
        with pytest.raises(PipelineError, match="largest slot"):
            client.submit(request("", huge))
        assert (await read(client.submit(request("ok", turn="2")))).text == "ok"
