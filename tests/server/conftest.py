"""Fixtures of the tests of the server."""

import pytest
from fake_pipeline import answer
from virtual_talk import VirtualTalk


@pytest.fixture
def t() -> VirtualTalk:
    """A talk in virtual time, answered "It is fine today."."""
    return VirtualTalk(answer)
