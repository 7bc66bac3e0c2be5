"""The HTTP application: the realtime WebSocket, and what operators and clients ask of a server."""

import time
from typing import Any

from fastapi import FastAPI, Response, WebSocket

from voice_app.config import PipelineConfig
from voice_app.pipeline import graph
from voice_app.pipeline.client import PipelineStatus, WorkerState
from voice_app.server.page import mount_page
from voice_app.server.pipeline import Pipeline
from voice_app.server.settings import ServerSettings
from voice_app.server.websocket import serve_talk


def create_app(pipeline: Pipeline, settings: ServerSettings | None = None) -> FastAPI:
    """The application over a started `pipeline`, whose owner stops it."""
    settings = settings or ServerSettings()
    app = FastAPI(title="voice-app", docs_url=None, redoc_url=None)
    started = int(time.time())

    @app.get("/health")
    def health() -> dict[str, str]:
        """The process is alive."""
        return {"status": "alive"}

    @app.get("/ready")
    def ready(response: Response) -> dict[str, Any]:
        """Whether turns can be taken, with a row for each stage."""
        status = pipeline.status()
        response.status_code = 200 if status.ready else 503
        return {"ready": status.ready, "turns": status.turns, "stages": _rows(status)}

    @app.get("/v1/models")
    def models() -> dict[str, Any]:
        model = {"id": settings.talk.model, "object": "model", "created": started, "owned_by": "voice-app"}
        return {"object": "list", "data": [model]}

    @app.websocket("/v1/realtime")
    async def realtime(socket: WebSocket) -> None:
        await serve_talk(socket, pipeline, settings)

    mount_page(app)
    return app


def _rows(status: PipelineStatus) -> list[dict[str, Any]]:
    """A row for each stage, in the order of the graph."""
    of = {stage: (name, worker) for name, worker in status.workers.items() for stage in worker.stages}
    return [
        {
            "stage": stage,
            "ready": worker.state is WorkerState.READY,
            "state": worker.state,
            "worker": name,
            "pid": worker.pid,
            "restarts": worker.restarts,
        }
        for stage in graph.STAGES
        if stage in of
        for name, worker in (of[stage],)
    ]


def serve(config: PipelineConfig, *, host: str = "127.0.0.1", port: int = 8000) -> int:
    """What `voice-app serve` does; see `voice_app.server.serving`."""
    from voice_app.server import serving

    return serving.serve(config, host=host, port=port)
