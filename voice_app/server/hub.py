"""What all talks of one server share."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from voice_app.messages import StageTiming, TurnId
from voice_app.server.admission import Admission
from voice_app.server.auth import Keys
from voice_app.server.driver import Driver
from voice_app.server.metrics import Metrics
from voice_app.server.occupancy import Occupancy
from voice_app.server.pipeline import Pipeline
from voice_app.server.session.actions import Close
from voice_app.server.settings import ServerSettings
from voice_app.server.store.redis_store import RedisStore

log = logging.getLogger(__name__)


class Tracer(Protocol):
    """`voice_app.server.tracing.TurnTracer`, which needs an extra."""

    def turn(self, turn: TurnId, submitted_ns: int, stages: dict[str, StageTiming]) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Hub:
    """`store` None: talks are not kept (a server that is not `serve`d, such as in a test)."""

    pipeline: Pipeline
    settings: ServerSettings
    keys: Keys
    store: RedisStore | None
    metrics: Metrics
    admission: Admission
    judge: Callable[[np.ndarray], Awaitable[float]] | None = None
    """How likely a turn is complete, where there is a model for it."""
    tracer: Tracer | None = None
    """Is told of every turn, where somebody wants traces."""
    drivers: set[Driver] = field(default_factory=set)
    occupancy: Occupancy = field(default_factory=Occupancy)
    _left: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def draining(self) -> bool:
        return self.admission.draining

    def leave(self, driver: Driver) -> None:
        """A talk's connection is over."""
        self.drivers.discard(driver)
        self._left.set()

    async def drain(self, timeout_s: float) -> None:
        """Let nobody in, let each turn in progress end, then close every talk; within `timeout_s`."""
        self.admission.drain()
        for driver in list(self.drivers):
            driver.finish_up()
        try:
            async with asyncio.timeout(timeout_s):
                while self.drivers:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            log.info("%d talks did not end in time", len(self.drivers))
        for driver in list(self.drivers):
            driver.close(Close(1012, "the server restarts"))


def make_hub(
    pipeline: Pipeline,
    settings: ServerSettings,
    keys: Keys | None = None,
    store: RedisStore | None = None,
) -> Hub:
    """A hub over a pipeline."""
    admission = Admission(settings.max_talks, settings.queue_size, settings.queue_wait_s)
    metrics = Metrics(pipeline.status, admission)
    return Hub(pipeline, settings, keys or Keys({}), store, metrics, admission)
