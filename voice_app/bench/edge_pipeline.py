"""Edges of the running pipeline: from stage to stage, and what a process for each stage costs a turn."""

import random
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from voice_app import messages as m
from voice_app.bench.edge_ways import Bare, Payload
from voice_app.bench.report import median
from voice_app.config import PackConfig, PipelineConfig
from voice_app.pipeline.client import PipelineClient

REPETITIONS = 7
HOP_REPETITIONS = 25
"""Of the hop from stage to stage: which of the seven processes is on which core changes from turn to turn."""
TOKENS = 40
PACE_S = 0.003
TOYS = "voice_app.bench.edge_toys:create"
QUESTIONS = ("What do bees make?", "What is the capital of France?", "Why is the sky blue?", "Who are you?")
"""Long and short answers of the local pack, written."""

_FILE = "".join(f'[stages.{stage}]\nworker = "{stage.replace("_", "-")}"\n' for stage in m.Stage)


async def stage_to_stage(bare: Bare, payload: Payload) -> dict[str, float]:
    """Microseconds from the thinker's emit to the talker's model, each in a worker of its own ("ours"), of
    the same bytes over bare ZMQ, measured in turn ("bare"); and the median of the ratios."""
    took: dict[str, list[float]] = {"bare": [], "ours": []}
    async with AsyncExitStack() as stack:
        (client,) = await _pipelines(stack, TOYS, ("seven",))
        for repetition in range(HOP_REPETITIONS + 1):
            for half in random.sample(list(took), 2):
                if half == "bare":
                    times = [_bare(bare, payload) for _ in range(TOKENS)]
                else:
                    times = await _times(client, repetition)
                if repetition:  # The first opens connections and warms up.
                    took[half].append(median(times))
    ratios = [ours / bare for ours, bare in zip(took["ours"], took["bare"], strict=True)]
    return {**{half: median(times) for half, times in took.items()}, "ratio": median(ratios)}


def _bare(bare: Bare, payload: Payload) -> float:
    time.sleep(PACE_S)
    start = time.monotonic_ns()
    bare.send(payload)
    return (bare.arrived() - start) / 1e3


async def _times(client: PipelineClient, number: int) -> list[float]:
    times: list[float] = []
    async for event in client.submit(_request(str(TOKENS), number, speech=True)):
        if isinstance(event, m.AudioChunk):
            times += event.samples.tolist()
    return times


async def one_process_or_seven(pack: str, questions: tuple[str, ...]) -> dict[str, float]:
    """Mean milliseconds of a written turn with all stages in one process and with one in each; by how many
    percent the mean changes, and a turn's median change."""
    layouts = ("single", "seven")
    took: dict[str, list[float]] = {name: [] for name in layouts}
    number = 0
    async with AsyncExitStack() as stack:
        clients = dict(zip(layouts, await _pipelines(stack, pack, layouts), strict=True))
        for repetition in range(REPETITIONS + 1):
            for question in questions:
                number += 1
                for name in random.sample(layouts, 2):
                    start = time.monotonic()
                    async for _ in clients[name].submit(_request(question, number, speech=False)):
                        pass
                    if repetition:  # The first fills the prefix cache.
                        took[name].append(1e3 * (time.monotonic() - start))
    means = {name: sum(values) / len(values) for name, values in took.items()}
    turns = [100 * (b / a - 1) for a, b in zip(took["single"], took["seven"], strict=True)]
    change = 100 * (means["seven"] / means["single"] - 1)
    return {**means, "change": change, "median change": median(turns)}


def _request(text: str, number: int, *, speech: bool) -> m.TurnRequest:
    message = m.Message("user", (m.TextPart(text),))
    return m.TurnRequest(
        m.TurnId("bench", str(number)),
        (message,),
        speech=speech,
        greedy=True,
        sampling=m.Sampling(max_tokens=40),
    )


async def _pipelines(stack: AsyncExitStack, pack: str, layouts: tuple[str, ...]) -> list[PipelineClient]:
    file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "seven.toml"
    file.write_text(_FILE)
    configs = [
        PipelineConfig(PackConfig(pack), layout=str(file) if name == "seven" else name) for name in layouts
    ]
    return [await stack.enter_async_context(PipelineClient(config)) for config in configs]
