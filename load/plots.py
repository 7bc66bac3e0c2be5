"""The plots of a report, as SVG that takes its colours of text and lines from the page around it."""

import io
import re
from collections.abc import Callable, Sequence

import matplotlib
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from matplotlib.typing import RcKeyType

from load.figures import PATH, Spread, StepFigures
from load.report import DriftFigures, Report, Timeline
from load.watch import Sample

matplotlib.use("svg")

INK, FAINT = "#010203", "#040506"
"""Stand-ins in matplotlib's output for the page's own colours."""
PALETTE = ("#4c8dd6", "#e0803a", "#3fa66b", "#c65bb0", "#a99426", "#7d7bd6", "#3aa6b3", "#8c8c8c")
RED = "#d9534f"
"""These can be told apart on white and on black."""
WIDTH = 9.0
ROOM = 1.15
"""Of an axis, by its largest value: numbers stand above."""
SECONDS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30)
"""What is written beside a scale of waits."""
STYLE: dict[RcKeyType, object] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "axes.prop_cycle": cycler("color", PALETTE),
    "figure.facecolor": "none",
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


def svg(name: str, height: float, draw: Callable[[Figure], None]) -> str:
    """What `draw` puts on a figure of `height` inches; `name` keeps its ids apart from those of others."""
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure)
        output = io.StringIO()
        figure.savefig(output, format="svg", metadata={"Date": None})
    text = output.getvalue()
    text = text[text.index("<svg") :]
    # The page says how large it is; the view box keeps its shape.
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    return text.replace(INK, "currentColor").replace(FAINT, "var(--faint)")


# ------------------------------------------------------------------------------------ against sessions


