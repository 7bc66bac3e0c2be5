"""The report of a run: everything that is drawn, as plain data; read from and written to report.json."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from load.drift import ALPHA, by_window, drift
from load.figures import (
    Evidence,
    StepFigures,
    TurnFigures,
    Window,
    path_to_sound,
    traces_of,
    turns_of,
)
from load.turns import Outcome, Turn
from load.watch import CLIENT, Sample
from voice_app.bench.report import median, percentile
from voice_app.errors import ConfigError

EXCERPT = 4
"""Turns that the timeline shows."""
PARTS = 60
"""Points of a soak's lines."""
WARM_UP_S = 300.0
"""For so long after its start a process's memory fills with what it keeps: KV pages, caches, arenas."""
TURNS_A_PART = 10
"""At least, for a p95."""
SAMPLES_A_PART = 3


class Said(msgspec.Struct, frozen=True):
    """One turn of the timeline. `heard`: [begin, end] of each stretch that could be heard."""

    recording: str
    speech: tuple[float, float]
    silence_ended: float | None
    first_text: float | None
    first_audio: float | None
    arrivals: list[float]
    heard: list[tuple[float, float]]
    underruns: list[tuple[float, float]]
    interrupted: float | None
    silent: float | None
    outcome: str


class StageBar(msgspec.Struct, frozen=True):
    """A stage at work on one turn of the timeline."""

    stage: str
    begin: float
    first_out: float
    end: float


class Timeline(msgspec.Struct, frozen=True):
    """One talk."""

    person: str
    sessions: int
    said: list[Said]
    stages: list[StageBar]


class DriftFigures(msgspec.Struct, frozen=True):
    """A straight line through one figure of a soak: `level` in `unit`, `change` over the whole run with the
    `margin` of its interval (95 % for all figures together), `scatter` of the points around the line."""

    name: str
    unit: str
    level: float
    change: float
    margin: float
    scatter: float
    verdict: str
    points: list[tuple[float, float]]


class Answer(msgspec.Struct, frozen=True):
    """The largest number of talks that held. `note`: what a reader must know about it."""

    sessions: int
    confirmed: bool
    note: str


class Report(msgspec.Struct, frozen=True):
    """`kind`: ramp or soak. `breakdown`: for each turn of the step that the answer names, the seconds that
    each stage added until the first sound; `timeline`: a talk of that step."""

    kind: str
    machine: dict[str, str | int]
    target: str
    scenario: str
    silence_ms: int
    first_audio_limit_s: float
    settle_s: float
    answer: Answer | None
    steps: list[StepFigures]
    turns: list[TurnFigures]
    samples: list[Sample]
    breakdown: list[dict[str, float]]
    timeline: Timeline | None
    drifts: list[DriftFigures] = []


def read(path: Path) -> Report:
    """Raises ConfigError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Report)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", param="report") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: not a report of this version ({error})", param="report") from error


def write(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))


def samples_since(evidence: Evidence, origin: float) -> list[Sample]:
    """The samples, with times from `origin`."""
    return [msgspec.structs.replace(sample, at=sample.at - origin) for sample in evidence.samples]


def breakdown(evidence: Evidence, windows: Sequence[Window]) -> list[dict[str, float]]:
    """`path_to_sound` of every turn of the windows, the fastest first."""
    parts = [path_to_sound(trace) for window in windows for trace in traces_of(evidence, window)]
    return sorted((part for part in parts if part), key=lambda part: sum(part.values()))


def timeline(evidence: Evidence, window: Window, origin: float) -> Timeline | None:
    """The talk of the window that shows most: many turns, one of them interrupted."""
    talks: dict[int, list[Turn]] = {}
    for turn in turns_of(evidence, window):
        if turn.chunks:
            talks.setdefault(turn.talk, []).append(turn)
    if not talks:
        return None
    turns = _excerpt(max(talks.values(), key=_tells))
    first, last = turns[0].speech_began, turns[-1].ended or turns[-1].speech_began
    stages = [
        StageBar(name, begin + span.first_in, begin + span.first_out, begin + span.last_out)
        for trace in evidence.traces
        if trace.session == turns[0].session
        if first <= trace.submitted - evidence.wall_offset <= last
        for begin in [trace.submitted - evidence.wall_offset - origin]
        for name, span in trace.stages.items()
    ]
    return Timeline(turns[0].person, window.sessions, [_said(turn, origin) for turn in turns], stages)


def _tells(turns: Sequence[Turn]) -> float:
    interrupted = any(turn.outcome is Outcome.INTERRUPTED for turn in turns)
    return len(turns) + 2 * interrupted


def _excerpt(turns: Sequence[Turn]) -> Sequence[Turn]:
    """A few of a talk's turns: up to the first that was interrupted and the one after it."""
    cut = next((i for i, turn in enumerate(turns) if turn.outcome is Outcome.INTERRUPTED), EXCERPT - 2)
    end = max(cut + 2, EXCERPT)
    return turns[max(0, end - EXCERPT) : end]


