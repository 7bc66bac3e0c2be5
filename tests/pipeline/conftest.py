"""Workers import the toy pack from this folder."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def toys_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
