"""`voice-app bench realtime`: the server alone, over a pipeline that costs nothing, real sockets, and at the
pace of speech.

1. memory of an idle talk, CPU of one in real time.
2. interruption: speech over a reply; from its first packet to the last audio byte of the old reply that was
   sent, of clients that read and of clients that do not.
"""

import asyncio
import contextlib
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from voice_app.bench import interruptions, report
from voice_app.bench.callers import calling, packets, silence, speech
from voice_app.bench.servers import free_server

SPOKEN = Path(__file__).parents[2] / "tests" / "data" / "spoken"
TALKS = (1, 10, 30)
LOAD_S = 6.0
IDLE_TALKS = 200
READS, DOES_NOT_READ = "a client that reads", "a client that does not"
INTERRUPT_MS = 40.0
IDLE_MB = 1.0


@dataclass(slots=True)
class Figures:
    """Times in ms."""

    interrupted: dict[str, list[float]] = field(default_factory=dict)
    cpu_percent: dict[int, float] = field(default_factory=dict)
    idle_mb: float = 0.0


def main(json_path: str | None) -> int:
    """Measure and print; gives how many goals were missed."""
    figures = asyncio.run(_measure())
    rows = [
        (name, len(values), *(f"{report.percentile(values, p):.0f}" for p in (50, 90, 99)))
        for name, values in figures.interrupted.items()
    ]
    report.print_table("speech over a reply → last old audio sent, ms", ("", "n", "p50", "p90", "p99"), rows)
    loads = [
        (talks, f"{percent:.1f}", f"{percent / talks:.2f}", f"{100 * talks / percent:.0f}")
        for talks, percent in figures.cpu_percent.items()
    ]
    header = ("talks at once", "CPU %", "CPU % of a talk", "talks a core")
    report.print_table("the server alone, every caller speaking or listening", header, loads)
    goals = _goals(figures)
    missed = report.print_goals(goals)
    report.write_json(json_path, asdict(figures), goals)
    return missed


def _goals(figures: Figures) -> list[report.Goal]:
    return [
        *(
            report.Goal(f"interruption, {name}, p99", report.percentile(values, 99), INTERRUPT_MS, "ms")
            for name, values in figures.interrupted.items()
        ),
        report.Goal("memory of an idle talk", figures.idle_mb, IDLE_MB, "MB"),
    ]


async def _measure() -> Figures:
    figures = Figures()
    with free_server() as (port, process):
        figures.idle_mb = await _idle(port, process)
        for talks in TALKS:
            figures.cpu_percent[talks] = await _load(port, process, talks)
            print(f"… {talks} talks: {figures.cpu_percent[talks]:.1f} % CPU", flush=True)
    question, over = SPOKEN / "sum-1-1.flac", SPOKEN / "fact-1-1.flac"
    with free_server(options=["--note-audio"]) as (port, _):
        for name, reads in ((READS, True), (DOES_NOT_READ, False)):
            figures.interrupted[name] = await interruptions.measure(port, question, over, reads=reads)
            print(f"… interruptions of {name}: {len(figures.interrupted[name])}", flush=True)
    return figures


async def _load(port: int, process: psutil.Process, talks: int) -> float:
    """CPU % of the server while `talks` callers speak and listen in turns."""
    messages = packets(speech(SPOKEN / "sum-1-1.flac"), silence(2.5))

    async def call() -> None:
        async with calling(port) as caller:
            await caller.speak(messages * 2)

    callers_of_all = [asyncio.create_task(call()) for _ in range(talks)]
    await asyncio.sleep(1.0)
    before, begin = sum(process.cpu_times()[:2]), time.perf_counter()
    await asyncio.sleep(LOAD_S)
    used = sum(process.cpu_times()[:2]) - before
    seconds = time.perf_counter() - begin
    await asyncio.gather(*callers_of_all)
    return 100 * used / seconds


async def _idle(port: int, process: psutil.Process) -> float:
    """MB of the server for each talk in which nothing happens."""
    async with calling(port):
        await asyncio.sleep(0.5)
    async with contextlib.AsyncExitStack() as stack:
        before = process.memory_info().rss
        for _ in range(IDLE_TALKS):
            await stack.enter_async_context(calling(port))
        await asyncio.sleep(1.0)
        return (process.memory_info().rss - before) / IDLE_TALKS / 1e6
