"""The whole chain, small: callers under gevent in a process of their own, a real server, a report."""

import os
import subprocess
import sys
from pathlib import Path

from load import report

ROOT = Path(__file__).parents[2]
PEOPLE = """
silence_ms = 200
[people.interrupts]
speech = ["{spoken}/chit-chat-2-1.flac"]
interrupts = 1.0
interrupts_after_s = [0.1, 0.2]
pause_s = [0.1, 0.2]
"""


def load(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "load", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_a_short_ramp_over_a_pipeline_that_costs_nothing(tmp_path):
    scenario = tmp_path / "people.toml"
    scenario.write_text(PEOPLE.format(spoken=ROOT / "tests" / "data" / "spoken"))
    options = ("--null-pipeline", "--start", "1", "--most", "1", "--step", "4", "--budget", "1")
    ended = load("ramp", *options, "--scenario", str(scenario), "--out", str(tmp_path / "report"))
    # 1: the machine was too busy for the number to hold; that is the report's to say.
    assert ended.returncode in (0, 1), ended.stderr
    made = report.read(tmp_path / "report" / "report.json")
    (step,) = made.steps
    assert step.outcomes.get("interrupted", 0) >= 2, ended.stdout
    assert step.errors == {}
    assert step.silence.n >= 2
    assert set(step.cpu) == {"callers", "server"}
    assert all(sample.sums["voice_app_talks"] <= 1 for sample in made.samples if sample.sums)
    assert made.timeline is not None
    assert (tmp_path / "report" / "index.html").stat().st_size > 10_000


def test_what_cannot_be_used_is_one_line(tmp_path):
    for arguments, says in (
        (("ramp", "--scenario", str(tmp_path / "no.toml")), "no.toml: No such file or directory"),
        (("ramp", "--url", "http://127.0.0.1:1"), "--url http://127.0.0.1:1: must be like ws://"),
        (("ramp", "--start", "0"), "--start 0: must be between 1 and --most"),
        (("soak", "--minutes", "0"), "--minutes 0: must be above 0"),
    ):
        ended = load(*arguments, "--out", str(tmp_path))
        assert (ended.returncode, ended.stdout) == (2, "")
        assert says in ended.stderr
        assert ended.stderr.count("\n") == 1
