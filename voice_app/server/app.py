"""The HTTP application: the realtime WebSocket, and what operators and clients ask of a server."""

import time
from typing import Any

from fastapi import FastAPI, Request, Response, WebSocket
from fastapi.responses import JSONResponse

from voice_app.errors import StoreError
from voice_app.pipeline import graph
from voice_app.pipeline.client import PipelineStatus, WorkerState
from voice_app.server import auth
from voice_app.server.client_secrets import find_key, make_secret, read_body
from voice_app.server.hub import Hub, make_hub
from voice_app.server.page import mount_page
from voice_app.server.pipeline import Pipeline
from voice_app.server.protocol.client_events import EVENT_TYPES
from voice_app.server.protocol.config import Extensions
from voice_app.server.protocol.dashscope import DashScope
from voice_app.server.protocol.errors import INVALID_REQUEST, SERVER_ERROR, ProtocolError
from voice_app.server.session.effective import valid_voices
from voice_app.server.settings import ServerSettings
from voice_app.server.websocket import serve_talk


def create_app(pipeline: Pipeline, settings: ServerSettings | None = None, hub: Hub | None = None) -> FastAPI:
    """The application over a started `pipeline`, whose owner stops it; `hub`: of one's own, with keys and a
    store."""
    settings = settings or ServerSettings()
    hub = hub or make_hub(pipeline, settings)
    app = FastAPI(title="voice-app", docs_url=None, redoc_url=None)
    _add_operations(app, hub)
    _add_api(app, hub)
    mount_page(app)
    return app


def _add_operations(app: FastAPI, hub: Hub) -> None:
    """What operators ask."""

    @app.get("/health")
    def health() -> dict[str, str]:
        """The process is alive."""
        return {"status": "alive"}

    @app.get("/ready")
    async def ready(request: Request, response: Response) -> dict[str, Any]:
        """Whether talks can be taken, with a row for each stage."""
        status = hub.pipeline.status()
        store = hub.store is None or hub.store.connected
        is_ready = status.ready and store and not hub.draining
        response.status_code = 200 if is_ready else 503
        return {
            "ready": is_ready,
            "draining": hub.draining,
            "store": store,
            "talks": hub.admission.talks,
            "turns": status.turns,
            "stages": _rows(status, with_trouble=await _is_known(request, hub)),
        }

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(hub.metrics.text(), media_type="text/plain; version=0.0.4")


def _add_api(app: FastAPI, hub: Hub) -> None:
    """What clients use."""
    started = int(time.time())

    name = hub.settings.talk.model
    card = {"id": name, "object": "model", "created": started, "owned_by": "voice-app"}

    @app.get("/v1/models")
    def models() -> dict[str, Any]:
        return {"object": "list", "data": [card]}

    @app.get("/v1/models/{model}")
    def model(model: str) -> JSONResponse:
        if model == name:
            return JSONResponse(card)
        return _refused(
            404, INVALID_REQUEST, "model_not_found", f"There is no model '{model}', but '{name}'."
        )

    @app.get("/v1/realtime/capabilities")
    def capabilities() -> dict[str, Any]:
        return {
            "model": hub.settings.talk.model,
            "client_events": list(EVENT_TYPES),
            "audio_formats": ["audio/pcm", "audio/pcmu", "audio/pcma"],
            "turn_detection": ["server_vad"] + ["semantic_vad"] * hub.settings.talk.semantic_vad,
            "input_audio_transcription": hub.settings.talk.transcribes,
            "languages": hub.settings.talk.languages,
            "voices": hub.settings.talk.voices,
            "extensions": [name for name in Extensions.model_fields if name != "resume" or hub.store],
        }

    @app.post("/v1/realtime/client_secrets")
    async def client_secrets(request: Request) -> JSONResponse:
        try:
            shown = auth.credential(request.headers, ())
            if hub.keys and shown is None:
                return _refused(401, INVALID_REQUEST, "missing_api_key", auth.NO_KEY)
            key = await find_key(hub, shown or "") if hub.keys else auth.OPEN
            if key is None:
                return _refused(401, INVALID_REQUEST, "invalid_api_key", auth.WRONG_KEY)
            body = await read_body(request, hub.settings.max_message_bytes)
            return JSONResponse(await make_secret(hub, key, body))
        except ProtocolError as error:
            return _refused(400, INVALID_REQUEST, error.code, error.message, error.param)
        except StoreError as error:
            return _refused(503, SERVER_ERROR, error.code, error.message)

    @app.websocket("/v1/realtime")
    async def realtime(socket: WebSocket) -> None:
        await serve_talk(socket, hub)

    @app.websocket("/api-ws/v1/realtime")
    async def dashscope(socket: WebSocket) -> None:
        await serve_talk(socket, hub, DashScope(valid_voices(hub.settings.talk)))


def _refused(status: int, kind: str, code: str, message: str, param: str | None = None) -> JSONResponse:
    return JSONResponse({"error": {"type": kind, "code": code, "message": message, "param": param}}, status)


async def _is_known(request: Request, hub: Hub) -> bool:
    """Whether a valid key is shown, where the server has keys."""
    if not hub.keys:
        return True
    shown = auth.credential(request.headers, ())
    try:
        return shown is not None and await find_key(hub, shown) is not None
    except StoreError:
        return False  # Its keys cannot be read now; whether the server is ready is still to be told.


def _rows(status: PipelineStatus, *, with_trouble: bool) -> list[dict[str, Any]]:
    """A row for each stage, in the order of the graph; where it has replicas, for each of them.
    `with_trouble`: what went wrong is shown, which may name hosts and files; it is logged in any case."""
    return [
        {
            "stage": stage,
            "ready": worker.state is WorkerState.READY,
            "state": worker.state,
            "worker": name,
            "pid": worker.pid,
            "restarts": worker.restarts,
            "trouble": worker.trouble if with_trouble else None,
        }
        for stage in graph.STAGES
        for name, worker in status.workers.items()
        if stage in worker.stages
    ]
