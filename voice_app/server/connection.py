"""One connection of a talk, new or taken up again: its session, its driver, and what of it is kept."""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from voice_app.errors import StoreError
from voice_app.log import bind
from voice_app.server.auth import Key
from voice_app.server.driver import Dialect, Driver, Socket, now, unix_time
from voice_app.server.hub import Hub
from voice_app.server.outbox import Outbox
from voice_app.server.protocol.config import Config, Extensions
from voice_app.server.protocol.errors import ProtocolError
from voice_app.server.session.effective import default_config
from voice_app.server.session.session import Session
from voice_app.server.store.records import Changes, StoredTalk
from voice_app.server.store.redis_store import Talk

log = logging.getLogger(__name__)

OVERTAKEN = 4001
"""Close code: another connection took the talk up."""
ACCOUNT_EVERY_S = 10.0
"""How often the user's sound is counted against the key's allowance."""


class NoSuchTalk(Exception):
    """The resume token is for no talk that is kept."""


def new_id(prefix: str) -> str:
    """A unique id in the protocol's style."""
    return f"{prefix}_{secrets.token_hex(10)}"


class Connection:
    """One connection of a talk, new or taken up again."""

    def __init__(
        self, socket: Socket, query: Mapping[str, str], hub: Hub, key: Key, dialect: Dialect | None = None
    ) -> None:
        self._socket = socket
        self._hub = hub
        self._key = key
        self._query = query
        self._dialect = dialect
        self._driver: Driver | None = None
        self._talk: Talk | None = None
        self._events = Changes()

    async def run(self, config: Config | None) -> None:
        """Raises StoreError if the talk cannot be kept, NoSuchTalk if it cannot be taken up."""
        stored = None
        token = self._query.get("resume")
        if token:
            found = await self._resume(token)
            if found is None:
                raise NoSuchTalk("There is no such session any more.")
            self._talk, stored = found
        session = self._session(config, stored)
        if self._hub.store is not None and self._talk is None:
            self._talk = await self._hub.store.begin(session.id, self._overtaken, self._everything)
        with bind(session=session.id):
            await self._run(session, stored)

    async def _resume(self, token: str) -> tuple[Talk, StoredTalk] | None:
        if self._hub.store is None:
            return None
        return await self._hub.store.resume(token, self._overtaken, self._everything)

    def _session(self, config: Config | None, stored: StoredTalk | None) -> Session:
        limits = self._key.limits
        talk = replace(
            self._hub.settings.talk,
            image_bytes_per_minute=limits.image_bytes_per_minute,
            responses_per_minute=limits.responses_per_minute,
        )
        if config is None:
            intent = self._query.get("intent")
            config = default_config(talk, "transcription" if intent == "transcription" else "realtime")
        asked = [
            name for name in self._query.get("extensions", "").split(",") if name in Extensions.model_fields
        ]
        if stored is not None:
            asked.append("resume")
        config = config.model_copy(update={"extensions": Extensions(**dict.fromkeys(asked, True))})
        return Session(
            stored.session_id if stored else new_id("sess"),
            talk,
            new_id,
            now=now(),
            unix_time=unix_time(),
            config=config,
            stored=stored,
            occupancy=self._hub.occupancy,
        )

    async def _run(self, session: Session, stored: StoredTalk | None) -> None:
        hub, talk = self._hub, self._talk
        if talk is not None:
            session.resumption = {
                "token": talk.token,
                "ttl_s": hub.settings.talk_ttl_s,
                "resumed": stored is not None,
            }
        self._driver = driver = Driver(
            session,
            self._socket,
            hub.pipeline,
            Outbox(hub.settings.outbox_bytes),
            hub.metrics,
            event_prefix=f"event_{session.id[5:]}_{talk.epoch if talk else 0}",
            send_timeout_s=hub.settings.send_timeout_s,
            events_per_s=self._key.limits.events_per_second,
            keep=self._keep if talk is not None else None,
            acted=self._acted,
            dialect=self._dialect,
            judge=hub.judge,
            trace=hub.tracer.turn if hub.tracer is not None else None,
        )
        hub.drivers.add(driver)
        accounting = asyncio.create_task(self._account(driver), name="accounting")
        log.info("talk %s", "is taken up again" if stored else "begins")
        try:
            await driver.run(lambda: self._replay(driver, stored))
        finally:
            accounting.cancel()
            hub.leave(driver)
            if hub.store is not None and talk is not None:
                hub.store.release(talk)
            log.info("talk ends")

    def _replay(self, driver: Driver, stored: StoredTalk | None) -> None:
        """What the client missed: the events after its last one, else the items."""
        if stored is None:
            return
        last = self._query.get("last_event_id")
        ids = list(stored.events)
        if last in stored.events:
            for event_id in ids[ids.index(last) + 1 :]:
                driver.resend(stored.events[event_id])
        else:
            driver.session.replay_items()

    # ------------------------------------------------------------------------------------------- keeping

    def _keep(self, event_id: str, data: bytes) -> None:
        if self._driver is not None and self._driver.session.config.extensions.resume:
            self._events.events[event_id] = data

    def _acted(self) -> None:
        """Write behind what has changed."""
        store, talk, driver = self._hub.store, self._talk, self._driver
        if store is None or talk is None or driver is None:
            return
        changes = driver.session.changes(media=self._hub.settings.store_audio)
        if self._events.events:
            changes = changes or Changes()
            changes.events, self._events = self._events.events, Changes()
        if changes is not None:
            store.changed(talk, changes)

    def _everything(self) -> Changes:
        if self._driver is None:
            return Changes()
        return self._driver.session.everything(media=self._hub.settings.store_audio)

    def _overtaken(self) -> None:
        if self._driver is not None:
            error = ProtocolError("session_taken_over", "Another connection has taken up this session.")
            self._driver.end(error, OVERTAKEN)

    async def _account(self, driver: Driver) -> None:
        """Count the user's sound against the day's allowance of the key."""
        counted_ms = 0
        while True:
            await asyncio.sleep(ACCOUNT_EVERY_S)
            new_ms, counted_ms = driver.session.heard_ms - counted_ms, driver.session.heard_ms
            used_ms = await self._count(new_ms)
            if used_ms > self._key.limits.audio_minutes * 60_000:
                driver.end(
                    ProtocolError("insufficient_quota", "This key has no audio minutes left today."), 1008
                )
                return

    async def _count(self, new_ms: int) -> int:
        store = self._hub.store
        if store is None:
            return 0
        try:
            return await store.add(f"audio-ms:{self._key.name}:{datetime.now(UTC):%F}", new_ms, 2 * 86_400)
        except StoreError:
            return 0  # Talks in progress go on without Redis.
