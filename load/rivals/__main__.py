"""`make rivals`: our local pack beside pipecat, on one machine, in one run, at the pace of speech.

Both have the same weights (Whisper tiny.en, SmolLM2-135M, a Piper voice), the same example turns, and end a
turn after the same silence. Callers say the same recordings to both, each with faint noise of its own, and
measure in their own clock. pipecat is taken as its users get it, and tuned. The systems take turns, so that
whatever else the machine does meets all of them.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import psutil

from load.rivals import systems
from load.rivals.caller import Interruption, Missed, Turn, calling, in_packets
from load.rivals.environment import prepare
from load.rivals.summary import HEADER, INTERRUPTIONS_HEADER, Crowd, goals, interruption_row
from load.rivals.systems import System
from voice_app.bench import report
from voice_app.bench.callers import speech
from voice_app.bench.realtime import SPOKEN
from voice_app.bench.talks import NOISE, THINKING_SECONDS
from voice_app.errors import VoiceAppError

STOP_S = 0.2
QUESTIONS = ("fact-1", "fact-3", "fact-4", "fact-5", "fact-6", "fact-7", "fact-9", "chit-chat-2")
"""Answered by the language model in every system, and spoken without a pause that could end the turn."""
TURNS = {1: 3, 2: 2, 4: 2, 6: 2, 8: 2, 12: 2}
"""Talks at once: turns of each talk in a round."""
TALKS = (1, 4, 8)
INTERRUPTIONS = 3
"""Of each system, in a round."""


def main() -> int:
    """Measure and print; returns 1 if a goal was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--talks", type=int, nargs="+", choices=[*TURNS], default=[*TALKS], help="talks at once"
    )
    parser.add_argument("--json", metavar="FILE", help="keep the figures")
    parser.add_argument("--without-default", action="store_true", help="leave pipecat's defaults out")
    parser.add_argument("--rounds", type=int, default=2, help="times that the systems take turns")
    options = parser.parse_args()
    rounds = range(options.rounds)
    try:
        crowds, interruptions, client = asyncio.run(_compare(options.talks, rounds, options.without_default))
    except VoiceAppError as error:
        print(f"rivals: {error.message}", file=sys.stderr)
        return error.exit_code
    report.print_table(f"end of speech → first audio; a turn ends after {STOP_S} s of silence", HEADER,
                       [crowd.row() for crowd in crowds])  # fmt: skip
    report.print_table(
        "speech over a reply",
        INTERRUPTIONS_HEADER,
        [interruption_row(name, found) for name, found in interruptions.items()],
    )
    print(f"the callers themselves took {client:.0%} of one core")
    print("Qwen3-Omni beside transformers' generate: voice-app bench engine")
    names = [*interruptions]
    own, tuned = ([c for c in crowds if c.system == name] for name in names[:2])
    found = goals(own, tuned, interruptions[names[0]])
    missed = report.print_goals(found)
    figures = {
        "crowds": [asdict(crowd) for crowd in crowds],
        "interruptions": {name: [_kept(i) for i in some] for name, some in interruptions.items()},
        "callers_cpu": client,
    }
    report.write_json(options.json, figures, found)
    return 1 if missed else 0


async def _compare(
    talks: Sequence[int], rounds: range, without_default: bool
) -> tuple[list[Crowd], dict[str, list[Interruption | Missed]], float]:
    """What each system's crowds met, the interruptions of each, and the callers' own CPU (1.0: one core)."""
    rival = prepare(_tell)
    tunings = [systems.TUNED] if without_default else [systems.TUNED, systems.DEFAULT]
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(systems.ours())]
        for tuning in tunings:
            _tell(f"starting {tuning.name}")
            running.append(stack.enter_context(systems.pipecat(rival, tuning, STOP_S)))
        for system in running:
            await _talk(system, 1, random.Random(0), [])
        begin, before = time.monotonic(), _own_cpu_s()
        crowds = [Crowd(system.name, people) for people in talks for system in running]
        for number in rounds:
            for crowd in crowds:
                system = next(system for system in running if system.name == crowd.system)
                await _crowd(system, crowd, TURNS[crowd.people], number)
        client = (_own_cpu_s() - before) / (time.monotonic() - begin)
        interruptions: dict[str, list[Interruption | Missed]] = {system.name: [] for system in running}
        for number in rounds:
            for system in running:
                interruptions[system.name] += await _interruptions(system, number)
    return crowds, interruptions, client


async def _crowd(system: System, crowd: Crowd, turns: int, number: int) -> None:
    """One round: everybody begins within two seconds."""
    dice = [random.Random(1000 * number + 100 * crowd.people + person) for person in range(crowd.people)]
    before = system.cpu_s()
    await asyncio.gather(*(_talk(system, turns, some, crowd.turns) for some in dice))
    crowd.cpu_s += system.cpu_s() - before
    _tell(", ".join(f"{name} {cell}" for name, cell in zip(HEADER, crowd.row(), strict=True)))


async def _talk(system: System, turns: int, dice: random.Random, into: list[Turn]) -> None:
    async with calling(system.port, system.line, STOP_S) as caller:
        await asyncio.sleep(dice.uniform(0, 2))
        for _ in range(turns):
            into.append(await caller.ask(_spoken(dice)))
            if into[-1].unanswered:
                _tell(f"{system.name}: a turn without an answer: {into[-1].unanswered}")
            await asyncio.sleep(dice.uniform(*THINKING_SECONDS))


async def _interruptions(system: System, number: int) -> list[Interruption | Missed]:
    dice = random.Random(number)
    found: list[Interruption | Missed] = []
    for _ in range(INTERRUPTIONS):
        async with calling(system.port, system.line, STOP_S) as caller:
            # An answer that is long enough to be interrupted.
            found.append(await caller.interrupt(_spoken(dice, "fact-5"), _spoken(dice, "fact-3")))
    _tell(f"interruptions of {system.name}: {', '.join(map(str, found))}")
    return found


def _kept(found: Interruption | Missed) -> dict[str, object]:
    return {"missed": found} if isinstance(found, Missed) else asdict(found)


def _spoken(dice: random.Random, name: str | None = None) -> list[np.ndarray]:
    """A question in packets. No recording is heard twice: each gets its own faint noise."""
    sound = speech(SPOKEN / f"{name or dice.choice(QUESTIONS)}-1.flac")
    noise = np.random.default_rng(dice.getrandbits(32)).normal(0, NOISE, len(sound))
    return in_packets(sound + noise.astype(np.float32))


def _own_cpu_s() -> float:
    return sum(psutil.Process().cpu_times()[:2])


def _tell(line: str) -> None:
    print(f"… {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
