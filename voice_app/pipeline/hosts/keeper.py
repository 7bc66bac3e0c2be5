"""What runs on another host as a Ray actor: it keeps one worker, a process that ends when the actor does."""

import msgspec

from voice_app import log
from voice_app.pipeline.control import WorkerConfig
from voice_app.pipeline.hosts.base import Ending
from voice_app.pipeline.hosts.local import LocalHost, LocalProcess
from voice_app.pipeline.transport import shm


class Keeper:
    """Takes and gives JSON and numbers: nothing of ours is pickled."""

    def __init__(self) -> None:
        log.set_up()
        shm.sweep()
        self._process: LocalProcess | None = None

    async def start(self, config: bytes) -> int:
        """Start the worker, in place of one that still runs; returns its process's id."""
        await self.end()
        self._process = process = await LocalHost().start(msgspec.json.decode(config, type=WorkerConfig))
        return process.pid or 0

    async def ended(self) -> bytes:
        """Wait for the worker's end, and tell how it ended."""
        if self._process is None:
            return msgspec.json.encode(LOST)
        return msgspec.json.encode(await self._process.ended())

    async def end(self) -> None:
        """End the worker."""
        if self._process is not None:
            await self._process.end()


LOST = Ending("was lost with its Ray actor")
