"""What every benchmark shares: the machine's description, tables, goals, and JSON."""

import json
import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure with what it is held against: met if value ≤ limit (or ≥, for `at_least`)."""

    name: str
    value: float
    limit: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def row(self) -> tuple[str, str, str, str]:
        """name, value, goal, verdict."""
        sign = "≥" if self.at_least else "≤"
        return (
            self.name,
            f"{self.value:,.4g} {self.unit}".strip(),
            f"{sign} {self.limit:,.4g} {self.unit}".strip(),
            "met" if self.met else "MISSED",
        )


def machine() -> dict[str, str | int]:
    """What the figures were measured on."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("torch", "transformers", "onnxruntime", "numpy")},
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest-rank percentile of `values`; NaN if there are none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    """Median of `values`; NaN if there are none."""
    return statistics.median(values) if values else float("nan")


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """One table on stdout; long cells are not cut when stdout is no terminal."""
    table = Table(*header, title=title, title_justify="left")
    for row in rows:
        table.add_row(*[str(cell) for cell in row])
    console = Console()
    if not console.is_terminal:
        console.width = 160
    console.print(table)


def print_goals(goals: Sequence[Goal], unmeasured: Sequence[str] = ()) -> int:
    """The goals as a table, at its end what could not be measured; returns how many were missed."""
    rows = [goal.row() for goal in goals]
    if unmeasured:
        rows.append(("; ".join(unmeasured), "not measured", "", ""))
    print_table("goals", ("figure", "measured", "goal", ""), rows)
    return sum(not goal.met for goal in goals)


def write_json(path: str | None, figures: Mapping[str, object], goals: Sequence[Goal] = ()) -> None:
    """Keep `figures` and `goals` with the machine's description, if a path was given."""
    if path:
        kept = {"machine": machine(), **figures}
        if goals:
            kept["goals"] = [asdict(goal) for goal in goals]
        Path(path).write_text(json.dumps(kept, indent=1, ensure_ascii=False))
