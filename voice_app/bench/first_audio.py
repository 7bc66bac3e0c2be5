"""`voice-app bench first-audio`: what a caller of the local pack waits for, over a real socket, at the pace
of speech. Spoken questions; from the end of the turn (the packet that completes `silence_duration_ms` has
left) to the first audio byte, with speculative turns and without.
"""

import asyncio
from pathlib import Path

import numpy as np

from voice_app.bench import callers, report
from voice_app.bench.callers import Caller, calling, packets, silence, speech
from voice_app.bench.servers import pack_server

SPOKEN = Path(__file__).parents[2] / "tests" / "data" / "spoken"
QUESTIONS = (
    *("fact-1-1", "sum-1-1", "chit-chat-1-1", "fact-3-1", "sum-3-1", "fact-5-1"),
    *("chit-chat-2-1", "sum-5-1", "fact-2-1", "sum-2-1", "chit-chat-3-1", "fact-4-1"),
)
SPECULATING, WAITING = "with speculation", "without"
FIRST_AUDIO_MS = 150.0


def main(json_path: str | None) -> int:
    """Measure and print; gives how many goals were missed."""
    figures = asyncio.run(_measure())
    rows = [
        (name, len(values), *(f"{report.percentile(values, p):.0f}" for p in (50, 90, 99)))
        for name, values in figures.items()
    ]
    report.print_table("end of turn → first audio, ms", ("", "n", "p50", "p90", "p99"), rows)
    first = report.median(figures[SPECULATING])
    goals = [report.Goal("end of turn → first audio, p50", first, FIRST_AUDIO_MS, "ms")]
    missed = report.print_goals(goals)
    report.write_json(json_path, {"first_audio_ms": figures}, goals)
    return missed


async def _measure() -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {}
    for name, options in ((SPECULATING, []), (WAITING, ["--no-speculation"])):
        with pack_server(options) as (port, _):
            figures[name] = await _questions(port)
        print(f"… questions {name}: {len(figures[name])}", flush=True)
    return figures


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
