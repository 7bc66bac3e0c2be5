"""Whole spoken turns of the local pack through real worker processes."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from test_voice_talker import opened, sound
from test_voice_talker import spoken as said

from voice_app import audio
from voice_app.bench.voice import Utf8Tokens
from voice_app.config import PackConfig, PipelineConfig
from voice_app.errors import TurnCancelled
from voice_app.messages import (
    AudioChunk,
    AudioPart,
    Message,
    TextDelta,
    TextDone,
    TextPart,
    Transcript,
    TurnDone,
    TurnEvent,
    TurnId,
    TurnRequest,
)
from voice_app.models.local import talker_ar
from voice_app.models.local.talker_ar import FEW, TalkerAr
from voice_app.pipeline.client import PipelineClient

pytestmark = [pytest.mark.models, pytest.mark.asyncio(loop_scope="module")]

SPOKEN = Path(__file__).parents[1] / "data" / "spoken"
QUESTIONS = [
    "fact-1-1", "fact-2-1", "fact-4-1", "fact-5-1", "fact-6-1", "fact-9-1",
    "sum-1-1", "sum-3-1", "unit-1-1", "chit-chat-1-1", "chit-chat-2-1", "chit-chat-4-1",
]  # fmt: skip
TIMEOUT_S = 300
NOW = "2026-03-04T14:35:00"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[PipelineClient]:
    async with PipelineClient(PipelineConfig()) as running:
        yield running


def spoken(name: str, session: str, turn: int = 0, *history: Message) -> TurnRequest:
    sound = audio.read(SPOKEN / f"{name}.flac")
    said = Message("user", (AudioPart(sound.samples, sound.sample_rate),))
    return TurnRequest(TurnId(session, str(turn)), (*history, said), greedy=True, now=NOW)


async def answer(client: PipelineClient, request: TurnRequest) -> list[TurnEvent]:
    async with asyncio.timeout(TIMEOUT_S):
        return [event async for event in client.submit(request)]


def words(events: list[TurnEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_the_voice_starts_while_the_answer_is_still_being_written(client: PipelineClient) -> None:
    question = Message(
        "user", (TextPart("Tell me something nice about the sea and something about mountains."),)
    )
    events = await answer(client, TurnRequest(TurnId("streaming", "0"), (question,), greedy=True))
    kinds = [type(event) for event in events]
    assert len(words(events).split()) >= 8, "too short an answer to tell"
    assert kinds.index(TextDelta) < kinds.index(AudioChunk) < kinds.index(TextDone)
    assert kinds[-1] is TurnDone
    chunks = [event for event in events if isinstance(event, AudioChunk)]
    assert len(chunks) > 3
    assert [c.start for c in chunks[1:]] == [c.start + len(c.samples) for c in chunks[:-1]]


def samples(events: list[TurnEvent]) -> int:
    return sum(len(event.samples) for event in events if isinstance(event, AudioChunk))


def length(talker: TalkerAr, text: str, *, others: int) -> int:
    """Samples of a reply that is spoken while so many other turns are open, in which it has no opening."""
    states = [opened(talker) for _ in range(others)]
    frames = len(sound(said(talker, text)))
    for state in states:
        talker.close(state)
    return frames * talker.voice.parts.cuts.samples_per_frame


async def test_twelve_talks_at_once_say_what_each_says_alone(client: PipelineClient) -> None:
    talker = talker_ar.build(PackConfig(), Utf8Tokens(), lambda line: None)
    alone = [await answer(client, spoken(name, f"alone-{name}")) for name in QUESTIONS]
    crowd = await asyncio.gather(*(answer(client, spoken(name, f"crowd-{name}")) for name in QUESTIONS))
    assert len({words(events) for events in alone}) == len(QUESTIONS)
    for name, one, other in zip(QUESTIONS, alone, crowd, strict=True):
        assert [e for e in one if isinstance(e, Transcript)] == [
            e for e in other if isinstance(e, Transcript)
        ], name
        assert words(one) == words(other), name
        assert samples(one) == length(talker, words(one), others=0), name
        # Those that are heard first and last have little company.
        assert samples(other) in {length(talker, words(other), others=n) for n in (0, FEW)}, name


async def test_the_next_turn_finds_the_one_before_in_the_prefix_cache(client: PipelineClient) -> None:
    first = await answer(client, spoken("follow-up-3-1", "history"))
    heard = "".join(event.text for event in first if isinstance(event, Transcript))
    history = (Message("user", (TextPart(heard),)), Message("assistant", (TextPart(words(first)),)))
    second = await answer(client, spoken("fact-4-1", "history", 1, *history))
    usage = [next(e.usage for e in events if isinstance(e, TextDone)) for events in (first, second)]
    assert usage[1].prompt_tokens > usage[0].prompt_tokens
    assert usage[1].cached_tokens > usage[0].prompt_tokens - 16, "the first question's own KV is found again"


async def test_interrupted_talks_leave_nothing(client: PipelineClient) -> None:
    dice = random.Random(7)

    async def interrupted(number: int) -> bool:
        request = spoken(dice.choice(QUESTIONS), f"interrupted-{number}")
        stream = client.submit(request)
        stop_at = dice.uniform(0.0, 1.0)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                asyncio.get_running_loop().call_later(stop_at, client.cancel, request.turn)
                async for _ in stream:
                    pass
        except TurnCancelled:
            return True
        return False

    outcomes = [await asyncio.gather(*(interrupted(8 * r + n) for n in range(8))) for r in range(4)]
    assert sum(map(sum, outcomes)) >= 8
    # One more turn by itself: when it is over, all that was told about the others has come.
    assert words(await answer(client, spoken("sum-1-1", "after"))) == "12 times 7 is 84."
    async with asyncio.timeout(TIMEOUT_S):
        while any(  # noqa: ASYNC110 - fill is told every 0.2 s and nobody waits for it
            load.pages_used or load.running or load.waiting for load in client.status().stages.values()
        ):
            await asyncio.sleep(0.05)
    status = client.status()
    assert status.ready
    assert status.turns == 0
    assert all(worker.restarts == 0 for worker in status.workers.values())
    assert status.hand_off.lent == 0
    assert all(worker.hand_off.quarantined == 0 for worker in status.workers.values())


async def test_one_worker_by_reference_says_the_same(client: PipelineClient) -> None:
    apart = await answer(client, spoken("fact-5-1", "apart"))
    async with PipelineClient(PipelineConfig(layout="single")) as single:
        together = await answer(single, spoken("fact-5-1", "together"))
    assert words(together) == words(apart) != ""
