"""What crossing an edge costs, process to process: from send called to data usable.

Every way of crossing has its own receiving process. Batches of all ways are interleaved in random order,
messages are paced as tokens come, each is waited for before the next; a figure is the median over repetitions
of a batch's median, a ratio the median of the ratios within a repetition.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import numpy as np

from voice_app.bench import edge_crowd, edge_pipeline
from voice_app.bench.edge_pipeline import QUESTIONS, TOYS
from voice_app.bench.edge_ways import KB, TURN, Bare, Payload, Way, array_of, open_ways, thinker_outlet
from voice_app.bench.report import Goal, median, percentile, print_goals, print_table, write_json
from voice_app.errors import ModelFileError
from voice_app.messages import Stage, TokenId, TokenVector
from voice_app.pipeline.carriers import LocalCarrier
from voice_app.pipeline.control import INLINE_LIMIT
from voice_app.pipeline.inlet import Delivery
from voice_app.pipeline.rundir import RunDir

REPETITIONS = 7
BATCH = 16
PACE_S = 0.003


def _vector(size: int) -> TokenVector:
    return TokenVector(5, np.ones(size // 4, np.float32))


PAYLOADS: dict[str, Payload] = {
    "a token id": TokenId(5),
    "160 codes": TokenVector(5, np.ones(160, np.int32)),
    "4 KB vector": _vector(4 * KB),
    "16 KB": _vector(16 * KB),
    "64 KB": _vector(64 * KB),
    "520 KB": _vector(520 * KB),
    "3,136 KB": _vector(3136 * KB),
    "2,408,448 values": _vector(2_408_448 * 4),
}
"""The edges' real sizes, and some around the inline limit."""

Ratio = Callable[[str, str], float]
Figures = Mapping[str, Mapping[str, float]]


def _batch(way: Way, payload: Payload) -> list[float]:
    """Microseconds of BATCH messages."""
    took = []
    for _ in range(BATCH):
        way.prepare()
        time.sleep(PACE_S)
        start = time.monotonic_ns()
        way.send(payload)
        took.append((way.arrived() - start) / 1e3)
    return took


def _compare(ways: list[Way], payload: Payload) -> tuple[dict[str, float], Ratio]:
    """Each way's median, and the ratio of one way to another."""
    medians: dict[str, list[float]] = defaultdict(list)
    size = array_of(payload).nbytes
    chosen = [way for way in ways if way.takes(size)]
    for repetition in range(REPETITIONS + 1):
        for way in random.sample(chosen, len(chosen)):
            middle = median(_batch(way, payload))
            if repetition:  # The first maps memory and opens connections.
                medians[way.name].append(middle)

    def ratio(candidate: str, baseline: str) -> float:
        return median([a / b for a, b in zip(medians[candidate], medians[baseline], strict=True)])

    return {name: median(values) for name, values in medians.items()}, ratio


def by_reference(count: int = 2000) -> list[float]:
    """Microseconds from send to the delivered object, within a process."""
    arrived: list[float] = []
    there: list[Delivery] = []

    def deliver(delivery: Delivery) -> None:
        arrived.append((time.monotonic_ns() - start) / 1e3)
        there.append(delivery)

    carrier = LocalCarrier(deliver)
    outlet = thinker_outlet({Stage.DECODE: {"here": carrier}})
    carrier.outlet = outlet
    for _ in range(count):
        start = time.monotonic_ns()
        outlet.send(TURN, TokenId(5))
        there.pop().release()
    return arrived


