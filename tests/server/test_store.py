"""Talks in a real Redis: kept, found again, owned by one, patient while Redis is away."""

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
from needs import missing
from redis.asyncio import Redis

from voice_app.errors import StoreError
from voice_app.server.session.conversation import CallItem, MessageItem, Picture, Recording, Spoken, Text
from voice_app.server.store import embedded
from voice_app.server.store.embedded import EmbeddedRedis, free_folder
from voice_app.server.store.records import Changes, decode_item, encode_item
from voice_app.server.store.redis_store import RedisStore, Talk

JPEG = Picture(b"\xff\xd8", "image/jpeg")
ITEMS = [
    MessageItem(
        "i1", "user", [Recording(np.arange(5, dtype=np.int16), "hello"), Picture(b"\xff\xd8", "image/jpeg")]
    ),
    MessageItem("i2", "assistant", [Spoken("Hi there.", [(2, 0.3), (9, 0.9)], 0.9, 0.4)], "incomplete"),
    CallItem("i3", "call_1", "f", '{"a":1}'),
    MessageItem("i4", "system", [Text("Be kind.")]),
]


def all_of(items: list) -> Changes:
    return Changes(
        {i.id: encode_item(i, media=False) for i in items}, [i.id for i in items], b'{"type":"realtime"}'
    )


