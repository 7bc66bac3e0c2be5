"""`python -m voice_app.bench.free_server PORT [--note-audio]`: the server over a pipeline that costs nothing,
to measure the server alone. Every turn is answered at once with ten seconds of a tone. With `--note-audio`,
`GET /last-audio/RESPONSE` tells when the last audio of a response was handed to its socket."""

import sys
import time
from collections.abc import AsyncIterator

import numpy as np
import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voice_app import messages as m
from voice_app.pipeline.client import PipelineStatus
from voice_app.server import event_loop
from voice_app.server.app import create_app
from voice_app.server.auth import Keys
from voice_app.server.hub import make_hub
from voice_app.server.serving import listen
from voice_app.server.settings import ServerSettings

_ASKED = "/last-audio/"
_AUDIO = '{"type":"response.output_audio.delta","response_id":"'
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


class AudioNotes:
    """Around an application: when each response's last audio was sent (`time.perf_counter`, which is the same
    for all processes of a machine). What a full socket holds back counts from when it was given to it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._last: dict[str, float] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path.startswith(_ASKED):
            await JSONResponse(self._last[path.removeprefix(_ASKED)])(scope, receive, send)
            return

        async def noting(message: Message) -> None:
            text = message.get("text") or ""
            if text.startswith(_AUDIO):
                self._last[text[len(_AUDIO) :].partition('"')[0]] = time.perf_counter()
            await send(message)

        await self._app(scope, receive, noting)


async def _serve(port: int, *, note_audio: bool) -> None:
    pipeline = FreePipeline()
    settings = ServerSettings(max_talks=10_000)
    # One key for all would be one key's limit for all.
    hub = make_hub(pipeline, settings, Keys({}))
    app = create_app(pipeline, settings, hub)
    config = uvicorn.Config(
        AudioNotes(app) if note_audio else app,
        log_config=None,
        access_log=False,
        ws_per_message_deflate=False,
    )
    event_loop.keep_what_is_loaded()
    with listen("127.0.0.1", port) as listener:
        await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    event_loop.run(_serve(int(sys.argv[1]), note_audio="--note-audio" in sys.argv))
