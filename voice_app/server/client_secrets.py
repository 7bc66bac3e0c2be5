"""`POST /v1/realtime/client_secrets`: a short-lived key for a browser, with the session that it opens."""

import secrets
import time
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field, ValidationError
from starlette.requests import Request

from voice_app.server import auth
from voice_app.server.hub import Hub
from voice_app.server.protocol.config import Config, update
from voice_app.server.protocol.errors import NOT_JSON, ProtocolError, from_validation
from voice_app.server.protocol.items import Model
from voice_app.server.session.effective import check_voice, default_config, effective

PREFIX = "ek_"


class _ExpiresAfter(Model):
    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, Field(ge=10, le=7200)] = 600


class _Request(Model):
    expires_after: _ExpiresAfter = _ExpiresAfter()
    session: dict[str, Any] = Field(default_factory=lambda: {"type": "realtime"})


class _Secret(msgspec.Struct):
    key: auth.Key
    config: dict[str, Any]


async def read_body(request: Request, most: int) -> dict[str, Any]:
    """The JSON object in a body of at most `most` bytes; an empty body is an empty one. Raises
    ProtocolError."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise ProtocolError("invalid_value", f"The body is larger than {most} bytes.")
    try:
        asked = msgspec.json.decode(body) if body else {}
    except NOT_JSON as error:
        raise ProtocolError("invalid_value", f"The body is not valid JSON ({error}).") from error
    if not isinstance(asked, dict):
        raise ProtocolError("invalid_value", "The body must be a JSON object.")
    return asked


async def make_secret(hub: Hub, key: auth.Key, body: dict[str, Any]) -> dict[str, Any]:
    """What the client of the HTTP API gets. Raises ProtocolError and StoreError."""
    try:
        asked = _Request.model_validate(body)
    except ValidationError as error:
        raise from_validation(error, body) from error
    if hub.store is None:
        raise ProtocolError("invalid_value", "This server keeps no sessions and so no client secrets.")
    kind = "transcription" if asked.session.get("type") == "transcription" else "realtime"
    talk = hub.settings.talk
    config = effective(update(default_config(talk, kind), asked.session), talk)
    check_voice(config.audio.output.voice_name, talk)
    value = PREFIX + secrets.token_urlsafe(24)
    kept = msgspec.json.encode(_Secret(key, config.model_dump()))
    await hub.store.put(f"secret:{auth.hashed(value)}", kept, asked.expires_after.seconds)
    expires_at = int(time.time()) + asked.expires_after.seconds
    session = {"id": "sess_" + secrets.token_hex(10), "object": "realtime.session", **config.to_wire()}
    return {"value": value, "expires_at": expires_at, "session": {**session, "expires_at": 0}}


async def find_key(hub: Hub, shown: str) -> auth.Key | None:
    """The key that is `shown`, from the file or the store. Raises StoreError."""
    key = hub.keys.find(shown)
    if key is not None or not hub.keys.in_store or hub.store is None:
        return key
    kept = await hub.store.get(f"key:{auth.hashed(shown)}")
    return None if kept is None else msgspec.json.decode(kept, type=auth.Key)


async def find_secret(hub: Hub, shown: str) -> tuple[auth.Key, Config] | None:
    """Whose it is and the session that it opens, while it is valid. Raises StoreError."""
    if not shown.startswith(PREFIX) or hub.store is None:
        return None
    kept = await hub.store.get(f"secret:{auth.hashed(shown)}")
    if kept is None:
        return None
    secret = msgspec.json.decode(kept, type=_Secret)
    return secret.key, Config.model_validate(secret.config)
