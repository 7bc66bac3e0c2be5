"""`voice-app bench realtime`: what a caller waits for, over real sockets, at the pace of speech.

1. the server alone, over a pipeline that costs nothing: memory of an idle talk, CPU of one in real time.
2. interruption: speech over a reply; from its first packet to the last audio byte of the old reply that was
   sent, of clients that read and of clients that do not.
3. latency: the local pack, spoken questions; from the end of the turn (the packet that completes
   `silence_duration_ms` has left) to the first audio byte, with speculative turns and without.
"""

import asyncio
import contextlib
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import psutil

from voice_app.bench import callers, interruptions, report
from voice_app.bench.callers import Caller, calling, packets, silence, speech
from voice_app.bench.servers import free_server, pack_server

SPOKEN = Path(__file__).parents[2] / "tests" / "data" / "spoken"
QUESTIONS = (
    *("fact-1-1", "sum-1-1", "chit-chat-1-1", "fact-3-1", "sum-3-1", "fact-5-1"),
    *("chit-chat-2-1", "sum-5-1", "fact-2-1", "sum-2-1", "chit-chat-3-1", "fact-4-1"),
)
TALKS = (1, 10, 30)
LOAD_S = 6.0
IDLE_TALKS = 200
SPECULATING, WAITING = "with speculation", "without"
READS, DOES_NOT_READ = "a client that reads", "a client that does not"
FIRST_AUDIO_MS = 150.0
INTERRUPT_MS = 40.0
IDLE_MB = 1.0


@dataclass(slots=True)
class Figures:
    """Times in ms."""

    first_audio: dict[str, list[float]] = field(default_factory=dict)
    interrupted: dict[str, list[float]] = field(default_factory=dict)
    cpu_percent: dict[int, float] = field(default_factory=dict)
    idle_mb: float = 0.0


def main(json_path: str | None) -> int:
    """Measure and print; gives how many goals were missed."""
    figures = asyncio.run(_measure())
    rows = [
        (f"{what}, {name}", len(values), *(f"{report.percentile(values, p):.0f}" for p in (50, 90, 99)))
        for what, of in (
            ("end of turn → first audio", figures.first_audio),
            ("speech over a reply → last old audio", figures.interrupted),
        )
        for name, values in of.items()
    ]
    report.print_table("latency, ms", ("what", "n", "p50", "p90", "p99"), rows)
    loads = [
        (talks, f"{percent:.1f}", f"{percent / talks:.2f}", f"{100 * talks / percent:.0f}")
        for talks, percent in figures.cpu_percent.items()
    ]
    header = ("talks at once", "CPU %", "CPU % of a talk", "talks a core")
    report.print_table("the server alone, every caller speaking or listening", header, loads)
    goals = _goals(figures)
    missed = report.print_goals(goals)
    report.write_json(json_path, {"figures": asdict(figures), "goals": [goal.row() for goal in goals]})
    return missed


def _goals(figures: Figures) -> list[report.Goal]:
    first = report.median(figures.first_audio[SPECULATING])
    return [
        report.Goal("end of turn → first audio, p50", first, FIRST_AUDIO_MS, "ms"),
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
    for name, options in ((SPECULATING, []), (WAITING, ["--no-speculation"])):
        with pack_server(options) as (port, _):
            figures.first_audio[name] = await _questions(port)
        print(f"… questions {name}: {len(figures.first_audio[name])}", flush=True)
    return figures


# ---------------------------------------------------------------------------------------------- what is asked


async def _questions(port: int) -> list[float]:
    async with calling(port) as caller:
        # The first answer warms what was not yet used.
        await _ask(caller, speech(SPOKEN / f"{QUESTIONS[0]}.flac"))
        return [await _ask(caller, speech(SPOKEN / f"{name}.flac")) for name in QUESTIONS]


async def _ask(caller: Caller, question: np.ndarray) -> float:
    """ms from the end of the turn to the first audio. The rest of the answer is not waited for."""
    before = len(caller.events)
    await caller.speak(packets(silence(0.3), question, silence(1.2)))
    _, stopped = await caller.until("input_audio_buffer.speech_stopped", before)
    ended_at = caller.sent_at[round(stopped["audio_end_ms"] / 1000 / callers.PACKET_S) - 1]
    first, _ = await caller.until("response.output_audio.delta", before)
    if all(event["type"] != "response.done" for _, event in caller.events[before:]):
        await caller.socket.send('{"type":"response.cancel"}')
    # What was sent of it, up to a second, is still heard.
    await caller.speak(packets(silence(1.2)))
    return (first - ended_at) * 1000


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
