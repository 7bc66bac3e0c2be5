"""Talks in Redis: written behind the talk, never in its way; one owner at a time.

Of each talk there is a hash `voice-app:talk:ID` (configuration, order of items, an entry for each item, the
hashed resume token, the epoch) and a list `voice-app:events:ID` of the last events that were sent. Every
write names the epoch of its writer: since a resume raises it, a connection that was overtaken can write
nothing more, and is told so.

Changes wait in memory, merged by key, until Redis takes them: what waits is bounded by the talks themselves,
not by the time that Redis is away.
"""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.typing import EncodableT, FieldT

from voice_app.errors import StoreError
from voice_app.server.store.records import EVENTS_KEPT, Changes, StoredTalk, decode_item, in_order

log = logging.getLogger(__name__)

FIRST_RETRY_S, LAST_RETRY_S = 0.1, 2.0
CALL_TIMEOUT_S = 2.0
"""Waited for an answer of Redis when a client waits for ours."""
FLUSH_TIMEOUT_S = 5.0
"""Waited at the end for what is not written yet."""

_TAKEOVERS = "voice-app:takeovers"

_WRITE = """
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return -1 end
if tonumber(epoch) ~= tonumber(ARGV[1]) then return 0 end
local fields = cjson.decode(ARGV[3])
local at = 4
for _, field in ipairs(fields.set) do redis.call('HSET', KEYS[1], field, ARGV[at]); at = at + 1 end
for _, field in ipairs(fields.del) do redis.call('HDEL', KEYS[1], field) end
for i = 1, fields.events do redis.call('RPUSH', KEYS[2], ARGV[at]); at = at + 1 end
if fields.events > 0 then redis.call('LTRIM', KEYS[2], -tonumber(fields.keep), -1) end
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[2])
return 1
"""
"""KEYS: hash, list. ARGV: epoch, TTL, layout, the fields' values, events. 1 written, 0 overtaken, -1 gone."""

_TAKE = """
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return false end
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('EXPIRE', KEYS[1], ARGV[2])
return redis.call('HGETALL', KEYS[1])
"""


class Talk(msgspec.Struct):
    """A talk that this server owns. `snapshot` gives all of it, should Redis have lost it."""

    session_id: str
    epoch: int
    token: str
    overtaken: Callable[[], None]
    snapshot: Callable[[], Changes]
    pending: Changes = msgspec.field(default_factory=Changes)


