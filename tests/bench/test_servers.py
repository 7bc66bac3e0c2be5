"""Servers that benchmarks start: ready when given, gone afterwards; a start that fails is one line."""

import urllib.request

import psutil
import pytest

from voice_app.bench.servers import Surroundings, free_server, pack_server
from voice_app.errors import PipelineError


def test_a_server_is_ready_when_it_is_given_and_gone_afterwards(tmp_path):
    with (
        free_server(Surroundings(log=tmp_path / "log")) as (port, process),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=30) as answer,
    ):
        assert answer.status == 200
    assert not psutil.pid_exists(process.pid)
    assert (tmp_path / "log").is_file()


def test_a_server_that_ends_says_why_in_one_line():
    with (
        pytest.raises(
            PipelineError, match=r"ended with exit code 2: .*/nowhere: there is no such file"
        ) as failed,
        pack_server(("--brain", "/nowhere")),
    ):
        pass
    assert "\n" not in failed.value.message
