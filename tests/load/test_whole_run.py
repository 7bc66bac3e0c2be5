"""The whole chain, small: callers under gevent in a process of their own, a real server, a report."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import psutil
import pytest

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

EVERYBODY = """
silence_ms = 200
[people.asks]
speech = ["{spoken}/fact-5-1.flac"]
pause_s = [0.1, 0.3]
[people.follows_up]
speech = ["{spoken}/follow-up-1-*.flac"]
hesitates = 1.0
pause_s = [0.1, 0.3]
[people.interrupts]
speech = ["{spoken}/fact-5-1.flac"]
interrupts = 1.0
interrupts_after_s = [0.1, 0.3]
pause_s = [0.1, 0.3]
[people.is_cut_off]
speech = ["{spoken}/fact-3-1.flac"]
loses_connection = 1.0
interrupts_after_s = [0.1, 0.3]
pause_s = [0.1, 0.3]
# Later than the 8 s that do not count.
[people.hangs_up]
speech = ["{spoken}/fact-3-1.flac"]
hangs_up = 1.0
pause_s = [8.0, 10.0]
[people.shows]
speech = ["{spoken}/camera-1-1.flac"]
pictures = ["{pictures}/coffee.jpg"]
pause_s = [0.1, 0.3]
[people.keeps_quiet]
speech = ["{spoken}/fact-3-1.flac"]
quiet_s = [1.0, 2.0]
[people.reads_slowly]
speech = ["{spoken}/sum-1-1.flac"]
reads_bytes_per_s = 20000
"""
DATA = ROOT / "tests" / "data"


def load(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "load", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_a_short_ramp_over_a_pipeline_that_costs_nothing(tmp_path):
    scenario = tmp_path / "people.toml"
    scenario.write_text(PEOPLE.format(spoken=DATA / "spoken"))
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


@pytest.mark.models
def test_a_real_server_takes_everything_that_people_do(tmp_path):
    """Also whoever is cut off in mid-answer, and takes the talk up again."""
    scenario, out = tmp_path / "people.toml", tmp_path / "report"
    scenario.write_text(EVERYBODY.format(spoken=DATA / "spoken", pictures=DATA / "pictures"))
    options = ("--start", "8", "--most", "8", "--step", "12", "--budget", "1")
    ended = load("ramp", *options, "--scenario", str(scenario), "--out", str(out))
    assert ended.returncode in (0, 1), ended.stderr
    made = report.read(out / "report.json")
    (step,) = made.steps
    # Refused, closed, not taken up again, answers to nothing: none of it happened.
    assert step.errors == {}, ended.stdout
    assert step.resume.n >= 1
    assert (out / "server.log").read_text().count("is taken up again") >= step.resume.n
    ways = {(turn.person, turn.outcome) for turn in made.turns}
    assert ways >= {
        ("asks", "heard"),
        ("follows_up", "heard"),
        ("interrupts", "interrupted"),
        ("is_cut_off", "left"),
        ("hangs_up", "left"),
        ("shows", "heard"),
        ("keeps_quiet", "heard"),
    }
    # A talk that was taken up again is the same talk, and goes on with the next question.
    cut_off = [turn for turn in made.turns if turn.person == "is_cut_off"]
    assert max(Counter(turn.talk for turn in cut_off).values()) >= 2
    assert "reads_slowly" not in {turn.person for turn in made.turns}


@pytest.mark.parametrize("order", [signal.SIGINT, signal.SIGTERM], ids=["interrupted", "terminated"])
def test_locusts_page_is_served_and_ends_with_its_server(tmp_path, order):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--null-pipeline", "--web-port", str(port), "--out", str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-m", "load", "ui", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that ran us in its background would have taken Ctrl-C from us all.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        page = f"http://127.0.0.1:{port}"
        until(lambda: "Locust" in get(page))
        started = urlencode({"user_count": 2, "spawn_rate": 2}).encode()
        assert json.loads(get(f"{page}/swarm", started))["success"]
        until(lambda: any(s["name"] == "connect" for s in json.loads(get(f"{page}/stats/requests"))["stats"]))
        (server,) = [
            c for c in psutil.Process(process.pid).children() if "free_server" in " ".join(c.cmdline())
        ]
        process.send_signal(order)
        assert process.wait(120) == 130
    finally:
        process.kill()
        _, told = process.communicate()
    assert told.rstrip().endswith("load: interrupted")
    assert not server.is_running()


def get(url: str, data: bytes | None = None) -> str:
    """What the page says; empty if there is none yet."""
    try:
        with urllib.request.urlopen(url, data, timeout=30) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


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