@pytest.fixture(params=["path", "wheel"])
def executable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A redis-server of the system, and the one that comes in a wheel."""
    if request.param == "wheel":
        monkeypatch.setattr(embedded.shutil, "which", lambda name: None)
    found = embedded.program()
    if found is None:
        missing("a redis-server", "apt-get install redis-server")
    return found


async def store_on(url: str, ttl_s: int = 60) -> RedisStore:
    store = RedisStore(url, ttl_s)
    await store.start()
    return store


class Owner:
    """A connection, as the store sees it."""

    def __init__(self, changes: Changes | None = None) -> None:
        self.overtaken = asyncio.Event()
        self._all = changes or Changes()

    def snapshot(self) -> Changes:
        return self._all


async def begin(store: RedisStore, owner: Owner, session_id: str = "sess_1") -> Talk:
    return await store.begin(session_id, owner.overtaken.set, owner.snapshot)


# ------------------------------------------------------------------------------------------------ records


def test_items_come_back_as_they_were_without_media_unless_asked():
    for item in ITEMS:
        again = decode_item(encode_item(item, media=True))
        assert encode_item(again, media=True) == encode_item(item, media=True)
    lean = decode_item(encode_item(ITEMS[0], media=False))
    assert isinstance(lean, MessageItem)
    recording, picture = lean.content
    assert isinstance(recording, Recording)
    assert isinstance(picture, Picture)
    assert (recording.samples, recording.transcript, picture.data) == (None, "hello", b"")


def test_a_damaged_item_is_a_typed_error():
    with pytest.raises(StoreError, match="cannot be read"):
        decode_item(b'{"type":"message"}')


# ------------------------------------------------------------------------------------------------ the store


@pytest.mark.parametrize("restart", [False, True])
async def test_a_talk_is_found_again_also_by_another_server_and_after_a_restart(
    executable: str, tmp_path: Path, restart: bool
):
    redis = EmbeddedRedis(tmp_path / "data", executable)
    first = await store_on(await redis.start())
    talk = await begin(first, Owner())
    first.changed(talk, all_of(ITEMS))
    first.changed(talk, Changes(events={"event_1": b'{"event_id":"event_1"}'}))
    first.changed(talk, Changes(items={"i3": None}, order=["i1", "i2", "i4"]))
    first.release(talk)
    await first.stop()
    if restart:
        await redis.stop()
        redis = EmbeddedRedis(tmp_path / "data", executable)
        url = await redis.start()
    else:
        url = redis.url
    second = await store_on(url)
    found = await second.resume(talk.token, lambda: None, Changes)
    assert found is not None
    mine, stored = found
    assert [item.id for item in stored.items] == ["i1", "i2", "i4"]
    assert stored.config == {"type": "realtime"}
    assert list(stored.events) == ["event_1"]
    assert (mine.epoch, mine.session_id) == (1, "sess_1")
    await second.stop()
    await redis.stop()
    assert not list(Path(url.removeprefix("unix://")).parent.glob("*")), "the socket's folder is gone"


async def test_the_newer_connection_wins_and_the_older_is_told(redis: EmbeddedRedis):
    one, two = await store_on(redis.url), await store_on(redis.url)
    old, new = Owner(), Owner()
    talk = await begin(one, old)
    one.changed(talk, all_of(ITEMS))
    async with asyncio.timeout(30):
        await one.written()
    found = await two.resume(talk.token, new.overtaken.set, new.snapshot)
    assert found is not None
    # Before the next write would tell it: a talk in which nothing changes is written each 20 s.
    async with asyncio.timeout(15):
        await old.overtaken.wait()
    # Even one that has not heard of it yet can write nothing more.
    await one._write_changes(talk, Changes(items={"i1": None}))
    again = await two.resume(talk.token, lambda: None, Changes)
    assert again is not None
    assert [item.id for item in again[1].items] == ["i1", "i2", "i3", "i4"]
    assert not new.overtaken.is_set() or again[0].epoch == 2
    await one.stop()
    await two.stop()


async def test_a_wrong_token_finds_nothing(redis: EmbeddedRedis):
    store = await store_on(redis.url)
    talk = await begin(store, Owner())
    for token in (talk.token + "x", "sess_1.", "sess_2.abc", "", "x"):
        assert await store.resume(token, lambda: None, Changes) is None
    await store.stop()


async def test_a_talk_is_forgotten_after_its_time(redis: EmbeddedRedis):
    store = await store_on(redis.url, ttl_s=1)
    talk = await begin(store, Owner())
    store.release(talk)
    await asyncio.sleep(1.3)
    assert await store.resume(talk.token, lambda: None, Changes) is None
    await store.stop()


async def test_the_time_begins_when_the_connection_is_lost(redis: EmbeddedRedis):
    store = await store_on(redis.url, ttl_s=60)
    talk = await begin(store, Owner())
    async with Redis.from_url(redis.url) as client:
        (name,) = await client.keys("*")
        await client.expire(name, 50)
        store.release(talk)
        await store.written()
        assert await client.pttl(name) > 50_000
    await store.stop()


async def test_while_redis_is_away_talks_go_on_and_are_written_when_it_is_back(tmp_path: Path):
    redis = EmbeddedRedis(tmp_path / "data")
    store = await store_on(await redis.start())
    owner = Owner(all_of(ITEMS))
    talk = await begin(store, owner)
    assert redis.pid
    os.kill(redis.pid, signal.SIGSTOP)
    begun = asyncio.get_running_loop().time()
    for number in range(1000):
        store.changed(talk, Changes(items={"i1": b"%d" % number}))
    assert asyncio.get_running_loop().time() - begun < 0.5, "a talk never waits for Redis"
    with pytest.raises(StoreError, match="does not answer"):
        await begin(store, Owner(), "sess_2")
    store.changed(talk, all_of(ITEMS))
    os.kill(redis.pid, signal.SIGCONT)
    async with asyncio.timeout(60):
        await store.written()
    found = await store.resume(talk.token, lambda: None, Changes)
    assert found is not None
    assert [item.id for item in found[1].items] == [item.id for item in ITEMS]
    await store.stop()
    await redis.stop()


async def test_a_redis_that_lost_everything_gets_the_whole_talk_again(redis: EmbeddedRedis):
    store = await store_on(redis.url)
    talk = await begin(store, Owner(all_of(ITEMS)))
    await store._redis.flushall()
    store.changed(talk, Changes(events={"e": b'{"event_id":"e"}'}))
    async with asyncio.timeout(30):
        await store.written()
    found = await store.resume(talk.token, lambda: None, Changes)
    assert found is not None
    assert [item.id for item in found[1].items] == [item.id for item in ITEMS]
    await store.stop()


async def test_a_redis_of_ours_that_dies_comes_back_with_its_data(redis: EmbeddedRedis):
    store = await store_on(redis.url)
    talk = await begin(store, Owner(all_of(ITEMS)))
    store.changed(talk, all_of(ITEMS))
    await store.written()
    before = redis.pid
    assert before
    while (await store._redis.info("persistence"))["aof_buffer_length"]:  # noqa: ASYNC110
        await asyncio.sleep(0.02)  # Until all is in its log.
    os.kill(before, signal.SIGKILL)
    for number in range(50):
        store.changed(
            talk, Changes(items={"i5": encode_item(CallItem(f"i{number}", "c", "f", "{}"), media=False)})
        )
    async with asyncio.timeout(60):
        await store.written()
    found = await store.resume(talk.token, lambda: None, Changes)
    assert found is not None
    assert len(found[1].items) >= len(ITEMS)
    assert redis.pid != before
    await store.stop()


# --------------------------------------------------------------------------------------------- our own Redis


async def test_a_folder_serves_one_server_at_a_time(redis: EmbeddedRedis, tmp_path: Path):
    with pytest.raises(StoreError, match="in use by another server"):
        await EmbeddedRedis(tmp_path / "data").start()
    assert free_folder(tmp_path, "data") == tmp_path / "data-2"


async def test_what_a_killed_server_left_behind_is_ended(tmp_path: Path):
    """The lock is free, its Redis still runs."""
    killed = EmbeddedRedis(tmp_path / "data")
    await killed.start()
    assert killed._lock
    killed._lock.close()
    assert killed._watcher
    killed._watcher.cancel()
    orphan = psutil.Process(killed.pid)
    fresh = EmbeddedRedis(tmp_path / "data")
    await fresh.start()
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
    await fresh.stop()
    assert killed._process
    await killed._process.wait()
    await killed.stop()


async def test_without_a_redis_server_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embedded, "program", lambda: None)
    with pytest.raises(StoreError, match="--redis"):
        await EmbeddedRedis(tmp_path / "data").start()
