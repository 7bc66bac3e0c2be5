"""Service times of the local pack's stages on this machine: the capacity model's input.

    python -m load.measure_stages

The pack's own runners run under the real schedulers in one thread, so that nothing else takes the core, with
1 to 8 turns at once. Each call of a runner is timed with what was in it, and a line is drawn through each
stage's calls. The same again while a second process does the same says what the shared memory costs. What
each turn consisted of (tokens, clauses, frames) is kept too.
"""

import argparse
import os
import select
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from scipy.optimize import nnls

from load.simulation.costs import Line, Measured
from load.simulation.shapes import Clause, Pack, Shape
from voice_app import messages as m
from voice_app.bench import questions, report
from voice_app.bench.one_thread import OneThread, Result
from voice_app.bench.talks import spoken_anew
from voice_app.config import PackConfig
from voice_app.messages import Stage, TurnId
from voice_app.models import registry
from voice_app.models.local.clauses import ClauseCutter
from voice_app.schedulers.base import (
    AnyRunner,
    Code2WavRunner,
    Prompt,
    SequenceStep,
    StageInput,
    TalkerRunner,
    ThinkerRunner,
    TokenDecoder,
    WaveWindow,
)

ROUNDS = (1, 2, 3, 1, 4, 1, 6, 2, 8)
"""Turns at once."""
KINDS = ("fact", "sum", "chit-chat")
BESIDE_START_S = 60.0
OUT = Path(__file__).parent / "service_times" / "local.json"
_METHODS = {
    Stage.PREPROCESSING: "run",
    Stage.AUDIO_ENCODER: "run",
    Stage.THINKER: "step",
    Stage.TALKER_AR: "step",
    Stage.CODE2WAV: "decode",
}


class Call(msgspec.Struct, frozen=True):
    """One call of a runner: what was in it, and seconds."""

    amounts: tuple[float, ...]
    seconds: float


def _timed(stage: Stage, runner: AnyRunner, calls: list[Call]) -> AnyRunner:
    """`runner`, whose calls are noted from now on."""
    name = _METHODS[stage]
    call, amounts = vars(type(runner))[name].__get__(runner), _AMOUNTS[stage]

    def timed(batch: Sequence[Any]) -> Sequence[Any]:
        begin = time.perf_counter()
        results = call(batch)
        calls.append(Call(amounts(batch, results), time.perf_counter() - begin))
        return results

    vars(runner)[name] = timed
    return runner


def _heard(batch: Sequence[StageInput], _: Sequence[Any]) -> tuple[float, ...]:
    mel = [item.payload for item in batch if isinstance(item.payload, m.MelFrames)]
    return len(mel), sum(one.seconds for one in mel)


def _prepared(batch: Sequence[StageInput], results: Sequence[Any]) -> tuple[float, ...]:
    made = [p for result in results for p in result if isinstance(p, m.MelFrames)]
    return len(batch), sum(mel.seconds for mel in made)


def _thought(batch: Sequence[SequenceStep], _: Sequence[Any]) -> tuple[float, ...]:
    decodes = sum(bool(step.outputs) and step.count == 1 for step in batch)
    return decodes, sum(step.count for step in batch) - decodes


def _spoken(_: Sequence[Any], results: Sequence[Any]) -> tuple[float, ...]:
    frames = sum(len(r.frames.frames) for r in results if r.frames is not None)
    return float(frames > 0), frames


def _decoded(windows: Sequence[WaveWindow], _: Sequence[Any]) -> tuple[float, ...]:
    return len(windows), sum(len(window.frames) for window in windows)


_AMOUNTS: dict[Stage, Callable[[Sequence[Any], Sequence[Any]], tuple[float, ...]]] = {
    Stage.PREPROCESSING: _prepared,
    Stage.AUDIO_ENCODER: _heard,
    Stage.THINKER: _thought,
    Stage.TALKER_AR: _spoken,
    Stage.CODE2WAV: _decoded,
}


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description="Service times of the local pack's stages")
    parser.add_argument("--out", type=Path, metavar="FILE", default=OUT, help=f"default: {OUT}")
    parser.add_argument("--beside", action="store_true", help="only keep a core busy with the same, for ever")
    options = parser.parse_args()
    pack = registry.create(PackConfig(), lambda _: None)
    calls: dict[Stage, list[Call]] = defaultdict(list)
    talks = OneThread(
        lambda stage: (
            _timed(stage, pack.build(stage), calls[stage]) if stage in _AMOUNTS else pack.build(stage)
        )
    )
    for runner in talks.runners.values():
        runner.warm_up()
    _round(talks, 2, "warm")
    while options.beside:
        print("busy", flush=True)
        _round(talks, 2, "beside")
    for some in calls.values():
        some.clear()
    begin = time.perf_counter()
    shapes = [
        shape for number, turns in enumerate(ROUNDS) for shape in _round(talks, turns, f"alone-{number}")
    ]
    wall = time.perf_counter() - begin
    steps = sum(len(some) for some in calls.values())
    spent = sum(call.seconds for some in calls.values() for call in some)
    alone = {stage: [*some] for stage, some in calls.items()}
    crowded = _crowded(talks, calls, alone)
    lines = {stage: line(some) for stage, some in alone.items()}
    options.out.parent.mkdir(exist_ok=True)
    measured = Measured(
        machine=report.machine(),
        cores=os.cpu_count() or 1,
        crowded=crowded,
        step_s=max(0.0, wall - spent) / steps,
        preprocessing_line=lines[Stage.PREPROCESSING],
        audio_encoder_line=lines[Stage.AUDIO_ENCODER],
        thinker_line=lines[Stage.THINKER],
        talker_line=lines[Stage.TALKER_AR],
        code2wav_line=lines[Stage.CODE2WAV],
        pack=_pack(talks, tuple(shapes)),
    )
    options.out.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")
    rows = [
        (stage, len(alone[stage]), f"{1000 * fit.base:.2f}", ", ".join(f"{1000 * x:.3f}" for x in fit.each))
        for stage, fit in lines.items()
    ]
    report.print_table("service times, ms", ("stage", "calls", "a call", "for each of what is in it"), rows)
    print(
        f"with both cores at work {crowded:.2f} times as long; {1e6 * measured.step_s:.0f} µs beside a call"
    )
    return 0


