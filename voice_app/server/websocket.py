"""`/v1/realtime`: from the opening handshake to a running session."""

import json
import logging
from collections.abc import AsyncIterator

from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from voice_app.errors import StoreError
from voice_app.server import auth
from voice_app.server.admission import Full
from voice_app.server.client_secrets import find_key, find_secret
from voice_app.server.connection import Connection, NoSuchTalk, new_id
from voice_app.server.driver import Dialect
from voice_app.server.hub import Hub
from voice_app.server.protocol import server_events as events
from voice_app.server.protocol.config import Config
from voice_app.server.protocol.errors import INVALID_REQUEST, SERVER_ERROR

log = logging.getLogger(__name__)

SUBPROTOCOL = "realtime"
"""What a browser asks for, and must get back, when it puts its key into the subprotocols."""


class StarletteSocket:
    """A Starlette WebSocket as the driver wants it."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def messages(self) -> AsyncIterator[str | bytes]:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            yield text if text is not None else message.get("bytes") or b""

    async def send(self, data: str | bytes) -> None:
        try:
            if isinstance(data, str):
                await self._socket.send_text(data)
            else:
                await self._socket.send_bytes(data)
        except (WebSocketDisconnect, RuntimeError) as error:
            # Starlette says RuntimeError when the socket was closed in the meantime.
            raise ConnectionError("the client is gone") from error

    async def close(self, code: int, reason: str) -> None:
        if self._socket.application_state is WebSocketState.CONNECTED:
            await self._socket.close(code, reason[:120])


class Refusal(Exception):
    """The client is not let in: HTTP `status` and the protocol's error code."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


async def serve_talk(socket: WebSocket, hub: Hub, dialect: Dialect | None = None) -> None:
    """Let the client in, or say why not, and hold its session until one side ends it."""
    subprotocols: list[str] = socket.scope.get("subprotocols", [])
    try:
        key, config = await _who(socket, hub, subprotocols)
    except Refusal as refusal:
        hub.metrics.refused.labels(refusal.code).inc()
        kind = INVALID_REQUEST if refusal.status < 500 else SERVER_ERROR
        detail = {"type": kind, "code": refusal.code, "message": refusal.message}
        await socket.send_denial_response(JSONResponse({"error": detail}, refusal.status))
        return
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in subprotocols else None)
    try:
        await hub.admission.enter(key.name, key.limits.sessions)
    except Full as full:
        hub.metrics.refused.labels("full").inc()
        await _turn_away(socket, 1013, SERVER_ERROR, "server_full", str(full))
        return
    try:
        await Connection(StarletteSocket(socket), socket.query_params, hub, key, dialect).run(config)
    except NoSuchTalk as error:
        await _turn_away(socket, 1008, INVALID_REQUEST, "session_expired", str(error))
    except StoreError as error:
        hub.metrics.refused.labels("store").inc()
        await _turn_away(socket, 1013, SERVER_ERROR, error.code, error.message)
    finally:
        hub.admission.leave(key.name)


async def _who(socket: WebSocket, hub: Hub, subprotocols: list[str]) -> tuple[auth.Key, Config | None]:
    """The client's key, and the configuration that came with its client secret. Raises Refusal."""
    if not auth.origin_allowed(
        socket.headers.get("origin"), socket.headers.get("host"), hub.settings.origins
    ):
        raise Refusal(403, "origin_not_allowed", "This origin may not connect.")
    if not hub.keys:
        return auth.OPEN, None
    shown = auth.credential(socket.headers, subprotocols)
    if shown is None:
        raise Refusal(401, "missing_api_key", auth.NO_KEY)
    try:
        key = await find_key(hub, shown)
        found = (key, None) if key is not None else await find_secret(hub, shown)
    except StoreError as error:
        raise Refusal(503, error.code, error.message) from error
    if found is None:
        raise Refusal(401, "invalid_api_key", auth.WRONG_KEY)
    return found


async def _turn_away(socket: WebSocket, code: int, kind: str, error_code: str, message: str) -> None:
    event = events.error(kind, error_code, message)
    try:
        await socket.send_text(json.dumps({**event, "event_id": new_id("event")}))
        await socket.close(code, message[:120])
    except (WebSocketDisconnect, RuntimeError):
        log.info("the client did not wait for its refusal")
