"""What came of a run, as plain data: what the report draws and what is kept as JSON. Pure.

Times are seconds; in what is kept they count from the run's first moment.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import msgspec

from load.pacing import Pacing, bottleneck
from load.ramp import Limits, Step
from load.traces import TurnTrace
from load.turns import FAULTS, Outcome, Record, Turn
from load.watch import CLIENT, Sample
from voice_app.bench.report import percentile

PATH = ("preprocessing", "audio_encoder", "image_encoder", "thinker", "talker_ar", "code2wav")
"""The stages on the way to the first sound, in the order in which they are passed."""

T = TypeVar("T")


class Spread(msgspec.Struct, frozen=True):
    """Percentiles of `n` values; None where there are none."""

    n: int
    p50: float | None
    p95: float | None
    p99: float | None


class StageFigures(msgspec.Struct, frozen=True):
    """Of one stage over the turns of a step. `first_out`: since the turn was submitted; `busy`: in model
    calls."""

    first_out: Spread
    busy: Spread


class TurnFigures(msgspec.Struct, frozen=True):
    """One turn, as its caller met it; the waits are those of `Turn`. `underruns`: when, and for how long."""

    sessions: int
    person: str
    talk: int
    recording: str
    speech_ended: float | None
    outcome: str
    detail: str
    early: bool
    first_text_s: float | None
    first_audio_s: float | None
    work_s: float | None
    audio_s: float
    gap_s: float | None
    underruns: list[tuple[float, float]]
    real_time_factor: float | None
    silence_s: float | None
    still_sent_s: float | None


class StepFigures(msgspec.Struct, frozen=True):
    """One try of a number of talks, from `begin` to `end`. `why_not`: what speaks against the number."""

    sessions: int
    begin: float
    end: float
    why_not: list[str]
    client: str | None
    outcomes: dict[str, int]
    first_text: Spread
    first_audio: Spread
    work: Spread
    silence: Spread
    still_sent: Spread
    real_time_factor: Spread
    connect: Spread
    resume: Spread
    gap: Spread
    """Of each turn, the longest time between two pieces of its sound as they came."""
    underrun: Spread
    """Lengths of all underruns."""
    turns_with_underrun: int
    early: int
    overdue: int
    errors: dict[str, int]
    late: Spread
    """Of the callers' own packets."""
    cpu: dict[str, Spread]
    """Percent of one core, for each process."""
    memory_mb: dict[str, Spread]
    cpu_s_per_turn: float | None
    """CPU seconds of all processes but the callers', by turns that ended."""
    stages: dict[str, StageFigures]


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a run in which `sessions` talked. `waits`: for how long each question that had no sound
    yet had been waiting at its end."""

    sessions: int
    begin: float
    end: float
    waits: list[float]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was seen in a run. `wall_offset`: seconds to add to our clock for the wall's."""

    record: Record
    pacing: Pacing
    samples: list[Sample]
    traces: list[TurnTrace]
    wall_offset: float


def spread(values: Iterable[float | None]) -> Spread:
    """None is left out."""
    known = [value for value in values if value is not None]
    if not known:
        return Spread(0, None, None, None)
    return Spread(len(known), *(percentile(known, p) for p in (50, 95, 99)))


def turns_of(evidence: Evidence, window: Window) -> list[Turn]:
    """The turns that ended within the window and whose waits are the server's doing."""
    return [
        turn
        for turn in evidence.record.turns
        if turn.counted and turn.ended is not None and window.begin <= turn.ended < window.end
    ]


def traces_of(evidence: Evidence, window: Window) -> list[TurnTrace]:
    """The turns that were submitted within the window."""
    begin, end = window.begin + evidence.wall_offset, window.end + evidence.wall_offset
    return [trace for trace in evidence.traces if begin <= trace.submitted < end]


def step(evidence: Evidence, window: Window, limits: Limits) -> Step:
    """The window as the search for the largest number sees it."""
    turns = turns_of(evidence, window)
    return Step(
        window.sessions,
        [turn.first_audio_s for turn in turns if turn.first_audio_s is not None and not turn.early],
        underruns=sum(len(turn.underruns) for turn in turns),
        overdue=sum(wait > limits.first_audio_s for wait in window.waits),
        faults=sum(turn.outcome in FAULTS for turn in turns) + len(_within(evidence.record.errors, window)),
        client=_client(evidence, window),
    )


