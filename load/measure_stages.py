"""Service times of the local pack's stages on this machine: the capacity model's input.

    python -m load.measure_stages
    python -m load.measure_stages --pace    # only how many times as long the calls take now

The pack's own runners run under the real schedulers in one thread, so that nothing else takes the core, in
the environment that workers get. Each question of the callers is asked alone and several at once; each call
of a runner is timed with what was in it, and a line is drawn through each stage's calls. What they took
beside their lines from one moment to the next is kept as the machine's pace. Then:

- after rests: what the first call of each stage, and of each kind, takes beyond its line;
- with and without a second process that does the same, in turns: what the shared memory costs each stage;
- in the running pipeline, one turn at a time, in turns with the one thread: what calls take there, where each
  stage has its own;
- with toys for models: a step's own cost, and a hop's from one process to another;
- over a pipeline that costs nothing: what a talk takes in the server and in the callers
  (`measure_front_end`).

What each question and its answer consist of is kept too: tokens, clauses, frames, and what the server's voice
detector says of it.
"""

import argparse
import asyncio
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from load.question_shapes import Asking, pack_of, pool, recording
from load.simulation.box import Box
from load.simulation.clock import Clock
from load.simulation.costs import PACE_S, Around, Line, Measured, Service, read
from load.simulation.local import local_machine
from load.simulation.people import Said, Talk, follow
from load.simulation.shapes import Shape
from load.stage_calls import KINDS, Call, Calls, beyond, line, pace, paces
from voice_app import messages as m
from voice_app.bench import questions, report
from voice_app.bench.one_thread import OneThread
from voice_app.bench.talks import spoken_anew
from voice_app.config import PackConfig, PipelineConfig
from voice_app.messages import Stage, StageTiming
from voice_app.models import registry
from voice_app.pipeline.client import PipelineClient
from voice_app.pipeline.hosts.local import environment

TALKS_PASSES, TURNS = 2, 4
"""Each question so often in talks of so many turns."""
TOGETHER = (2, 3, 4, 6, 8)
"""Turns at once."""
RESTS, REST_S = 12, 2.0
CROWDED_ROUNDS = 4
CROWDED_TOGETHER = 3
"""In each round, beside every question by itself."""
WARM_TURNS, BETWEEN_S = 3, 0.5
"""In the running pipeline: turns that do not count, and between two turns."""
BESIDE_START_S = 60.0
PACE_TIMEOUT_S = 120.0
FRONT_END_S = 60.0
TOYS = "voice_app.bench.edge_toys:create"
TOY_TOKENS, TOY_TURNS = 40, 10
OUT = Path(__file__).parent / "service_times" / "local.json"


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description="Service times of the local pack's stages")
    parser.add_argument("--out", type=Path, metavar="FILE", default=OUT, help=f"default: {OUT}")
    parser.add_argument("--calls", metavar="FILE", help="keep the calls in one thread")
    parser.add_argument("--beside", action="store_true", help="only keep a core busy with the same, for ever")
    parser.add_argument("--pace", action="store_true", help="only ask a few questions, and print the pace")
    options = parser.parse_args()
    _as_worker()
    calls = Calls()
    calls.count_work()
    pack = registry.create(PackConfig(), lambda _: None)
    asking = Asking(OneThread(lambda stage: calls.timed(stage, pack.build(stage))), calls)
    for runner in asking.talks.runners.values():
        runner.warm_up()
    asking.together(2)
    if options.beside:
        _beside(asking)
    asking.together(2, first=2)
    calls.clear()
    if options.pace:
        print(_pace_now(asking, calls, read(options.out)))
        return 0
    shapes = _each(asking)
    each = calls.copy()
    for number, turns in enumerate(TOGETHER):
        asking.together(turns, first=4 * number)
    alone, assemble_s = calls.copy(), report.median(calls.assembled_s)
    lines = {stage: line(some, base=stage not in KINDS) for stage, some in alone.items()}
    cold = _after_rests(asking, calls)
    crowded = _crowded(asking, calls)
    services = {
        stage: Service(fit, _beside_it(fit, *crowded[stage]), _cold_s(fit, cold[stage]))
        for stage, fit in lines.items()
    }
    measured = Measured(
        machine=report.machine(),
        cores=os.cpu_count() or 1,
        around=_around(),
        assemble_s=assemble_s,
        stages=services,
        pack=pack_of(asking.talks, shapes),
        each_pace=pace(lines, each),
    )
    in_workers = asyncio.run(_in_workers(measured, asking, calls))
    measured = msgspec.structs.replace(measured, stages=in_workers, pace=paces(lines, alone, PACE_S))
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")
    kept = {"alone": alone, "cold": cold, "crowded": crowded}
    report.write_json(options.calls, {name: msgspec.to_builtins(some) for name, some in kept.items()})
    _print(measured, alone)
    return 0


