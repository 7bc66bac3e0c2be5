"""The demo page: the files of `web/`, with headers that let it load nothing from elsewhere."""

from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FOLDER = Path(__file__).parents[2] / "web"
"""Beside the package: the page comes with a checkout (`pip install -e .`), not with a wheel."""

HEADERS = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "permissions-policy": "microphone=(self), camera=(self)",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


def mount_page(app: FastAPI) -> bool:
    """Serve the page at `/`. Call it after all routes are there: the mount takes whatever they leave.

    Gives False where the page's folder is missing."""
    if not FOLDER.is_dir():
        return False
    app.mount("/", _WithHeaders(StaticFiles(directory=FOLDER, html=True)), name="page")
    return True


class _WithHeaders:
    """Adds `HEADERS` to every answer of `app`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # The mount takes unknown WebSocket paths too: refused, as an unknown page is.
            await send({"type": "websocket.close", "code": 1000})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except HTTPException as error:
            refusal = PlainTextResponse(error.detail, error.status_code, error.headers)
            await refusal(scope, receive, send_with_headers)
