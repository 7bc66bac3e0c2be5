"""Shared by all tests."""

import logging
import os
from collections.abc import Iterator

import hypothesis
import pytest

# Before torch, OpenMP or BLAS load: two cores carry the tests beside worker processes.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

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