def _as_worker() -> None:
    """Start again in a worker's environment: malloc reads its part of it as the process begins."""
    wanted = environment(os.environ, PackConfig().threads)
    if wanted != dict(os.environ):
        os.execve(sys.executable, [sys.executable, "-m", "load.measure_stages", *sys.argv[1:]], wanted)


def _each(asking: Asking) -> list[Shape]:
    """Each question by itself, and in talks with a history; what each turn consists of."""
    shapes = [shape for question in pool() for shape in asking.talk([question])]
    for seed in range(TALKS_PASSES):
        order = random.Random(seed).sample(pool(), len(pool()))
        shapes += [
            shape
            for first in range(0, len(order), TURNS)
            for shape in asking.talk(order[first : first + TURNS])
        ]
    return shapes


def _pace_now(asking: Asking, calls: Calls, measured: Measured) -> float:
    """How many times as long as then the calls of each question by itself take."""
    for number in range(len(pool())):
        asking.together(1, number)
    lines = {stage: service.line for stage, service in measured.stages.items()}
    return pace(lines, calls.by_stage) / measured.each_pace


def pace_now(costs: Path) -> float:
    """The pace of the moment beside the service times in `costs`, measured by a process of its own."""
    command = [sys.executable, "-m", "load.measure_stages", "--pace", "--out", str(costs)]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=PACE_TIMEOUT_S)
    return float(told.stdout.splitlines()[-1])


def _beside(asking: Asking) -> None:
    while True:
        print("busy", flush=True)
        asking.together(2)


def _after_rests(asking: Asking, calls: Calls) -> dict[Stage, list[list[Call]]]:
    """The first calls of each stage after a rest, one of each kind, rest by rest."""
    first: dict[Stage, list[list[Call]]] = {stage: [] for stage in calls.by_stage}
    for number in range(RESTS):
        calls.clear()
        # The machine rests, and so does whatever keeps its caches warm.
        time.sleep(REST_S)
        asking.together(1, number)
        for stage, some in calls.by_stage.items():
            first[stage].append([call for call in some if any(call.amounts)][: KINDS.get(stage, 1)])
    return first


def _cold_s(fit: Line, first: Sequence[Sequence[Call]]) -> float:
    beyond_s = [sum(call.seconds - fit(*call.amounts) for call in some) for some in first]
    return max(0.0, report.median(beyond_s))


def _crowded(asking: Asking, calls: Calls) -> dict[Stage, tuple[list[Call], list[Call]]]:
    """Each stage's calls while a second process is stopped, and while it does the same: in turns, since what
    else the machine does changes within minutes."""
    found: dict[Stage, tuple[list[Call], list[Call]]] = {stage: ([], []) for stage in calls.by_stage}
    command = [sys.executable, "-m", "load.measure_stages", "--beside"]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        if not select.select([other.stdout], [], [], BESIDE_START_S)[0] or not other.stdout.readline():
            raise TimeoutError("the second process did not begin")
        for number in range(CROWDED_ROUNDS):
            for place, what in enumerate((signal.SIGSTOP, signal.SIGCONT)):
                other.send_signal(what)
                calls.clear()
                for question in range(len(pool())):
                    asking.together(1, question)
                asking.together(CROWDED_TOGETHER, number)
                for stage, some in calls.copy().items():
                    found[stage][place].extend(some)
        if other.poll() is not None:
            raise ChildProcessError(f"the second process ended with {other.returncode}")
        return found
    finally:
        other.kill()
        other.wait()


def _beside_it(fit: Line, without: Sequence[Call], with_it: Sequence[Call]) -> float:
    """How many times as long calls take beside the second process."""
    return max(1.0, beyond(fit, with_it) / beyond(fit, without))


