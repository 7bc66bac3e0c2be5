"""Who may talk: API keys (only their hashes are known here), and pages of which origins."""

import hashlib
import ipaddress
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from voice_app.errors import ConfigError

KEY_SUBPROTOCOL = "openai-insecure-api-key."
"""A browser cannot set headers: its key comes in a subprotocol of this beginning."""
NO_KEY = "Show an API key: Authorization: Bearer KEY."
WRONG_KEY = "Incorrect API key provided."


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one key may use. `events_per_second`, `responses_per_minute` and `image_bytes_per_minute` are of
    one talk; `audio_minutes` of the user's sound are of all the key's talks in a day (UTC)."""

    sessions: int = 64
    audio_minutes: int = 60 * 24 * 64
    image_bytes_per_minute: int = 64 << 20
    events_per_second: int = 500
    responses_per_minute: int | None = None


class Key(msgspec.Struct, frozen=True):
    """`name`: of the key, for logs and limits; it is no secret."""

    name: str
    limits: Limits = Limits()


OPEN = Key("open", Limits(sessions=sys.maxsize, audio_minutes=sys.maxsize))
"""All who talk to a server without keys: together they are bounded by the server's own `max_talks` alone."""


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    limits: Limits = Limits()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: dict[str, _Entry]


class Keys:
    """The keys that are known, by their SHA-256 (keys are random and long: nothing slower is needed).
    `in_store`: others may be in the session store, as `voice-app:key:HASH`."""

    def __init__(self, by_hash: Mapping[str, Key], *, in_store: bool = False) -> None:
        self._by_hash = dict(by_hash)
        self.in_store = in_store

    def __bool__(self) -> bool:
        """Whether a key has to be shown."""
        return bool(self._by_hash) or self.in_store

    def find(self, secret: str) -> Key | None:
        return self._by_hash.get(hashed(secret))


def hashed(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def load_keys(path: Path) -> Keys:
    """Read a TOML file with a table for each key:

        [keys.alice]
        sha256 = "…"   # printf %s "$KEY" | sha256sum
        limits = { sessions = 4 }

    Raises ConfigError."""
    try:
        entries = msgspec.convert(tomllib.loads(path.read_text()), _File).keys
    except OSError as error:
        raise ConfigError(f"--keys {path}: {error.strerror}", param="keys") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"--keys {path}: {error}", param="keys") from error
    if not entries:
        raise ConfigError(f"--keys {path}: holds no key; add a [keys.NAME] table", param="keys")
    return Keys({entry.sha256.lower(): Key(name, entry.limits) for name, entry in entries.items()})


def credential(headers: Mapping[str, str], subprotocols: Iterable[str]) -> str | None:
    """What the client shows: `Authorization: Bearer`, `api-key`, or a subprotocol."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    if headers.get("api-key"):
        return headers["api-key"]
    return next(
        (p.removeprefix(KEY_SUBPROTOCOL) for p in subprotocols if p.startswith(KEY_SUBPROTOCOL)), None
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_address(host: str, *, has_keys: bool, open_to_all: bool) -> None:
    """Refuse to serve the network without keys. Raises ConfigError."""
    if not (has_keys or open_to_all or is_loopback(host)):
        raise ConfigError(
            f"--host {host} can be reached from other machines: give --keys FILE, or --open to let all in",
            param="host",
        )


def origin_allowed(origin: str | None, host: str | None, allowed: Iterable[str]) -> bool:
    """Whether a page of `origin` may connect. Programs send no origin. Without a list, a page may connect to
    the host that it came from, and a page of this machine to this machine: else any page on the web could
    talk to a server on its visitor's own computer."""
    allowed = tuple(allowed)
    if origin is None or "*" in allowed or origin in allowed:
        return True
    if allowed:
        return False
    page = urlsplit(origin)
    asked = urlsplit(f"//{host}") if host else None
    if asked is None or page.hostname is None or asked.hostname is None:
        return False
    return page.netloc == asked.netloc or (is_loopback(page.hostname) and is_loopback(asked.hostname))