def line(calls: Sequence[Call]) -> Line:
    """The line through the calls, none of its numbers below 0, by what it misses in proportion."""
    amounts = np.array([(1.0, *call.amounts) for call in calls])
    seconds = np.array([call.seconds for call in calls])
    base, *each = nnls(amounts / seconds[:, None], np.ones(len(calls)))[0]
    return Line(float(base), tuple(map(float, each)))


def _crowded(talks: OneThread, calls: dict[Stage, list[Call]], alone: dict[Stage, list[Call]]) -> float:
    """How many times as long calls take while a second process does the same."""
    command = [sys.executable, "-m", "load.measure_stages", "--beside"]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        if not select.select([other.stdout], [], [], BESIDE_START_S)[0]:
            raise TimeoutError("the second process did not begin")
        for some in calls.values():
            some.clear()
        for number, turns in enumerate(ROUNDS):
            _round(talks, turns, f"crowded-{number}")
    finally:
        other.kill()
        other.wait()
    before = sum(call.seconds for some in alone.values() for call in some)
    return max(1.0, sum(call.seconds for some in calls.values() for call in some) / before)


def _round(talks: OneThread, turns: int, name: str) -> list[Shape]:
    """So many different questions, at once; what each turn consisted of."""
    pool = [q for q in questions.read() if q.kind in KINDS]
    asked = [pool[(turns + number) % len(pool)] for number in range(turns)]
    noise = np.random.default_rng(hash(name) & 0xFFFF)
    requests = []
    for number, question in enumerate(asked):
        parts = spoken_anew(questions.parts(question, 0), int(noise.integers(1 << 32)))
        identity = TurnId(name, str(number), time.monotonic_ns())
        requests.append(m.TurnRequest(identity, (m.Message("user", parts),), now=question.now))
    results = talks.run(requests)
    shapes = [_shape(talks, result) for result in results]
    talks.results.clear()
    return shapes


def _shape(talks: OneThread, result: Result) -> Shape:
    part = result.request.messages[-1].parts[0]
    assert isinstance(part, m.AudioPart)
    tokens, cutter, ends = cast(TokenDecoder, talks.runners[Stage.DECODE]), ClauseCutter(), []
    for number, token in enumerate(result.token_ids, 1):
        cutter.push(tokens.token_bytes(token).decode(errors="replace"))
        ends += _taken(cutter, number)
    cutter.finish()
    ends += _taken(cutter, len(result.token_ids))
    # Each clause its share of the frames, by its letters.
    frames, letters = len(result.codes), sum(size for _, size in ends)
    clauses = tuple(Clause(at, max(1, round(frames * size / letters))) for at, size in ends)
    usage = result.text_done.usage
    return Shape(
        speech_s=len(part.samples) / part.sample_rate,
        asked=usage.prompt_tokens - len(_opening(talks).keys),
        # The last step gives the token that ends the answer.
        tokens=usage.output_tokens + 1,
        clauses=clauses,
    )


def _taken(cutter: ClauseCutter, tokens: int) -> list[tuple[int, int]]:
    """The clauses that are whole by now: (tokens so far, letters)."""
    found = []
    while cutter.peek() is not None:
        found.append((tokens, len(cutter.take().text)))
    return found


def _opening(talks: OneThread) -> Prompt:
    (opening,) = cast(ThinkerRunner, talks.runners[Stage.THINKER]).openings()
    return opening


def _pack(talks: OneThread, shapes: tuple[Shape, ...]) -> Pack:
    thinker = cast(ThinkerRunner, talks.runners[Stage.THINKER])
    spec = cast(Code2WavRunner, talks.runners[Stage.CODE2WAV]).spec
    return Pack(
        name="local",
        shared=len(_opening(talks).keys),
        frame_s=spec.samples_per_frame / spec.sample_rate,
        pages=thinker.num_pages,
        page_size=thinker.page_size,
        max_positions=thinker.max_positions,
        left_context=spec.left_context,
        right_context=spec.right_context,
        first_window=spec.first_window,
        max_window=spec.max_window,
        states=cast(TalkerRunner, talks.runners[Stage.TALKER_AR]).max_states,
        codes=False,
        shapes=shapes,
    )


if __name__ == "__main__":
    sys.exit(main())
