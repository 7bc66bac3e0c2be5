"""`/v1/realtime`: from the opening handshake to a running session."""

import logging
import secrets
from collections.abc import AsyncIterator

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from voice_app.log import bind
from voice_app.server.driver import Driver, now, unix_time
from voice_app.server.outbox import Outbox
from voice_app.server.pipeline import Pipeline
from voice_app.server.session.session import Session
from voice_app.server.settings import ServerSettings

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


def new_id(prefix: str) -> str:
    """A unique id in the protocol's style."""
    return f"{prefix}_{secrets.token_hex(10)}"


async def serve_talk(socket: WebSocket, pipeline: Pipeline, settings: ServerSettings) -> None:
    """Accept the client and hold its session until one side ends it."""
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    session = Session(new_id("sess"), settings.talk, new_id, now=now(), unix_time=unix_time())
    with bind(session=session.id):
        log.info("talk begins")
        outbox = Outbox(settings.outbox_bytes)
        await Driver(session, StarletteSocket(socket), pipeline, outbox, settings.send_timeout_s).run()
        log.info("talk ends")
