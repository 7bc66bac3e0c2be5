"""The capacity model's plots, as SVG files that can be read on white and on black."""

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.typing import RcKeyType

from load.plots import PALETTE, STYLE
from load.simulate import P95_S, Curve

matplotlib.use("svg")
GREY = "#808080"
"""On white and on black."""


def draw(
    folder: Path, local: Sequence[Curve], omni: Sequence[Curve], bursts: dict[str, list[tuple[int, float]]]
) -> None:
    """Write `capacity-*.svg` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, curves in (("local", local), ("qwen3-omni", omni)):
        _save(folder / f"capacity-{name}.svg", lambda axes, curves=curves: _curves(axes, curves))
    _save(folder / "capacity-bursts.svg", lambda axes: _bursts(axes, bursts))


def _save(path: Path, fill: Callable[[Axes], None]) -> None:
    greys: dict[RcKeyType, object] = {
        key: GREY for key, value in STYLE.items() if key.endswith("color") and value != "none"
    }
    with matplotlib.rc_context({**STYLE, **greys, "svg.hashsalt": path.name}):
        figure = Figure(figsize=(7.0, 3.2), layout="constrained")
        fill(figure.subplots())
        figure.savefig(path, metadata={"Date": None})


def _curves(axes: Axes, curves: Sequence[Curve]) -> None:
    for curve, color in zip(curves, PALETTE, strict=False):
        people = [point.people for point in curve.points]
        axes.plot(people, [point.p95_s for point in curve.points], marker="o", color=color, label=curve.name)
    _finish(axes, "talks at once", "first audio, p95, seconds")


def _bursts(axes: Axes, bursts: dict[str, list[tuple[int, float]]]) -> None:
    for (name, points), color in zip(bursts.items(), PALETTE, strict=False):
        axes.plot(*zip(*points, strict=True), marker="o", color=color, label=name)
    axes.set_xscale("log", base=2)
    _finish(axes, "people who begin within a second", "first audio, p95, seconds")


def _finish(axes: Axes, x: str, y: str) -> None:
    axes.axhline(P95_S, color=GREY, linestyle="--", linewidth=1)
    axes.set(xlabel=x, ylabel=y, ylim=(0, 4 * P95_S))
    axes.legend()
