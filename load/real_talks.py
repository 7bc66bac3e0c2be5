"""Real crowds over the running pipeline: people who give whole questions, listen, think, and ask again."""

import asyncio
import random
import time
from collections.abc import Sequence

from load.listener import Listener
from load.question_shapes import pool, recording
from load.real_run import Answer, Crowd, Held, RealTurn
from load.simulation.people import Manner
from voice_app.bench import questions
from voice_app.bench.talks import spoken_anew
from voice_app.config import PipelineConfig
from voice_app.messages import (
    AudioChunk,
    Message,
    StageTiming,
    TextDelta,
    TextDone,
    TextPart,
    Transcript,
    TurnDone,
    TurnId,
    TurnRequest,
    Usage,
)
from voice_app.pipeline.client import PipelineClient

MANNER = Manner(turns=4)


async def run(people: Sequence[int], rounds: int) -> list[Crowd]:
    """Crowds of so many people, one after the other, in so many rounds."""
    found: list[Crowd] = []
    async with PipelineClient(PipelineConfig()) as client:
        await _crowd(client, 2, "warm")
        for again in range(rounds):
            for count in people:
                crowd = await _crowd(client, count, f"{count}-{again}")
                found.append(crowd)
                firsts = sorted(round(1000 * turn.first_audio_s) for turn in crowd.turns)
                print(f"… {count} at once: first audio {firsts} ms", flush=True)
    return found


async def _crowd(client: PipelineClient, people: int, name: str) -> Crowd:
    origin = time.perf_counter()
    turns: list[RealTurn] = []
    await asyncio.gather(*(_talk(client, number, name, origin, turns) for number in range(people)))
    return Crowd([Held(people, 0.0, time.perf_counter() - origin)], turns)


async def _talk(client: PipelineClient, number: int, name: str, origin: float, turns: list[RealTurn]) -> None:
    dice = random.Random(f"{name} {number}")
    history: list[Message] = []
    await asyncio.sleep(dice.uniform(0, MANNER.arrive_within_s))
    for turn in range(MANNER.turns):
        question = dice.choice(pool())
        said = Message("user", spoken_anew(questions.parts(question, 0), dice.getrandbits(32)))
        identity = TurnId(f"{name}-{number}", str(turn))
        told = await _listen(client, TurnRequest(identity, (*history, said), now=question.now))
        if told.listener.sound_s:
            turns.append(told.as_turn(number, recording(question), origin))
        history += [Message("user", (TextPart(told.words),)), Message("assistant", (TextPart(told.text),))]
        await asyncio.sleep(dice.uniform(*MANNER.think_s))


class _Told:
    """One answer as it comes."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.first_audio_s = float("nan")
        self.listener = Listener()
        self.words = ""
        self.pieces: list[tuple[str, int]] = []
        self.usage = Usage()
        self.stages: dict[str, StageTiming] = {}

    def as_turn(self, talk: int, question: str, origin: float) -> RealTurn:
        return RealTurn(
            talk,
            question,
            self.began - origin,
            max(time.perf_counter(), self.listener.dry_at()) - origin,
            self.first_audio_s,
            len(self.listener.underruns),
            self.stages,
            Answer(
                self.words,
                self.pieces,
                self.usage.prompt_tokens,
                self.usage.output_tokens,
                self.listener.sound_s,
            ),
        )

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


async def _listen(client: PipelineClient, request: TurnRequest) -> _Told:
    told = _Told()
    async for event in client.submit(request):
        match event:
            case Transcript(text):
                told.words = text
            case TextDelta(text, token_ids):
                told.pieces.append((text, len(token_ids)))
            case TextDone(_, usage):
                told.usage = usage
            case AudioChunk(samples, rate) if len(samples):
                now = time.perf_counter()
                if not told.listener.sound_s:
                    told.first_audio_s = now - told.began
                told.listener.hear(len(samples) / rate, now)
            case TurnDone(stages):
                told.stages = stages
            case _:
                pass
    await asyncio.sleep(max(0.0, told.listener.dry_at() - time.perf_counter()))
    return told
