"""Workers import the toy pack from this folder; every test has its own folder for runs."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pipeline_talk import runs, segments

from voice_app.pipeline import rundir


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
    # Not tmp_path: a socket's path has little room.
    runs = tempfile.mkdtemp(prefix="va-")
    monkeypatch.setenv("VOICE_APP_RUN_DIR", runs)
    yield
    shutil.rmtree(runs)


@pytest.fixture
def nothing_left(own_surroundings: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test leaves the machine as it found it."""
    mine: set[str] = set()

    class Recorded(rundir.RunDir):
        def __init__(self) -> None:
            super().__init__()
            mine.add(self.run)

    monkeypatch.setattr(rundir, "RunDir", Recorded)
    yield
    assert runs() == set()
    assert segments(mine) == set()
    assert not psutil.Process().children()