def _goals(figures: Figures, ratios: dict[str, Ratio]) -> list[Goal]:
    token, audio, photo = "4 KB vector", "520 KB", "3,136 KB"
    at_most = 1.3 * figures[photo]["floor"] + 50
    goals = [
        Goal("4 KB inline / bare zmq", ratios[token]("inline", "zmq"), 1.25, "×"),
        Goal("4 KB in a slot / bare zmq", ratios[token]("slot", "zmq"), 1.35, "×"),
        Goal(f"{photo} in a slot, against memcpy and hop", figures[photo]["slot"], at_most, "µs"),
        Goal(f"{photo}, queue / slot", ratios[photo]("mp queue", "slot"), 5, "×", at_least=True),
        Goal(f"{photo}, zmq + pickle / slot", ratios[photo]("zmq + pickle", "slot"), 1, "×", at_least=True),
    ]
    if "ray" in figures[photo]:
        goals.append(Goal(f"{photo}, Ray / slot", ratios[photo]("ray", "slot"), 1, "×", at_least=True))
    if "mooncake" in figures[photo]:
        for size, limit in ((audio, 1.5), (photo, 1.25), ("2,408,448 values", 1.25)):
            name = f"{size}, Mooncake / memcpy, hop and bare read"
            goals.append(Goal(name, ratios[size]("mooncake", "bare mooncake"), limit, "×"))
    return goals


def main(json_path: str | None) -> int:
    """Measure, print, keep; returns how many goals were missed."""
    run_dir = RunDir()
    figures: dict[str, dict[str, float]] = {}
    ratios: dict[str, Ratio] = {}
    with ExitStack() as opened:
        opened.callback(run_dir.remove)
        ways, unmeasured = open_ways(run_dir, opened)
        for name, payload in PAYLOADS.items():
            figures[name], ratios[name] = _compare(ways, payload)
        bare = next(way for way in ways if isinstance(way, Bare) and way.name == "zmq")
        stages = asyncio.run(edge_pipeline.stage_to_stage(bare, PAYLOADS["4 KB vector"]))
        crowd = edge_crowd.measure(run_dir)
    reference = by_reference()
    turns = {"toy models": asyncio.run(edge_pipeline.one_process_or_seven(TOYS, ("40",)))}
    try:
        turns["local pack"] = asyncio.run(edge_pipeline.one_process_or_seven("local", QUESTIONS))
    except ModelFileError as error:
        unmeasured.append(f"the local pack: {error}")
    _print(figures, [way.name for way in ways], stages, crowd, turns)
    goals = [
        Goal("by reference, p50", median(reference), 10, "µs"),
        *_goals(figures, ratios),
        Goal("4 KB from stage to stage / bare zmq", stages["ratio"], 1.5, "×"),
        Goal("8 producers, p50 / bare zmq", crowd["p50 ratio"], 1.3, "×"),
        Goal("8 producers, p99", crowd["inline p99"] / 1e3, 5, "ms"),
    ]
    unmeasured.append("CUDA IPC: it needs GPUs, and is tested where they are (pytest -m gpu)")
    missed = print_goals(goals, unmeasured)
    figures["by reference"] = {"p50": median(reference), "p99": percentile(reference, 99)}
    figures["stage to stage"] = stages
    figures["8 producers"] = crowd
    write_json(json_path, {"microseconds": figures, "turns, ms": turns, "not measured": unmeasured}, goals)
    return missed


def _print(
    figures: Figures, ways: list[str], stages: dict[str, float], crowd: dict[str, float], turns: Figures
) -> None:
    print_table(
        f"one way, µs, median (inline limit {INLINE_LIMIT // KB} KB)",
        ("payload", *ways),
        [
            (size, *(f"{row[way]:,.0f}" if way in row else "–" for way in ways))
            for size, row in figures.items()
        ],
    )
    print_table(
        "4 KB, µs",
        ("", "bare zmq", "ours"),
        [
            ("stage to stage, p50", f"{stages['bare']:,.0f}", f"{stages['ours']:,.0f}"),
            *(
                (f"8 producers, {p}", f"{crowd[f'zmq {p}']:,.0f}", f"{crowd[f'inline {p}']:,.0f}")
                for p in ("p50", "p99")
            ),
        ],
    )
    print_table(
        "a written turn, mean ms",
        ("models", "one process", "a process for each stage", "change", "a turn's median change"),
        [
            (
                models,
                f"{turn['single']:,.1f}",
                f"{turn['seven']:,.1f}",
                f"{turn['change']:+.1f} %",
                f"{turn['median change']:+.1f} %",
            )
            for models, turn in turns.items()
        ],
    )