def _around() -> Around:
    step_s, hop_s = asyncio.run(_toys())
    command = [sys.executable, "-m", "load.measure_front_end"]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=FRONT_END_S)
    return Around(step_s=step_s, hop_s=hop_s, **json.loads(told.stdout.splitlines()[-1]))


async def _in_workers(measured: Measured, asking: Asking, calls: Calls) -> dict[Stage, Service]:
    """The services, with what their calls take in the running pipeline, which has but one turn to do. Before
    each of its turns the one thread is asked for the pace of the moment."""
    lines = {stage: service.line for stage, service in measured.stages.items()}
    took: dict[Stage, list[float]] = {stage: [] for stage in measured.stages}
    shapes = {shape.question: shape for shape in measured.pack.shapes if not shape.later}
    async with PipelineClient(PipelineConfig()) as client:
        for number, question in enumerate((*pool()[-WARM_TURNS:], *pool())):
            calls.clear()
            asking.together(1, number)
            now = pace(lines, calls.by_stage)
            await asyncio.sleep(BETWEEN_S)
            real_ms = await _stages_ms(client, question, number)
            if number >= WARM_TURNS:
                busy_s = _alone_busy_s(measured, shapes[recording(question)])
                for stage, some in took.items():
                    some.append(real_ms[stage].busy_ms / 1000 / busy_s[stage] / now)
    return {
        stage: msgspec.structs.replace(service, in_worker=report.median(took[stage]))
        for stage, service in measured.stages.items()
    }


async def _stages_ms(
    client: PipelineClient, question: questions.Question, number: int
) -> dict[str, StageTiming]:
    parts = spoken_anew(questions.parts(question, 0), number)
    request = m.TurnRequest(m.TurnId(f"worker-{number}", "0"), (m.Message("user", parts),), now=question.now)
    async for event in client.submit(request):
        if isinstance(event, m.TurnDone):
            return event.stages
    raise AssertionError("a turn ends with TurnDone")


def _alone_busy_s(measured: Measured, shape: Shape) -> dict[Stage, float]:
    """What the model says that a turn's calls take which is alone."""
    box = Box(measured.pack, measured, local_machine(measured, served=False), Clock())
    (turn,) = follow(box, measured.pack, [Talk(0.0, (Said(shape, 0.0),))], None).turns
    return turn.stages.busy_s


async def _toys() -> tuple[float, float]:
    """Seconds of a step beside its call, and of a hop from one worker to another."""
    steps: list[float] = []
    hops: list[float] = []
    async with PipelineClient(PipelineConfig(PackConfig(TOYS))) as client:
        for number in range(TOY_TURNS):
            message = m.Message("user", (m.TextPart(str(TOY_TOKENS)),))
            async for event in client.submit(m.TurnRequest(m.TurnId("toys", str(number)), (message,))):
                match event:
                    case m.AudioChunk(samples):
                        hops += [each / 1e6 for each in samples.tolist()]
                    case m.TurnDone(stages):
                        steps.append(_beside_call(stages[Stage.THINKER]))
    return max(0.0, report.median(steps)), report.median(hops)


def _beside_call(thinker: StageTiming) -> float:
    """Seconds of each step of the toys' thinker that its call did not take."""
    span_ms = thinker.last_out_ms - thinker.first_in_ms
    return (span_ms - thinker.busy_ms) / 1000 / (TOY_TOKENS + 1)


def _print(measured: Measured, alone: Mapping[Stage, Sequence[Call]]) -> None:
    rows = [
        (
            stage,
            len(alone[stage]),
            f"{1000 * service.line.base:.2f}",
            ", ".join(f"{1000 * each:.3f}" for each in service.line.each),
            f"{service.in_worker:.2f}",
            f"{service.crowded:.2f}",
            f"{1000 * service.cold_s:.1f}",
        )
        for stage, service in measured.stages.items()
    ]
    header = (
        "stage",
        "calls",
        "a call",
        "each of what is in it",
        "in a worker",
        "with both cores at work",
        "after a rest",
    )
    report.print_table("service times, ms", header, rows)
    print(f"assemble_s: {measured.assemble_s:.6f}")
    for name, value in msgspec.structs.asdict(measured.around).items():
        print(f"{name}: {value:.6f}")


if __name__ == "__main__":
    sys.exit(main())
