"""What a client did wrong, with the codes that client libraries route on."""

import msgspec
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from voice_app.errors import InputError

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What `msgspec.json.decode` raises for what a client may send: the last where it nests too deep."""


class ProtocolError(InputError):
    """One event of the client was not carried out; the connection lives on.

    `code` is one of those that clients know (OpenAI's Realtime API); `event_id` is the client's own."""

    def __init__(
        self, code: str, message: str, *, param: str | None = None, event_id: str | None = None
    ) -> None:
        super().__init__(message, param=param)
        self.code = code
        self.event_id = event_id


def from_validation(error: ValidationError, data: object, root: str = "") -> ProtocolError:
    """The first thing that pydantic found wrong with `data`, as the protocol says it; `root` goes before
    the parameter's path."""
    first = error.errors(include_url=False, include_context=True, include_input=False)[0]
    param = ".".join(part for part in (root, _path(first, data)) if part)
    kind = first["type"]
    if kind in ("missing", "union_tag_not_found"):
        return ProtocolError(
            "missing_required_parameter", f"Missing required parameter: '{param}'.", param=param
        )
    if kind == "extra_forbidden":
        return ProtocolError("unknown_parameter", f"Unknown parameter: '{param}'.", param=param)
    return ProtocolError(
        "invalid_value", f"Invalid value for '{param or 'event'}': {first['msg']}.", param=param or None
    )


def _path(error: ErrorDetails, data: object) -> str:
    """The parameter's dotted path. pydantic also names the branches of unions that it took: those are
    no keys of `data` and are left out."""
    path = ""
    here = data
    for position, part in enumerate(error["loc"]):
        last = position == len(error["loc"]) - 1
        if isinstance(part, int):
            path += f"[{part}]"
            here = here[part] if isinstance(here, list) and part < len(here) else None
        elif isinstance(here, dict) and (part in here or (last and error["type"] == "missing")):
            path += f".{part}" if path else part
            here = here.get(part)
    if error["type"] == "union_tag_not_found":
        path += ".type" if path else "type"
    return path
