"""All seven schedulers in one thread, without processes or transports, under the name that tests use."""

from voice_app.bench.one_thread import MakeScheduler, Result
from voice_app.bench.one_thread import OneThread as Harness

__all__ = ["Harness", "MakeScheduler", "Result"]
