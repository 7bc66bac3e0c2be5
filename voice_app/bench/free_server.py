"""`python -m voice_app.bench.free_server PORT`: the server over a pipeline that costs nothing, to measure the
server alone. Every turn is answered at once with ten seconds of a tone."""

import asyncio
import sys
from collections.abc import AsyncIterator

import numpy as np
import uvicorn

from voice_app import messages as m
from voice_app.pipeline.client import PipelineStatus
from voice_app.server.app import create_app
from voice_app.server.auth import Keys
from voice_app.server.hub import make_hub
from voice_app.server.serving import listen
from voice_app.server.settings import ServerSettings

RATE = 24_000
SECONDS = 10
_TONE = (0.2 * np.sin(2 * np.pi * 330 * np.arange(RATE // 5) / RATE)).astype(np.float32)


def _reply() -> list[m.TurnEvent]:
    events: list[m.TurnEvent] = [m.Transcript("Tell me about it."), m.TextDelta("A long tone.", (1, 2, 3))]
    events += [m.AudioChunk(_TONE, RATE, start) for start in range(0, RATE * SECONDS, len(_TONE))]
    return [*events, m.TextDone("stop"), m.AudioDone(RATE * SECONDS), m.TurnDone({})]


class _Turn:
    def __init__(self) -> None:
        self.cancelled = False

    async def _events(self) -> AsyncIterator[m.TurnEvent]:
        for event in _reply():
            if self.cancelled:
                return
            yield event

    def __aiter__(self) -> AsyncIterator[m.TurnEvent]:
        return self._events()

    async def aclose(self) -> None:
        self.cancelled = True


class FreePipeline:
    """Answers at once."""

    def __init__(self) -> None:
        self._turns: dict[m.TurnId, _Turn] = {}

    def submit(self, request: m.TurnRequest) -> _Turn:
        turn = self._turns[request.turn] = _Turn()
        return turn

    def cancel(self, turn: m.TurnId) -> None:
        running = self._turns.pop(turn, None)
        if running is not None:
            running.cancelled = True

    def status(self) -> PipelineStatus:
        return PipelineStatus(ready=True, turns=len(self._turns), workers={}, stages={})


async def _serve(port: int) -> None:
    pipeline = FreePipeline()
    settings = ServerSettings(max_talks=10_000)
    # One key for all would be one key's limit for all.
    hub = make_hub(pipeline, settings, Keys({}))
    config = uvicorn.Config(
        create_app(pipeline, settings, hub), log_config=None, access_log=False, ws_per_message_deflate=False
    )
    with listen("127.0.0.1", port) as listener:
        await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
