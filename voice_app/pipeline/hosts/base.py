"""The contract of the hosts that workers run on: this one, and those that Ray reaches."""

from typing import Protocol

import msgspec

from voice_app.errors import ErrorInfo
from voice_app.pipeline.control import WorkerConfig


class Ending(msgspec.Struct, frozen=True):
    """How a worker's process ended, to be read after its name, and the last line of its log, where that is
    the reason. `refusal`: it said that it cannot begin, before it could tell the server."""

    how: str
    reason: str = ""
    refusal: ErrorInfo | None = None


class WorkerProcess(Protocol):
    """One incarnation of a worker."""

    @property
    def pid(self) -> int | None:
        """On its host; None once it ended."""
        ...

    async def ended(self) -> Ending:
        """Wait for its end. Nothing of it is left on its host then."""
        ...

    async def end(self) -> None:
        """Tell it to end, and wait for that; after a while it is killed."""
        ...


class Host(Protocol):
    """Where workers can be started."""

    async def start(self, config: WorkerConfig) -> WorkerProcess:
        """Start the worker, as a process that ends when ours does. Raises PipelineError if that cannot be
        done now, ConfigError if it never can."""
        ...

    async def close(self) -> None:
        """All workers have ended."""
        ...
