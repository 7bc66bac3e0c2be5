"""Workers import the toy pack from this folder; every test has its own folder for runs."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
    # Not tmp_path: a socket's path has little room.
    runs = tempfile.mkdtemp(prefix="va-")
    monkeypatch.setenv("VOICE_APP_RUN_DIR", runs)
    yield
    shutil.rmtree(runs)
