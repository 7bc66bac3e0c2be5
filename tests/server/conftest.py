"""Fixtures of the tests of the server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_pipeline import answer
from virtual_talk import VirtualTalk

from voice_app.server.store.embedded import EmbeddedRedis


@pytest.fixture
def t() -> VirtualTalk:
    """A talk in virtual time, answered "It is fine today."."""
    return VirtualTalk(answer)


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[EmbeddedRedis]:
    embedded = EmbeddedRedis(tmp_path / "data")
    await embedded.start()
    yield embedded
    await embedded.stop()