class RedisStore:
    """`url`: as redis-py takes it. `ttl_s`: how long a talk is kept whose connection is gone."""

    def __init__(self, url: str, ttl_s: int) -> None:
        self._redis: Redis = Redis.from_url(
            url,
            socket_timeout=CALL_TIMEOUT_S,
            socket_connect_timeout=CALL_TIMEOUT_S,
            # Once more at once, for a connection that Redis closed; its own way waits for seconds.
            retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
        )
        self._ttl_s = ttl_s
        self._talks: dict[str, Talk] = {}
        self._dirty: dict[str, Talk] = {}
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._write = self._redis.register_script(_WRITE)
        self._take = self._redis.register_script(_TAKE)
        self._tasks: list[asyncio.Task[None]] = []
        self.connected = False

    async def start(self) -> None:
        """Raises StoreError if Redis does not answer."""
        try:
            await self._redis.ping()
        except (RedisError, OSError) as error:
            raise StoreError(f"Redis does not answer: {error}") from error
        self.connected = True
        self._tasks = [
            asyncio.create_task(self._write_behind(), name="store writer"),
            asyncio.create_task(self._hear_takeovers(), name="store takeovers"),
            asyncio.create_task(self._keep_alive(), name="store keep-alive"),
        ]

    async def stop(self) -> None:
        """Write what waits, if Redis takes it in time."""
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await self.written()
        except TimeoutError:
            log.warning("Redis is away: %d talks could not be stored", len(self._dirty))
        await _end(self._tasks)
        await self._redis.aclose()

    # ------------------------------------------------------------------------------------- for the talks

    async def begin(
        self, session_id: str, overtaken: Callable[[], None], snapshot: Callable[[], Changes]
    ) -> Talk:
        """A new talk. Raises StoreError if Redis does not answer: a talk that cannot be kept is not begun."""
        token = f"{session_id}.{secrets.token_urlsafe(24)}"
        talk = Talk(session_id, 0, token, overtaken, snapshot)
        await self._ask(self._write_head(talk))
        return self._own(talk)

    async def _write_head(self, talk: Talk) -> None:
        name = _hash_name(talk.session_id)
        head: dict[FieldT, EncodableT] = {"epoch": talk.epoch, "token": _hashed(talk.token)}
        await cast(Awaitable[int], self._redis.hset(name, mapping=head))
        await self._redis.expire(name, self._ttl_s)

    async def resume(
        self, token: str, overtaken: Callable[[], None], snapshot: Callable[[], Changes]
    ) -> tuple[Talk, StoredTalk] | None:
        """Take over the talk that `token` is for; None if there is none. Whoever had it is told."""
        session_id = token.partition(".")[0]
        if not session_id.startswith("sess_"):
            return None
        # What this very server has not written yet belongs to it.
        await self._ask(self._flush_one(session_id))
        found = await self._ask(self._take(keys=[_hash_name(session_id)], args=[_hashed(token), self._ttl_s]))
        if not found:
            return None
        listed = cast(Awaitable[list[bytes]], self._redis.lrange(_list_name(session_id), 0, -1))
        events = await self._ask(listed)
        stored = _stored(session_id, dict(zip(found[::2], found[1::2], strict=True)), events)
        self._overtake(session_id)
        await self._ask(self._redis.publish(_TAKEOVERS, f"{session_id} {stored.epoch}"))
        return self._own(Talk(session_id, stored.epoch, token, overtaken, snapshot)), stored

    def _own(self, talk: Talk) -> Talk:
        self._talks[talk.session_id] = talk
        return talk

    def changed(self, talk: Talk, changes: Changes) -> None:
        """Keep `changes`; returns at once."""
        if self._talks.get(talk.session_id) is not talk:
            return
        talk.pending.add(changes)
        self._dirty[talk.session_id] = talk
        self._idle.clear()
        self._work.set()

    def release(self, talk: Talk) -> None:
        """The connection is gone: the talk is kept for `ttl_s` from now on. What waits is still written."""
        if self._talks.get(talk.session_id) is talk:
            self.changed(talk, Changes())
            del self._talks[talk.session_id]

    async def written(self) -> None:
        """Returns when nothing waits to be written."""
        await self._idle.wait()

    # ---------------------------------------------------------------------------------- small values

    async def put(self, name: str, value: bytes, ttl_s: int) -> None:
        """Keep a value (a client secret) for a while. Raises StoreError."""
        await self._ask(self._redis.set(f"voice-app:{name}", value, ex=ttl_s))

    async def get(self, name: str) -> bytes | None:
        """Raises StoreError."""
        return await self._ask(self._redis.get(f"voice-app:{name}"))

    async def add(self, name: str, amount: int, ttl_s: int) -> int:
        """Count; gives the sum. It starts over when nothing was added for `ttl_s`. Raises StoreError."""
        total = await self._ask(self._redis.incrby(f"voice-app:{name}", amount))
        await self._ask(self._redis.expire(f"voice-app:{name}", ttl_s))
        return total

    async def _ask(self, call: Awaitable[Any]) -> Any:
        try:
            return await call
        except (RedisError, OSError) as error:
            # Clients read this: where the store is and what ails it is for the log alone.
            log.info("Redis does not answer: %s", error)
            raise StoreError("the session store does not answer; try again later") from error

    # -------------------------------------------------------------------------------------- writing behind

    async def _write_behind(self) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                await self._flush()
                self.connected = True
                retry_s = FIRST_RETRY_S
            except (RedisConnectionError, RedisTimeoutError, OSError) as error:
                self._lost(error)
                self._work.set()
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, LAST_RETRY_S)

    def _lost(self, error: Exception) -> None:
        if self.connected:
            log.warning("Redis is away (%s): %d talks wait to be stored", error, len(self._dirty))
        self.connected = False

    async def _keep_alive(self) -> None:
        """A talk in which nothing changes is not forgotten while its client is there."""
        while True:
            await asyncio.sleep(self._ttl_s / 3)
            for talk in list(self._talks.values()):
                self.changed(talk, Changes())

    async def _flush(self) -> None:
        for session_id in list(self._dirty):
            await self._flush_one(session_id)
        if not self._dirty:
            self._idle.set()

    async def _flush_one(self, session_id: str) -> None:
        talk = self._dirty.pop(session_id, None)
        if talk is None:
            return
        changes, talk.pending = talk.pending, Changes()
        done = False
        try:
            done = await self._write_changes(talk, changes)
        finally:
            if not done:
                changes.add(talk.pending)
                talk.pending = changes
                self._dirty[session_id] = talk

    async def _write_changes(self, talk: Talk, changes: Changes) -> bool:
        """True: nothing of it needs to be written again."""
        keys = [_hash_name(talk.session_id), _list_name(talk.session_id)]
        outcome = await self._write(keys=keys, args=[talk.epoch, self._ttl_s, *_arguments(changes)])
        if outcome == 0:
            if self._talks.get(talk.session_id) is talk:
                self._overtake(talk.session_id)
        elif outcome == -1:
            log.warning("Redis lost talk %s: it is stored again as a whole", talk.session_id)
            await self._write_head(talk)
            changes.add(talk.snapshot())
            await self._write(keys=keys, args=[talk.epoch, self._ttl_s, *_arguments(changes)])
        return True

    # ---------------------------------------------------------------------------------------- overtaking

    def _overtake(self, session_id: str) -> None:
        talk = self._talks.pop(session_id, None)
        if talk is not None:
            talk.overtaken()

    async def _hear_takeovers(self) -> None:
        """Hear at once what the next write would tell."""
        while True:
            try:
                async with self._redis.pubsub() as channel:
                    await channel.subscribe(_TAKEOVERS)
                    self.connected = True
                    while True:
                        message = await channel.get_message(ignore_subscribe_messages=True, timeout=1.0)
                        if message is not None:
                            self._heard(message["data"].decode())
            except (RedisError, OSError) as error:
                # Also how a server in which nobody talks notices.
                self._lost(error)
                await asyncio.sleep(LAST_RETRY_S)

    def _heard(self, message: str) -> None:
        session_id, _, epoch = message.partition(" ")
        talk = self._talks.get(session_id)
        if talk is not None and talk.epoch < int(epoch):
            self._overtake(session_id)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel until it is heard: redis-py (8.1) swallows a cancellation that comes while it connects."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.2)