def step_figures(evidence: Evidence, window: Window, limits: Limits, origin: float) -> StepFigures:
    """The window as it is reported; times count from `origin`."""
    turns = turns_of(evidence, window)
    asked = [turn for turn in turns if not turn.early]
    judged = step(evidence, window, limits)
    samples = [sample for sample in evidence.samples if window.begin <= sample.at < window.end]
    ended = sum(turn.outcome in (Outcome.HEARD, Outcome.INTERRUPTED) for turn in turns)
    return StepFigures(
        sessions=window.sessions,
        begin=window.begin - origin,
        end=window.end - origin,
        why_not=judged.why_not(limits),
        client=judged.client,
        outcomes=dict(Counter(str(turn.outcome) for turn in turns)),
        first_text=spread(turn.first_text_s for turn in asked),
        first_audio=spread(judged.first_audio_s),
        work=spread(turn.work_s for turn in asked),
        silence=spread(turn.silence_s for turn in turns),
        still_sent=spread(turn.still_sent_s for turn in turns),
        real_time_factor=spread(turn.real_time_factor for turn in turns),
        connect=spread(_within(evidence.record.connects, window)),
        resume=spread(_within(evidence.record.resumes, window)),
        gap=spread(turn.gap_s for turn in turns),
        underrun=spread(underrun.seconds for turn in turns for underrun in turn.underruns),
        turns_with_underrun=sum(bool(turn.underruns) for turn in turns),
        early=len(turns) - len(asked),
        overdue=judged.overdue,
        errors=dict(Counter(_within(evidence.record.errors, window))),
        late=spread(evidence.pacing.between(window.begin, window.end)),
        cpu=_by_process(samples, "cpu"),
        memory_mb=_by_process(samples, "memory_mb"),
        cpu_s_per_turn=_cpu_seconds(samples) / ended if ended and len(samples) > 1 else None,
        stages=_stages(traces_of(evidence, window)),
    )


def turn_figures(evidence: Evidence, window: Window, origin: float) -> list[TurnFigures]:
    """Every turn of the window; times count from `origin`."""
    return [
        TurnFigures(
            window.sessions,
            turn.person,
            turn.talk,
            turn.recording,
            None if turn.speech_ended is None else turn.speech_ended - origin,
            str(turn.outcome),
            turn.detail,
            turn.early,
            turn.first_text_s,
            turn.first_audio_s,
            turn.work_s,
            turn.audio_s,
            turn.gap_s,
            [(underrun.at - origin, underrun.seconds) for underrun in turn.underruns],
            turn.real_time_factor,
            turn.silence_s,
            turn.still_sent_s,
        )
        for turn in turns_of(evidence, window)
    ]


def path_to_sound(trace: TurnTrace) -> dict[str, float]:
    """Seconds that each stage of `PATH` added until its first output, in order; {} for a turn without
    sound. Together they are the time from submission to the first sound."""
    if "code2wav" not in trace.stages:
        return {}
    parts: dict[str, float] = {}
    reached = 0.0
    for name in PATH:
        stage = trace.stages.get(name)
        if stage is not None:
            parts[name] = max(0.0, stage.first_out - reached)
            reached = max(reached, stage.first_out)
    return parts


def _client(evidence: Evidence, window: Window) -> str | None:
    cpu = [
        sample.processes[CLIENT].cpu
        for sample in evidence.samples
        if window.begin <= sample.at < window.end and CLIENT in sample.processes
    ]
    return bottleneck(evidence.pacing.between(window.begin, window.end), cpu)


def _within(events: Sequence[tuple[float, T]], window: Window) -> list[T]:
    return [what for at, what in events if window.begin <= at < window.end]


def _by_process(samples: Sequence[Sample], field: str) -> dict[str, Spread]:
    names = dict.fromkeys(name for sample in samples for name in sample.processes)
    return {
        name: spread(
            msgspec.structs.asdict(sample.processes[name])[field]
            for sample in samples
            if name in sample.processes
        )
        for name in names
    }


def _cpu_seconds(samples: Sequence[Sample]) -> float:
    """Of all processes but the callers', between the first sample and the last."""
    used = 0.0
    for before, sample in pairwise(samples):
        percent = sum(process.cpu for name, process in sample.processes.items() if name != CLIENT)
        used += percent / 100 * (sample.at - before.at)
    return used


def _stages(traces: Sequence[TurnTrace]) -> dict[str, StageFigures]:
    names = [name for name in (*PATH, "decode") if any(name in trace.stages for trace in traces)]
    found: dict[str, StageFigures] = {}
    for name in names:
        spans = [trace.stages[name] for trace in traces if name in trace.stages]
        found[name] = StageFigures(
            spread(span.first_out for span in spans),
            spread(span.busy_s for span in spans),
        )
    return found