def latency(report: Report) -> str:
    """End of speech → first text and first audio, and underruns, against the number of talks."""

    def draw(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        steps = sorted(report.steps, key=lambda step: step.sessions)
        curves: tuple[tuple[str, str, str, Callable[[StepFigures], Spread]], ...] = (
            ("first audio", PALETTE[0], "p95", lambda step: step.first_audio),
            ("first audio", PALETTE[0], "p50", lambda step: step.first_audio),
            ("first text", PALETTE[1], "p50", lambda step: step.first_text),
        )
        for name, colour, which, of in curves:
            points = [(step.sessions, _percentile(of(step), which)) for step in steps]
            style = "-" if which == "p95" else "--" if name == "first audio" else ":"
            _line(above, points, f"{name}, {which}", colour, style)
        above.axhline(report.first_audio_limit_s, color=RED, linewidth=1)
        above.set_yscale("log")
        above.yaxis.set_major_locator(FixedLocator(SECONDS))
        above.yaxis.set_major_formatter("{x:g}")
        above.yaxis.set_minor_locator(NullLocator())
        above.text(
            0.995,
            report.first_audio_limit_s,
            "limit of p95 ",
            color=RED,
            ha="right",
            va="bottom",
            transform=above.get_yaxis_transform(),
        )
        above.set_ylabel("seconds after the end of speech")
        above.set_title("The wait for the first sound and word, against talks at once")
        figure.legend(*above.get_legend_handles_labels(), loc="outside right center")
        for step in steps:
            share = 100 * step.turns_with_underrun / max(1, sum(step.outcomes.values()))
            below.bar(step.sessions, share, width=0.5, color=RED)
        below.set_ylabel("% of turns")
        below.set_ylim(0, 100)
        below.set_title("Turns in which the listener's loudspeaker ran dry")
        below.set_xlabel("talks at once")
        below.set_xticks(sorted({step.sessions for step in steps}))

    return svg("latency", 5.2, draw)


def breakdown(report: Report) -> str:
    """Every turn as a column: what each stage added until its first sound, the fastest turn first."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        turns = report.breakdown
        bottoms = [0.0] * len(turns)
        for stage in PATH:
            heights = [1000 * turn.get(stage, 0.0) for turn in turns]
            if any(heights):
                axes.bar(range(1, len(turns) + 1), heights, width=0.9, bottom=bottoms, label=stage)
                bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
        axes.set_ylabel("ms since the turn was submitted")
        axes.set_xlabel("turns, the fastest first")
        axes.set_title("What each stage added until its first output, up to the first sound")
        axes.legend(loc="upper left")

    return svg("breakdown", 3.6, draw)


# ------------------------------------------------------------------------------------------ over time


def processes(report: Report) -> str:
    """CPU and memory of every process over the run, with the number of talks."""

    def draw(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True)
        names = dict.fromkeys(name for sample in report.samples for name in sample.processes)
        for name in names:
            own = [sample for sample in report.samples if name in sample.processes]
            times = [sample.at for sample in own]
            cpu = _smoothed([sample.processes[name].cpu for sample in own])
            above.plot(times, cpu, label=name, linewidth=1.3)
            memory = [sample.processes[name].memory_mb for sample in own]
            below.plot(times, memory, label=name, linewidth=1.3)
        above.set_ylabel("% of one core")
        above.set_title("CPU of every process (mean of 5 s)")
        below.set_ylabel("MB")
        below.set_title("Resident memory")
        below.set_xlabel("seconds since the start")
        _mark_steps(report, above, with_numbers=True)
        _mark_steps(report, below)
        figure.legend(*above.get_legend_handles_labels(), loc="outside right center")

    return svg("processes", 5.0, draw)


def queues(report: Report) -> str:
    """What waits and runs in each stage over the run."""

    def draw(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True)
        stages = dict.fromkeys(stage for sample in report.samples for stage in sample.waiting)
        parts: tuple[tuple[Axes, str, Callable[[Sample], dict[str, float]]], ...] = (
            (above, "Waiting in each stage", lambda sample: sample.waiting),
            (below, "Being worked on in each stage", lambda sample: sample.running),
        )
        for axes, title, of in parts:
            for stage in stages:
                points = [(sample.at, of(sample)[stage]) for sample in report.samples if stage in of(sample)]
                axes.step(*zip(*points, strict=True), where="post", label=stage, linewidth=1.2)
            axes.set_title(title)
            axes.set_ylabel("turns")
            axes.yaxis.get_major_locator().set_params(integer=True)
        below.set_xlabel("seconds since the start")
        _mark_steps(report, above, with_numbers=True)
        _mark_steps(report, below)
        figure.legend(*above.get_legend_handles_labels(), loc="outside right center")

    return svg("queues", 4.4, draw)


def drift(figures: DriftFigures) -> str:
    """One figure of a soak with its line."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        minutes = [at / 60 for at, _ in figures.points]
        axes.plot(minutes, [value for _, value in figures.points], "o", markersize=3, color=PALETTE[0])
        ends = [figures.level - figures.change / 2, figures.level + figures.change / 2]
        axes.plot([minutes[0], minutes[-1]], ends, color=RED, linewidth=1.2)
        axes.set_title(figures.name)
        axes.set_ylabel(figures.unit)
        axes.set_xlabel("minutes since the start")

    return svg(f"drift-{figures.name}", 2.2, draw)


# ----------------------------------------------------------------------------------------- one talk


def timeline(talk: Timeline) -> str:
    """One talk: the user, the answer as it came and as it was heard, and the stages at work."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        stages = [stage for stage in (*PATH, "decode") if any(bar.stage == stage for bar in talk.stages)]
        rows = ["user speaks", "text, sound arrive", "user hears", *stages]
        row = {name: number for number, name in enumerate(rows)}
        begin = min(said.speech[0] for said in talk.said)
        for said in talk.said:
            _bar(axes, row["user speaks"], said.speech, begin, PALETTE[2])
            for heard in said.heard:
                _bar(axes, row["user hears"], heard, begin, PALETTE[0])
            for at, seconds in said.underruns:
                _bar(axes, row["user hears"], (at, at + seconds), begin, RED)
            arrivals = [at - begin for at in said.arrivals]
            axes.plot(arrivals, [row["text, sound arrive"]] * len(arrivals), "|", color=PALETTE[0], ms=9)
            if said.first_text is not None:
                axes.plot(said.first_text - begin, row["text, sound arrive"], "v", color=PALETTE[1], ms=6)
            if said.silent is not None:
                axes.plot(said.silent - begin, row["user hears"], "x", color=RED, ms=8)
        for bar in talk.stages:
            _bar(axes, row[bar.stage], (bar.begin, bar.end), begin, PALETTE[7], alpha=0.45)
            axes.plot(bar.first_out - begin, row[bar.stage], "|", color=INK, ms=9)
        axes.set_yticks(range(len(rows)), rows)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("seconds")
        axes.set_title(f"One talk of {talk.sessions} at once: a caller of the kind “{talk.person}”")

    return svg("timeline", 3.8, draw)


def _bar(
    axes: Axes, row: int, span: tuple[float, float], begin: float, colour: str, alpha: float = 1.0
) -> None:
    axes.broken_barh(
        [(span[0] - begin, span[1] - span[0])], (row - 0.3, 0.6), facecolors=colour, alpha=alpha, linewidth=0
    )


# --------------------------------------------------------------------------------------------- parts


def _percentile(spread: Spread, which: str) -> float:
    value = {"p50": spread.p50, "p95": spread.p95, "p99": spread.p99}[which]
    return float("nan") if value is None else value


def _line(axes: Axes, points: Sequence[tuple[float, float]], label: str, colour: str, style: str) -> None:
    axes.plot(*zip(*points, strict=True), style, color=colour, label=label, marker="o", markersize=4)


def _mark_steps(report: Report, axes: Axes, *, with_numbers: bool = False) -> None:
    """The stretches that count, and how many talked in each; above all values, which begin at 0."""
    axes.set_ylim(0, ROOM * max(1.0, axes.get_ylim()[1]))
    for step in report.steps:
        axes.axvspan(step.begin, step.end, color=FAINT, alpha=0.35, linewidth=0)
        if with_numbers:
            axes.text(
                (step.begin + step.end) / 2,
                1.0,
                f"{step.sessions}",
                ha="center",
                va="top",
                fontsize=9,
                transform=axes.get_xaxis_transform(),
            )


def _smoothed(values: Sequence[float], width: int = 5) -> list[float]:
    """The mean of each value and those before it, `width` in all."""
    return [
        sum(part) / len(part) for i in range(len(values)) for part in [values[max(0, i + 1 - width) : i + 1]]
    ]
