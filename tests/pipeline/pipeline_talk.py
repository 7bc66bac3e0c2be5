"""Helpers of the pipeline tests: configurations of the toy pack, requests, and what comes back."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pipeline_toys import SAMPLES_PER_FRAME, worker_of

from voice_app import messages as m
from voice_app.config import PackConfig, PipelineConfig
from voice_app.errors import VoiceAppError
from voice_app.pipeline.client import PipelineClient
from voice_app.pipeline.transport import shm

LOUD = m.AudioPart(np.full(160_000, 0.25, np.float32), 16_000)
"""Large enough to travel in slots."""
PICTURE = m.ImagePart(bytes(range(256)) * 1000)
"""So is this."""
ONE_WORKER_A_STAGE = "".join(f'[stages.{stage}]\nworker = "{worker_of(stage)}"\n' for stage in m.Stage)
"""A layout file in which no edge is crossed by reference."""


def config(
    layout: str = "cpu",
    *,
    pack: str = "pipeline_toys:create",
    model: str | None = None,
    max_turns: int = 64,
    start_timeout_s: float = 60.0,
    turn_timeout_s: float = 60.0,
) -> PipelineConfig:
    """The toy pack in `layout`."""
    return PipelineConfig(
        pack=PackConfig(pack=pack, model=model),
        layout=layout,
        max_turns=max_turns,
        start_timeout_s=start_timeout_s,
        turn_timeout_s=turn_timeout_s,
    )


def request(
    text: str, *more: m.Part, turn: str = "1", session: str = "s", generation: int = 0, speech: bool = True
) -> m.TurnRequest:
    parts: tuple[m.Part, ...] = (*((m.TextPart(text),) if text else ()), *more)
    identity = m.TurnId(session, turn, generation)
    return m.TurnRequest(identity, (m.Message("user", parts),), speech=speech)


@dataclass
class Answer:
    """A turn's events, put together."""

    text: str = ""
    samples: list[np.ndarray] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    done: m.TurnDone | None = None

    @property
    def voice(self) -> str:
        """The text that the toy's sound spells."""
        sound = np.concatenate([np.empty(0, np.float32), *self.samples])
        assert len(sound) % SAMPLES_PER_FRAME == 0
        return bytes((sound[::SAMPLES_PER_FRAME] * 256).astype(np.uint8)).decode()


async def read(stream: AsyncIterator[m.TurnEvent], *already: m.TurnEvent) -> Answer:
    """The whole turn, of which some was read `already`. Checks that chunks follow on each other."""
    answer = Answer()
    position = 0
    for event in [*already, *[event async for event in stream]]:
        assert answer.done is None, "an event after TurnDone"
        answer.kinds.append(type(event).__name__)
        match event:
            case m.TextDelta():
                answer.text += event.text
            case m.AudioChunk():
                assert event.start == position
                position += len(event.samples)
                answer.samples.append(event.samples)
            case m.AudioDone():
                assert event.samples == position
            case m.TurnDone():
                answer.done = event
            case _:
                pass
    return answer


async def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait for what another process does."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # Another process: there is no event to wait for.


def runs() -> set[str]:
    """The ids of the runs whose folders exist. Every test has a folder of its own for them."""
    return {path.name.rpartition("-")[2] for path in Path(os.environ["VOICE_APP_RUN_DIR"]).iterdir()}


def segments(of_runs: set[str]) -> set[str]:
    """Names in /dev/shm that carry one of these ids."""
    return {p.name for p in shm.FOLDER.glob(f"{shm.PREFIX}*") if p.name.split("-")[4] in of_runs}


def descriptors(pid: int | None) -> int:
    """Open files of a process."""
    return len(os.listdir(f"/proc/{pid or 'self'}/fd"))


async def outcome(stream: AsyncIterator[m.TurnEvent]) -> Answer | VoiceAppError:
    try:
        return await read(stream)
    except VoiceAppError as error:
        return error


def settled(client: PipelineClient) -> bool:
    """Nothing of any turn is anywhere."""
    status = client.status()
    parts = [status.hand_off, *(worker.hand_off for worker in status.workers.values())]
    return (
        status.turns == 0
        and all(part.turns == part.arriving == part.lent == part.quarantined == 0 for part in parts)
        and all(load.waiting == load.running == load.pages_used == 0 for load in status.stages.values())
    )
