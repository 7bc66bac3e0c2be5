"""Several benchmarks' figures in one table, and against an older run."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from voice_app.bench import gathered, report
from voice_app.bench.report import Goal
from voice_app.cli import main
from voice_app.errors import ConfigError

FAST = Goal("first audio", 120.0, 150.0, "ms")
MANY = Goal("talks", 8.0, 10.0, at_least=True)


def written(tmp_path, name="old.json", **benchmarks) -> str:
    kept = {"machine": {"time": "then", "cores": 1}, "benchmarks": {}}
    for benchmark, goals in benchmarks.items():
        path = tmp_path / "one.json"
        report.write_json(str(path), {"more": [1, 2]}, goals)
        kept["benchmarks"][benchmark] = json.loads(path.read_text())
    (tmp_path / name).write_text(json.dumps(kept))
    return str(tmp_path / name)


def test_goals_are_read_as_they_were_written(tmp_path):
    path = written(tmp_path, local=[FAST, MANY])
    assert gathered.read_goals(tmp_path / path, ("local",)) == {"local": [FAST, MANY]}


def test_a_file_of_one_benchmark_is_that_benchmarks(tmp_path):
    report.write_json(str(tmp_path / "one.json"), {}, [FAST])
    assert gathered.read_goals(tmp_path / "one.json", ("edges",)) == {"edges": [FAST]}


def test_every_figure_has_a_row_with_its_verdict():
    assert gathered.rows({"local": [FAST, MANY]}) == [
        ("local", "first audio", "120 ms", "≤ 150 ms", "met"),
        ("local", "talks", "8", "≥ 10", "MISSED"),
    ]


def test_old_and_new_stand_side_by_side_with_what_the_change_means():
    old = {"local": [Goal("first audio", 240.0, 150.0, "ms"), Goal("talks", 16.0, 10.0, at_least=True)]}
    new = {"local": [FAST, MANY, Goal("new", 1.0, 2.0)], "edges": [Goal("other", 1.0, 2.0)]}
    assert gathered.compared(old, new) == [
        ("local", "first audio", "240 → 120 ms", "0.50", "better", "met"),
        ("local", "talks", "16 → 8", "0.50", "worse", "MISSED"),
    ]


@pytest.mark.parametrize(("before", "ratio"), [(0.0, ("–", "worse")), (120.0, ("1", ""))])
def test_ratios_without_a_meaning(before, ratio):
    ((*_, shown, meaning, _),) = gathered.compared({"x": [Goal("first audio", before, 150.0)]}, {"x": [FAST]})
    assert (shown, meaning) == ratio


@pytest.mark.parametrize(
    ("text", "says"), [(None, "No such file"), ("[", "not written by"), ("[]", "not written by")]
)
def test_an_older_file_that_cannot_be_used_is_named_before_anything_runs(tmp_path, capsys, text, says):
    path = tmp_path / "old.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        gathered.run(("edges",), None, str(path))
    assert main(["bench", "edges", "--compare", str(path)]) == 2
    assert says in capsys.readouterr().err


def test_a_whole_run_gathers_compares_and_keeps(tmp_path, monkeypatch, capsys):
    results = {
        "edges": {"goals": [vars_of(FAST)]},
        "local": {"goals": [vars_of(MANY)]},
        "engine": "exit code 1",
    }
    monkeypatch.setattr(gathered, "_one", results.get)
    old = written(tmp_path, edges=[Goal("first audio", 60.0, 150.0, "ms")])
    code = gathered.run(("edges", "local", "engine"), str(tmp_path / "new.json"), old)
    assert code == 1
    shown = capsys.readouterr()
    assert "60 → 120 ms" in shown.out
    assert "another machine" in shown.out
    assert re.search(r"engine .*exit code 1 .*FAILED", shown.out)
    assert "failed: engine: exit code 1" in shown.err
    kept = json.loads((tmp_path / "new.json").read_text())
    assert set(kept["benchmarks"]) == {"edges", "local"}
    assert kept["failed"] == {"engine": "exit code 1"}
    assert kept["machine"]["cores"] >= 1


def test_one_that_fails_says_how_and_the_next_one_runs(capfd):
    assert gathered.run(("no-such-benchmark", "neither"), None, None) == 1
    shown = capfd.readouterr()
    assert "no-such-benchmark: exit code 2, no figures" in shown.err
    assert "neither: exit code 2, no figures" in shown.err
    assert "invalid choice: 'no-such-benchmark'" in shown.err


def test_one_that_hangs_is_ended_with_all_that_it_started():
    assert gathered._one("edges", longest_s=0.05) == "no end after 0.05 s"


_IGNORES_SIGTERM = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b".")
while True:
    signal.pause()
"""
_LEADER = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {_IGNORES_SIGTERM!r}])
"""


def test_one_that_ends_leaves_no_child_that_ignores_to_be_ended(monkeypatch):
    monkeypatch.setattr(gathered, "STOP_S", 0.1)
    command = [sys.executable, "-c", _LEADER]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as leader:
        assert leader.stdout is not None
        assert leader.stdout.read(1) == b".", "the child is there"
        try:
            gathered._end(leader)
            assert leader.communicate(timeout=60.0) == (b"", None), "nobody has its output open any more"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(leader.pid, signal.SIGKILL)


def test_it_succeeds_where_all_goals_are_met(monkeypatch):
    monkeypatch.setattr(gathered, "_one", {"edges": {"goals": [vars_of(FAST)]}}.get)
    assert gathered.run(("edges",), None, None) == 0


def vars_of(goal: Goal) -> dict[str, object]:
    return {name: getattr(goal, name) for name in ("name", "value", "limit", "unit", "at_least")}