def _said(turn: Turn, origin: float) -> Said:
    def since(at: float | None) -> float | None:
        return None if at is None else at - origin

    return Said(
        turn.recording,
        (turn.speech_began - origin, (turn.speech_ended or turn.speech_began) - origin),
        since(turn.silence_ended),
        since(turn.first_text),
        since(turn.first_audio),
        [at - origin for at, _ in turn.chunks],
        [(begin - origin, end - origin) for begin, end in heard(turn)],
        [(underrun.at - origin, underrun.seconds) for underrun in turn.underruns],
        since(turn.interrupted),
        since(turn.silent),
        str(turn.outcome),
    )


def heard(turn: Turn) -> list[tuple[float, float]]:
    """[begin, end] of each stretch in which the answer could be heard without a gap."""
    stretches: list[tuple[float, float]] = []
    for at, seconds in turn.chunks:
        if stretches and at <= stretches[-1][1]:
            begin, end = stretches.pop()
            stretches.append((begin, end + seconds))
        else:
            stretches.append((at, at + seconds))
    until = turn.silent if turn.silent is not None else float("inf")
    return [(begin, min(end, until)) for begin, end in stretches if begin < until]


def drifts(
    evidence: Evidence, window: Window, origin: float, warm_up_s: float = WARM_UP_S
) -> list[DriftFigures]:
    """p95 of first audio and, as soon as `warm_up_s` have passed since `origin`, the memory of every process
    of the server's, in parts of the window; none of a figure whose parts are too few to tell. That of the
    callers, who keep what they measured, is left out."""
    turns = [turn for turn in turns_of(evidence, window) if turn.first_audio_s is not None and not turn.early]
    latency = _in_parts(
        [(turn.ended or 0.0, turn.first_audio_s or 0.0) for turn in turns], window, TURNS_A_PART
    )
    figures = [("p95 of first audio", "ms", [(at, 1000 * percentile(values, 95)) for at, values in latency])]
    warm = replace(window, begin=max(window.begin, origin + warm_up_s))
    samples = [sample for sample in evidence.samples if warm.begin <= sample.at < warm.end]
    names = dict.fromkeys(name for sample in samples for name in sample.processes)
    for name in (name for name in names if name != CLIENT):
        own = [(s.at, s.processes[name].memory_mb) for s in samples if name in s.processes]
        points = [(at, median(values)) for at, values in _in_parts(own, warm, SAMPLES_A_PART)]
        figures.append((f"memory, {name}", "MB", points))
    found = [_drift(*figure, origin, ALPHA / len(figures)) for figure in figures]
    return [drift for drift in found if drift is not None]


def _in_parts(
    values: Sequence[tuple[float, float]], window: Window, least: int
) -> list[tuple[float, list[float]]]:
    """`PARTS` of the window, fewer where there are not `least` values for each."""
    count = max(1, min(PARTS, len(values) // least))
    times, figures = [at for at, _ in values], [value for _, value in values]
    parts = by_window(times, figures, count, window.begin, window.end)
    return [(at, inside) for at, inside in parts if inside]


def _drift(
    name: str, unit: str, points: list[tuple[float, float]], origin: float, alpha: float
) -> DriftFigures | None:
    points = [(at - origin, value) for at, value in points]
    line = drift([at for at, _ in points], [value for _, value in points], alpha)
    if line is None:
        return None
    seconds = points[-1][0] - points[0][0]
    margin = line.margin * seconds
    return DriftFigures(name, unit, line.level, line.change, margin, line.scatter, line.verdict, points)