def _hash_name(session_id: str) -> str:
    return f"voice-app:talk:{session_id}"


def _list_name(session_id: str) -> str:
    return f"voice-app:events:{session_id}"


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _arguments(changes: Changes) -> list[Any]:
    """ARGV of `_WRITE` from the layout on."""
    fields = {f"item:{item_id}": data for item_id, data in changes.items.items() if data is not None}
    if changes.config is not None:
        fields["config"] = changes.config
    if changes.order is not None:
        fields["order"] = msgspec.json.encode(changes.order)
    layout = {
        "set": list(fields),
        "del": [f"item:{item_id}" for item_id, data in changes.items.items() if data is None],
        "events": len(changes.events),
        "keep": EVENTS_KEPT,
    }
    return [msgspec.json.encode(layout), *fields.values(), *changes.events.values()]


def _stored(session_id: str, fields: dict[bytes, bytes], events: list[bytes]) -> StoredTalk:
    items = {
        name.removeprefix(b"item:").decode(): decode_item(data)
        for name, data in fields.items()
        if name.startswith(b"item:")
    }
    order = msgspec.json.decode(fields.get(b"order", b"[]"), type=list[str])
    return StoredTalk(
        session_id,
        int(fields[b"epoch"]),
        msgspec.json.decode(fields.get(b"config", b"{}")),
        in_order(items, order),
        {msgspec.json.decode(event)["event_id"]: event for event in events},
    )
