"""How many can talk: the capacity model's answers, as tables, plots and JSON.

    python -m load.simulate                                 # this project's measured service times
    python -m load.simulate --gpu-report report.json        # with what load/gpu_check.py measured
    python -m load.simulate --plots docs/images

1. the local pack on the measured machine: talks at once, what gives out first, what more cores buy;
2. Qwen3-Omni on a box of two GPUs: the same, and what replicas buy;
3. bursts: so many people begin within a second;
4. what 10,000 and 1,000,000 talks at once need.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from load.simulation import fleet, qwen3_omni
from load.simulation.box import Box, Machine
from load.simulation.clock import Clock
from load.simulation.costs import Costs, read
from load.simulation.local import local_machine
from load.simulation.people import Manner, Met, Server, Talk, burst, follow, most, talks
from load.simulation.shapes import Pack
from voice_app.bench import report
from voice_app.messages import Stage
from voice_app.pipeline import layout

MEASURED = Path(__file__).parent / "service_times" / "local.json"
P95_S = 1.0
"""What the 95th percentile of first audio may be, from the end of the speech."""
MANNER = Manner(turns=4, think_s=(0.5, 2.0), arrive_within_s=8.0)
"""As the callers of `python -m load` are."""
SILENCE_MS = 200
"""That ends a question; the work on it begins after 160 ms."""
CORE_TALKS = 100.0
"""Talks that one core of the server process carries: `voice-app bench realtime`, rounded down."""
CPU_CORES = 16.0
LOCAL_CORES = (2, 4)
LOCAL_PEOPLE = (1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32)
LOCAL_SEEDS = 4
OMNI_PEOPLE = (16, 64, 128, 192, 256, 384, 512)
OMNI_SEEDS = 1
LOCAL_BURSTS = (1, 2, 4, 8, 16)
OMNI_BURSTS = (1, 2, 4, 8, 16, 32, 64)
BURST_S = 1.0
"""A burst: so many people end a question within this time."""
FLEETS = (10_000, 1_000_000)


@dataclass(slots=True)
class Point:
    """So many people on one machine. `busy`: of each processor and each stage, shares of one core's time."""

    people: int
    p50_s: float
    p95_s: float
    gaps: int
    turns: int
    processors: dict[str, float]
    stages: dict[str, float]


@dataclass(slots=True)
class Curve:
    """One machine with ever more people. `limit`: the most that hold."""

    name: str
    points: list[Point]
    limit: int

    @property
    def first_full(self) -> str:
        """What works most where it holds no more, or at the last point."""
        last = next((p for p in self.points if p.people > self.limit), self.points[-1])
        processor = max(last.processors, key=lambda name: last.processors[name])
        stage = max(last.stages, key=lambda name: last.stages[name])
        return f"{processor} ({last.processors[processor]:.0%}), most of it {stage}"


def omni_machine(replicas: dict[Stage, int] | None = None) -> Machine:
    """The layout `two-gpu`; each further replica of a stage has a GPU of its own."""
    places: dict[Stage, tuple[str, ...]] = {}
    for stage, at in layout.load("two-gpu").items():
        more = range(1, (replicas or {}).get(stage, 1))
        places[stage] = (at[0].device, *(f"{stage} {number + 1}" for number in more))
    names = {place for some in places.values() for place in some}
    return Machine({name: CPU_CORES if name == "cpu" else 1.0 for name in names}, places)


Crowds = Callable[[Pack, int, int], list[Talk]]
"""Of a pack, so many people, by dice."""


def _talking(pack: Pack, people: int, seed: int) -> list[Talk]:
    return talks(pack, people, MANNER, seed)


