"""`voice-app bench`: several benchmarks under one command, and one run against an older one.

Each benchmark runs in a process of its own, so that none finds the threads and the memory of the one before.
What is compared are the figures that have a goal.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from voice_app.bench.report import Goal, machine, print_table
from voice_app.errors import ConfigError

SAME_MACHINE = ("processor", "cores", "memory_gib")
"""What must be alike for figures to be comparable."""
LONGEST_S = 1800.0
"""A benchmark that takes longer hangs."""
STOP_S = 30.0
"""For it to clear up."""
Goals = dict[str, list[Goal]]
"""Name of a benchmark → its figures."""


def run(names: Sequence[str], json_path: str | None, old: str | None) -> int:
    """Run the benchmarks; one table of all their figures, beside those of the file `old`. One that fails is
    shown, and the others run. Gives 1 if a goal was missed or a benchmark failed. Raises ConfigError, before
    anything runs, if `old` cannot be used."""
    before = read_goals(Path(old), names) if old else {}
    results = {name: _one(name) for name in names}
    failed = {name: result for name, result in results.items() if isinstance(result, str)}
    done = {name: result for name, result in results.items() if not isinstance(result, str)}
    goals = {name: goals_of(result) for name, result in done.items()}
    lines = rows(goals) + [(name, why, "", "", "FAILED") for name, why in failed.items()]
    print_table("all benchmarks", ("benchmark", "figure", "measured", "goal", ""), lines)
    if old:
        _print_comparison(Path(old), before, goals)
    if json_path:
        kept = {"machine": machine(), "benchmarks": done, "failed": failed}
        Path(json_path).write_text(json.dumps(kept, indent=1, ensure_ascii=False))
    for name, why in failed.items():
        print(f"failed: {name}: {why}", file=sys.stderr)
    return 1 if failed or any(not goal.met for of in goals.values() for goal in of) else 0


def _one(name: str, longest_s: float = LONGEST_S) -> dict[str, Any] | str:
    """What the benchmark `name` kept, or why it failed; it tells what it does, and its errors, itself."""
    print(f"\n▸ {name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "voice_app", "bench", name, "--json", str(path)]
        # A group of its own: what hangs is ended with all that it started.
        with subprocess.Popen(command, start_new_session=True) as process:
            try:
                code = process.wait(longest_s)
            except subprocess.TimeoutExpired:
                return f"no end after {longest_s:g} s"
            finally:
                _end(process)
        return json.loads(path.read_text()) if path.exists() else f"exit code {code}, no figures"


def _end(process: subprocess.Popen[bytes]) -> None:
    """With what is left of all that it started: in order, so that it clears up; at last by force, as when an
    interrupt comes meanwhile."""
    try:
        _signal_group(process.pid, signal.SIGTERM)
        end = time.monotonic() + STOP_S
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        psutil.wait_procs(_group(process.pid), max(0.0, end - time.monotonic()))
    finally:
        _signal_group(process.pid, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    # On macOS what has ended and was not waited for may not be signalled.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _group(group: int) -> list[psutil.Process]:
    """Its processes, but for the first: that is waited for by who started it."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == group and process.pid != group:
                found.append(process)
    return found


def goals_of(result: Mapping[str, Any]) -> list[Goal]:
    """The figures of what one benchmark kept."""
    return [Goal(**goal) for goal in result.get("goals", [])]


def read_goals(path: Path, names: Sequence[str]) -> Goals:
    """The figures in a file of `--json`: of several benchmarks, or of the one in `names`.

    Raises ConfigError."""
    try:
        kept = json.loads(path.read_text())
        several = kept["benchmarks"] if "benchmarks" in kept else {names[0]: kept}
        return {name: goals_of(result) for name, result in several.items()}
    except OSError as error:
        raise ConfigError(f"--compare {path}: {error.strerror or error}", param="compare") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"--compare {path}: not written by voice-app bench --json", param="compare"
        ) from error


def rows(goals: Goals) -> list[tuple[str, ...]]:
    """Every figure with its verdict."""
    return [(name, *goal.row()) for name, of in goals.items() for goal in of]


def compared(old: Goals, new: Goals) -> list[tuple[str, str, str, str, str, str]]:
    """benchmark, figure, old → new, ratio new / old, better or worse, verdict; for figures that both have."""
    found: list[tuple[str, str, str, str, str, str]] = []
    for name, goals in new.items():
        before = {goal.name: goal for goal in old.get(name, [])}
        for goal in goals:
            was = before.get(goal.name)
            if was is not None:
                change = f"{was.value:,.4g} → {goal.value:,.4g} {goal.unit}".strip()
                found.append((name, goal.name, change, *_ratio(was, goal), goal.row()[-1]))
    return found


def _ratio(old: Goal, new: Goal) -> tuple[str, str]:
    """new / old, and what that means."""
    if old.value == new.value:
        return "1", ""
    better = (new.value > old.value) is new.at_least
    ratio = f"{new.value / old.value:.2f}" if old.value else "–"
    return ratio, "better" if better else "worse"


def _print_comparison(path: Path, old: Goals, new: Goals) -> None:
    then = json.loads(path.read_text()).get("machine", {})
    print_table(
        f"against {path.name} of {then.get('time', 'an unknown time')}",
        ("benchmark", "figure", "old → new", "ratio", "", "goal"),
        compared(old, new),
    )
    now = machine()
    for name in SAME_MACHINE:
        if then.get(name) != now[name]:
            print(f"another machine: {name} was {then.get(name)}, is {now[name]}")
