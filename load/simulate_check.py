"""The capacity model held against real talks with the local pack on this machine.

    python -m load.simulate_check

Crowds talk over the running pipeline, several times in turn, and the model replays the same crowds with the
measured service times. One number is fitted: how fast the machine is at this moment, by the smallest crowd;
what more talks at once meet is then predicted.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from load.measure_stages import OUT
from load.simulate import local_machine
from load.simulation.box import Box
from load.simulation.clock import Clock
from load.simulation.costs import Line, Measured, read
from load.simulation.people import Manner, Met, crowd
from voice_app.bench import report, talks
from voice_app.config import PipelineConfig
from voice_app.pipeline.client import PipelineClient

PEOPLE = (1, 2, 4, 8)
ROUNDS = 3
SEEDS = 20
P95_S = 1.0
WITHIN = 0.2


@dataclass(slots=True)
class Real:
    """What so many people met, over all rounds. Seconds."""

    people: int
    first_audio_s: list[float] = field(default_factory=list)
    gaps: int = 0

    def percentile(self, percent: float) -> float:
        return report.percentile(self.first_audio_s, percent)

    def holds(self) -> bool:
        return not self.gaps and self.percentile(95) <= P95_S


def main() -> int:
    """Measure, predict, compare; returns 1 if a prediction is off by more than `WITHIN`."""
    parser = argparse.ArgumentParser(description="The capacity model against real talks")
    parser.add_argument("--costs", type=Path, default=OUT, metavar="FILE")
    parser.add_argument("--people", type=int, nargs="+", default=list(PEOPLE), metavar="N")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", metavar="FILE", help="keep the figures")
    options = parser.parse_args()
    costs = read(options.costs)
    real = asyncio.run(_real(options.people, options.rounds))
    return compare(costs, real, options.json)


def compare(costs: Measured, real: Sequence[Real], json_path: str | None) -> int:
    """The table of both."""
    speed = fit(costs, real[0])
    fitted = scaled(costs, speed)
    rows: list[tuple[object, ...]] = []
    goals: list[report.Goal] = []
    for one in real:
        told = predicted(fitted, one.people)
        for percent in (50, 95):
            is_, says = one.percentile(percent), told.percentile(percent)
            rows.append(
                (
                    one.people,
                    len(one.first_audio_s),
                    f"p{percent}",
                    _ms(is_),
                    _ms(says),
                    f"{says / is_ - 1:+.0%}",
                )
            )
            if one.people > real[0].people:
                name = f"first audio p{percent}, {one.people} talks: off by"
                goals.append(report.Goal(name, abs(says / is_ - 1), WITHIN))
    report.print_table("first audio", ("talks", "turns", "", "real", "model", "off"), rows)
    print(f"the machine takes {speed:.2f} times the measured service times")
    missed = report.print_goals(goals)
    report.write_json(json_path, {"rows": rows, "speed": speed, "goals": [goal.row() for goal in goals]})
    return 1 if missed else 0


def fit(costs: Measured, alone: Real) -> float:
    """How many times the service times explain what one talk met, by its p50."""
    low, high = 0.2, 5.0
    for _ in range(12):
        middle = (low + high) / 2
        over = predicted(scaled(costs, middle), alone.people).percentile(50) > alone.percentile(50)
        low, high = (low, middle) if over else (middle, high)
    return (low + high) / 2


def scaled(costs: Measured, factor: float) -> Measured:
    """`costs`, all of them so many times as long."""
    lines = {
        name: Line(value.base * factor, tuple(each * factor for each in value.each))
        for name, value in msgspec.structs.asdict(costs).items()
        if isinstance(value, Line)
    }
    return msgspec.structs.replace(costs, step_s=costs.step_s * factor, **lines)


def predicted(costs: Measured, people: int, seeds: int = SEEDS) -> Met:
    """What so many people meet, over several crowds."""
    whole = Met(people)
    for seed in range(seeds):
        box = Box(costs.pack, costs, local_machine(costs), Clock())
        whole.turns += crowd(box, costs.pack, people, Manner(turns=talks.TURNS_A_TALK), seed).turns
    return whole


async def _real(people: Sequence[int], rounds: int) -> list[Real]:
    found = [Real(count) for count in people]
    async with PipelineClient(PipelineConfig()) as client:
        await talks.run(client, 2, again=rounds)
        for again in range(rounds):
            for one in found:
                met = await talks.run(client, one.people, again)
                one.first_audio_s += [turn.first_audio_ms / 1000 for turn in met.turns if turn.audio_ms]
                one.gaps += met.gaps
                print(f"… {one.people} at once: p50 {_ms(one.percentile(50))}, {one.gaps} gaps", flush=True)
    return found


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
