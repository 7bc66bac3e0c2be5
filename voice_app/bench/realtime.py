"""`voice-app bench realtime`: what a caller waits for, over real sockets, at the pace of speech.

1. latency: the local pack, spoken questions; from the end of the turn (the packet that completes
   `silence_duration_ms` has left) to the first audio byte, with speculative turns and without.
2. interruption: speech over a reply; from its first packet to the last audio byte of the old reply.
3. the server alone, over a pipeline that costs nothing: CPU of a talk in real time, memory of an idle one.
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from voice_app.bench import callers, report
from voice_app.bench.callers import Caller, calling, packets, silence, speech
from voice_app.bench.servers import free_server, pack_server

SPOKEN = Path(__file__).parents[2] / "tests" / "data" / "spoken"
QUESTIONS = (
    "fact-1-1",
    "sum-1-1",
    "chit-chat-1-1",
    "fact-3-1",
    "sum-3-1",
    "fact-5-1",
    "chit-chat-2-1",
    "sum-5-1",
)
INTERRUPTIONS = 20
TALKS = (1, 10, 20)
IDLE_TALKS = 200
FIRST_AUDIO_MS = 150.0
INTERRUPT_MS = 40.0
IDLE_MB = 1.0


@dataclass(slots=True)
class Figures:
    first_audio_ms: dict[str, list[float]] = field(default_factory=dict)
    interrupted_ms: list[float] = field(default_factory=list)
    cpu_percent: dict[int, float] = field(default_factory=dict)
    idle_mb: float = 0.0


def main(json_path: str | None) -> int:
    """Measure and print; gives how many goals were missed."""
    figures = asyncio.run(_measure())
    rows = [
        (name, len(values), *(f"{report.percentile(values, p):.0f}" for p in (50, 90, 99)))
        for name, values in (
            *((f"end of turn → first audio, {name}", v) for name, v in figures.first_audio_ms.items()),
            ("speech over a reply → last old audio", figures.interrupted_ms),
        )
    ]
    report.print_table("latency, ms", ("what", "n", "p50", "p90", "p99"), rows)
    loads = [
        (talks, f"{percent:.1f}", f"{percent / talks:.2f}", f"{100 * talks / percent:.0f}")
        for talks, percent in figures.cpu_percent.items()
    ]
    header = ("talks at once", "CPU %", "CPU % of a talk", "talks a core")
    report.print_table("the server alone, every caller speaking or listening", header, loads)
    goals = [
        report.Goal(
            "first audio with speculation, p50",
            report.median(figures.first_audio_ms["speculating"]),
            FIRST_AUDIO_MS,
            "ms",
        ),
        report.Goal("interruption, p99", report.percentile(figures.interrupted_ms, 99), INTERRUPT_MS, "ms"),
        report.Goal("memory of an idle talk", figures.idle_mb, IDLE_MB, "MB"),
    ]
    missed = report.print_goals(goals)
    report.write_json(json_path, {"figures": _as_json(figures), "goals": [goal.row() for goal in goals]})
    return missed


async def _measure() -> Figures:
    figures = Figures()
    with free_server() as (port, process):
        figures.idle_mb = await _idle(port, process)
        for talks in TALKS:
            figures.cpu_percent[talks] = await _load(port, process, talks)
            print(f"… {talks} talks: {figures.cpu_percent[talks]:.1f} % CPU", flush=True)
        figures.interrupted_ms = await _interruptions(port)
    for name, options in (("speculating", []), ("waiting for the end", ["--no-speculation"])):
        with pack_server(options) as (port, _):
            figures.first_audio_ms[name] = await _questions(port)
    return figures


# ---------------------------------------------------------------------------------------------- what is asked


async def _questions(port: int) -> list[float]:
    async with calling(port) as caller:
        # The first answer warms what was not yet used.
        await _ask(caller, speech(SPOKEN / f"{QUESTIONS[0]}.flac"))
        return [await _ask(caller, speech(SPOKEN / f"{name}.flac")) for name in QUESTIONS]


async def _ask(caller: Caller, question) -> float:
    """ms from the end of the turn to the first audio."""
    before = len(caller.events)
    await caller.speak(packets(silence(0.3), question, silence(1.0)))
    _, stopped = await caller.until("input_audio_buffer.speech_stopped", before)
    ended_at = caller.sent_at[round(stopped["audio_end_ms"] / 1000 / callers.PACKET_S) - 1]
    first, _ = await caller.until("response.output_audio.delta", before)
    await caller.until("response.done", before)
    last = [at for at, event in caller.events[before:] if event["type"] == "response.output_audio.delta"][-1]
    # Up to a second of it is still to be heard.
    quiet = packets(silence(max(0.0, last + 1.5 - time.perf_counter())))
    await caller.speak(quiet)
    return (first - ended_at) * 1000


async def _interruptions(port: int) -> list[float]:
    found: list[float] = []
    question = packets(speech(SPOKEN / "sum-1-1.flac"), silence(0.7))
    over = packets(speech(SPOKEN / "fact-1-1.flac"))
    async with calling(port) as caller:
        for _ in range(INTERRUPTIONS):
            before = len(caller.events)
            await caller.speak(question)
            await caller.until("response.output_audio.delta", before)
            await caller.speak(packets(silence(1.0)))
            response = next(e for _, e in caller.events[before:] if e["type"] == "response.created")[
                "response"
            ]["id"]
            begin, position = len(caller.sent_at), len(caller.events)
            await caller.speak(over)
            await caller.until("input_audio_buffer.speech_started", position)
            late = [
                at
                for at, event in caller.events[before:]
                if event["type"] == "response.output_audio.delta" and event["response_id"] == response
            ]
            found.append(max(0.0, late[-1] - caller.sent_at[begin]) * 1000)
            await caller.speak(packets(silence(0.8)))
            await caller.until("response.created", position)
            await caller.socket.send('{"type":"response.cancel"}')
            await caller.speak(packets(silence(1.5)))
    return found


async def _load(port: int, process: psutil.Process, talks: int) -> float:
    """CPU % of the server while `talks` callers speak and listen in turns."""
    messages = packets(speech(SPOKEN / "sum-1-1.flac"), silence(4.0))

    async def call() -> None:
        async with calling(port) as caller:
            await caller.speak(messages * 2)

    callers_of_all = [asyncio.create_task(call()) for _ in range(talks)]
    await asyncio.sleep(1.0)
    before, begin = sum(process.cpu_times()[:2]), time.perf_counter()
    await asyncio.sleep(8.0)
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


def _as_json(figures: Figures) -> dict[str, object]:
    return {
        "first_audio_ms": figures.first_audio_ms,
        "interrupted_ms": figures.interrupted_ms,
        "cpu_percent": figures.cpu_percent,
        "idle_mb": figures.idle_mb,
    }
