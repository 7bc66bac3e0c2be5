"""Shared by all tests."""

import logging
import os
from collections.abc import Iterator

import hypothesis
import pytest

# Before torch, OpenMP or BLAS load: two cores carry the tests beside worker processes.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

_IN_REAL_TIME = {"bench", "cli", "load", "pipeline", "server", "web"}
"""Folders whose tests share two cores with browsers, servers and worker processes, all of them in a hurry."""

# A busy machine is no fault of the code's.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """A command that runs within a test sets the log up for itself; the next test starts afresh."""
    log = logging.getLogger("voice_app")
    level, propagate, handlers = log.level, log.propagate, log.handlers[:]
    yield
    log.setLevel(level)
    log.propagate = propagate
    log.handlers[:] = handlers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a stalled machine made fail passes the second time, and the summary names it ("RERUN"); what is
    broken fails twice."""
    for item in items:
        if item.path.parent.name in _IN_REAL_TIME:
            item.add_marker(pytest.mark.flaky(reruns=1))
