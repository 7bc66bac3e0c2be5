"""The capacity model held against real talks with the local pack on this machine.

    python -m load.simulate_check                   # people who call the server over WebSockets
    python -m load.simulate_check --pipeline        # the pipeline alone: questions are given whole
    python -m load.simulate_check --real run.json   # a run that was kept with --keep, predicted again

Crowds talk, and the model replays what they said with the service times of `measure_stages`: the same
questions by the same people, begun at the same moments. Nothing is fitted to what they met.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import msgspec

from load import real_run
from load.measure_stages import OUT, pace_now
from load.real_run import Crowd, Figures, Run
from load.simulate import P95_S
from load.simulation.box import Box
from load.simulation.clock import Clock
from load.simulation.costs import Measured, read
from load.simulation.local import local_machine
from load.simulation.people import Server, follow
from voice_app.bench import report

PEOPLE = (1, 2, 4, 6, 8, 12)
ROUNDS = 2
SECONDS = 40.0
REPLAYS = 8
"""Of each crowd, each in another part of the machine's pace."""
WITHIN = 0.2


def main() -> int:
    """Measure, predict, compare; returns 1 if a prediction is off by more than `WITHIN`."""
    parser = argparse.ArgumentParser(description="The capacity model against real talks")
    parser.add_argument("--costs", type=Path, default=OUT, metavar="FILE")
    parser.add_argument("--people", type=int, nargs="+", default=list(PEOPLE), metavar="N")
    parser.add_argument("--pipeline", action="store_true", help="without a server: questions are given whole")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the pipeline's crowds")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that the server's callers are held")
    parser.add_argument("--real", type=Path, nargs="+", metavar="FILE", help="runs that were kept, as one")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep the run")
    parser.add_argument("--json", metavar="FILE", help="keep the figures")
    options = parser.parse_args()
    costs = read(options.costs)
    run = real_run.joined(map(real_run.read, options.real)) if options.real else _real(options)
    if options.keep:
        real_run.write(run, options.keep)
    return compare(costs, run, options.json)


def _real(options: argparse.Namespace) -> Run:
    if options.pipeline:
        before = pace_now(options.costs)
        crowds = asyncio.run(_pipeline(options.people, options.rounds))
        pace = (before + pace_now(options.costs)) / 2
        return Run(report.machine(), None, [msgspec.structs.replace(crowd, pace=pace) for crowd in crowds])
    # Imported here: it patches the process for gevent, which asyncio does not bear.
    from load import real_callers

    crowds, silence_ms = real_callers.run(options.people, options.seconds, lambda: pace_now(options.costs))
    return Run(report.machine(), silence_ms, crowds)


async def _pipeline(people: list[int], rounds: int) -> list[Crowd]:
    # Imported here: it is wanted without a server only.
    from load import real_talks

    return await real_talks.run(people, rounds)


def compare(costs: Measured, run: Run, json_path: str | None) -> int:
    """The table of both."""
    real = {people: run.figures(people) for people in run.people()}
    model = predicted(costs, run)
    rows: list[tuple[object, ...]] = []
    goals: list[report.Goal] = []
    for people, met in real.items():
        for percent in (50, 95):
            is_, says = met.percentile(percent), model[people].percentile(percent)
            off = says / is_ - 1
            rows.append((people, len(met.first_audio_s), f"p{percent}", _ms(is_), _ms(says), f"{off:+.0%}"))
            goals.append(report.Goal(f"first audio p{percent}, {people} talks: off by", abs(off), WITHIN))
    report.print_table("first audio", ("talks", "turns", "", "real", "model", "off"), rows)
    print(f"turns with a gap: {_gaps(real)} real, {_gaps(model)} by the model")
    holds, says = most(real), most(model)
    print(f"most talks with p95 ≤ {P95_S:g} s and no gap, of those tried: {holds} real, {says} by the model")
    missed = report.print_goals(goals)
    report.write_json(json_path, {"rows": rows, "holds": holds, "model_holds": says}, goals)
    return 1 if missed else 0


def predicted(costs: Measured, run: Run) -> dict[int, Figures]:
    """What each number of people meets: first audio of the turns of all replays, and turns with a gap in one
    of them, on average."""
    told = {people: Figures([], 0) for people in run.people()}
    gaps = dict.fromkeys(told, 0)
    server = None if run.silence_ms is None else Server(run.silence_ms, costs.around.reply_s)
    on_it = server is not None
    for crowd, replay in product(run.crowds, range(REPLAYS)):
        machine = local_machine(costs, served=on_it, callers=on_it, pace=crowd.pace)
        pace = machine.pace.from_share(replay / REPLAYS)
        box = Box(costs.pack, costs, replace(machine, pace=pace), Clock())
        met = follow(box, costs.pack, real_run.talks(crowd, costs.pack, replay), server)
        for held in crowd.held:
            turns = [turn for turn in met.turns if held.counts(turn.ended)]
            told[held.people].first_audio_s += [t.first_audio_s for t in turns if t.first_audio_s is not None]
            gaps[held.people] += sum(bool(turn.gaps) for turn in turns)
    for people, figures in told.items():
        figures.gaps = gaps[people] / REPLAYS
    return told


def most(met: Mapping[int, Figures]) -> int:
    """The largest number that holds, with all smaller ones; 0: none."""
    found = 0
    for people in sorted(met):
        if not met[people].holds(P95_S):
            break
        found = people
    return found


def _gaps(met: Mapping[int, Figures]) -> str:
    return ", ".join(f"{figures.gaps:.2g} at {people}" for people, figures in met.items())


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