def _at_once(pack: Pack, people: int, seed: int) -> list[Talk]:
    return burst(pack, people, BURST_S, seed)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is simulated: a pack on a machine behind a server, with `seeds` crowds of each size."""

    pack: Pack
    costs: Costs
    machine: Machine
    server: Server
    seeds: int

    def point(self, people: int, crowds: Crowds = _talking) -> tuple[Point, Met]:
        """What so many people meet."""
        whole, took = Met(people), 0.0
        busy: dict[str, float] = {}
        worked: dict[str, float] = {}
        for seed in range(self.seeds):
            pace = self.machine.pace.from_share(seed / self.seeds)
            box = Box(self.pack, self.costs, replace(self.machine, pace=pace), Clock())
            met = follow(box, self.pack, crowds(self.pack, people, seed), self.server)
            whole.turns += met.turns
            # Until the last turn began: what then runs out is no load.
            took += max(turn.at for turn in met.turns)
            for name, processor in box.processors.items():
                busy[name] = busy.get(name, 0.0) + processor.busy_s
            for (stage, _), simulated in box.stages.items():
                worked[stage] = worked.get(stage, 0.0) + simulated.busy_s
        point = Point(
            people=people,
            p50_s=whole.percentile(50),
            p95_s=whole.percentile(95),
            gaps=whole.gaps,
            turns=len(whole.turns),
            processors={n: min(1.0, b / took / self.machine.processors[n]) for n, b in busy.items()},
            stages={n: b / took for n, b in worked.items()},
        )
        return point, whole

    def curve(self, name: str, people: Sequence[int]) -> Curve:
        """Ever more people, up to the first number that is far beyond what holds."""
        points, crowds = [], []
        for count in people:
            point, met = self.point(count)
            points.append(point)
            crowds.append(met)
            if met.percentile(95) > 4 * P95_S:
                break
        return Curve(name, points, most(crowds, P95_S))

    def bursts(self, counts: Sequence[int]) -> list[tuple[int, float]]:
        """(people whose questions end within `BURST_S`, p95 of first audio in seconds)."""
        return [(people, self.point(people, _at_once)[0].p95_s) for people in counts]


def main() -> int:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description="How many can talk: the capacity model's answers")
    parser.add_argument("--costs", type=Path, default=MEASURED, metavar="FILE", help="measured service times")
    parser.add_argument("--gpu-report", type=Path, metavar="FILE", help="what load/gpu_check.py --json wrote")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw them there, as SVG")
    parser.add_argument("--json", metavar="FILE", help="keep the figures")
    options = parser.parse_args()
    costs = read(options.costs)
    limits = qwen3_omni.from_report(options.gpu_report) if options.gpu_report else qwen3_omni.ByteLimits()
    served = Server(SILENCE_MS, costs.around.reply_s)
    here = {
        cores: Subject(costs.pack, costs, local_machine(costs, cores), served, LOCAL_SEEDS)
        for cores in LOCAL_CORES
    }
    local = [one.curve(f"local pack, {cores} cores", LOCAL_PEOPLE) for cores, one in here.items()]
    boxes = _omni(limits, served)
    omni = [box.curve(name, OMNI_PEOPLE) for name, box in boxes.items()]
    packs = {
        "local pack": here[LOCAL_CORES[0]].bursts(LOCAL_BURSTS),
        "Qwen3-Omni": next(iter(boxes.values())).bursts(OMNI_BURSTS),
    }
    needs = _needs(omni[0].limit)
    _print(local, omni, packs, needs, costs, limits)
    report.write_json(
        options.json,
        {
            "local": [asdict(one) for one in local],
            "qwen3-omni": [asdict(one) for one in omni],
            "bursts": packs,
            "fleet": [asdict(one) for one in needs],
        },
    )
    if options.plots:
        # Imported here: drawing is wanted by few.
        from load.simulate_plots import draw

        draw(options.plots, local, omni, packs)
    return 0


def _omni(limits: Costs, server: Server) -> dict[str, Subject]:
    kinds = {
        "two GPUs": {},
        "and a second talker": {Stage.TALKER_AR: 2},
        "and a second code2wav": {Stage.CODE2WAV: 2},
    }
    pack = qwen3_omni.pack()
    return {
        name: Subject(pack, limits, omni_machine(replicas), server, OMNI_SEEDS)
        for name, replicas in kinds.items()
    }


def _needs(box_talks: int) -> list[fleet.Need]:
    shapes = qwen3_omni.pack().shapes
    speech = sum(shape.speech_s for shape in shapes) / len(shapes)
    answer = sum(shape.frames for shape in shapes) / len(shapes) * qwen3_omni.FRAME_S
    turn = speech + SILENCE_MS / 1000 + answer + sum(MANNER.think_s) / 2
    talk = fleet.Talk(turn_s=turn, hearing=answer / turn)
    return [fleet.need(count, box_talks, 2, CORE_TALKS, talk) for count in FLEETS]


def _print(
    local: Sequence[Curve],
    omni: Sequence[Curve],
    packs: dict[str, list[tuple[int, float]]],
    needs: Sequence[fleet.Need],
    costs: Costs,
    limits: Costs,
) -> None:
    print(f"local pack: {costs.source}\nQwen3-Omni: {limits.source}\n")
    header = ("", "talks", "p50", "p95", "turns with a gap", "busiest")
    rows = [
        (c.name, p.people, _ms(p.p50_s), _ms(p.p95_s), f"{p.gaps} of {p.turns}", _busiest(p))
        for c in (*local, *omni)
        for p in c.points
    ]
    report.print_table("end of speech → first audio", header, rows)
    limit_rows = [(c.name, c.limit, c.first_full) for c in (*local, *omni)]
    report.print_table(
        f"talks at once with p95 ≤ {P95_S:g} s and no gap", ("", "talks", "full first"), limit_rows
    )
    burst_rows = [(name, *(f"{n}: {_ms(p)}" for n, p in some)) for name, some in packs.items()]
    for row in burst_rows:
        print("begin within a second → p95;", ", ".join(row))
    report.print_table(
        "many talks at once, Qwen3-Omni, 30 % of all kept free",
        tuple(asdict(needs[0])),
        [tuple(f"{v:,.0f}" for v in asdict(n).values()) for n in needs],
    )


def _busiest(point: Point) -> str:
    return ", ".join(
        f"{name} {share:.0%}" for name, share in sorted(point.processors.items(), key=lambda x: -x[1])
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
