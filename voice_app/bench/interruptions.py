"""Speech over a reply: from its first packet to the last of the old reply's audio that the server sent.

When that was is asked of the server, so that it can be known of a client that does not read, too.
"""

import asyncio
import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from voice_app.bench.callers import Caller, calling, packets, silence, speech

TOGETHER = 16
"""Callers at once."""
ROUNDS = 3
HEARD_S, UNREAD_S = (0.8, 1.2), (0.8, 6.5)
"""How much of a reply goes by before it is interrupted. Where nobody reads, all is full by then."""


async def measure(port: int, question: Path, over: Path, *, reads: bool) -> list[float]:
    """ms, a figure for each interruption. `port`: of `voice_app.bench.free_server`."""
    said = packets(speech(question), silence(0.7))
    again = packets(speech(over))

    async def rounds(number: int) -> list[float]:
        pauses = np.random.default_rng(number).uniform(*(HEARD_S if reads else UNREAD_S), ROUNDS)
        return [await _interrupt(port, (said, again), float(pause), reads=reads) for pause in pauses]

    return [ms for found in await asyncio.gather(*map(rounds, range(TOGETHER))) for ms in found]


async def _interrupt(
    port: int, speech_of_two: tuple[Sequence[str], Sequence[str]], pause_s: float, *, reads: bool
) -> float:
    said, again = speech_of_two
    async with calling(port, reads=reads) as caller:
        await caller.speak(said)
        await caller.speak(packets(silence(pause_s)))
        begin = len(caller.sent_at)
        await caller.speak(again)
        if not reads:
            caller.listen()
        _, created = await caller.until("response.created")
        await caller.until("input_audio_buffer.speech_started", _second_turn(caller))
        last = await asyncio.to_thread(_last_sent, port, created["response"]["id"])
        return max(0.0, last - caller.sent_at[begin]) * 1000


def _second_turn(caller: Caller) -> int:
    """Position after the first turn's end."""
    kinds = [event["type"] for _, event in caller.events]
    return kinds.index("input_audio_buffer.speech_stopped")


def _last_sent(port: int, response_id: str) -> float:
    """When the last audio of the response was sent; `time.perf_counter` of any process of this machine."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/last-audio/{response_id}", timeout=10) as answer:
        return json.loads(answer.read())
