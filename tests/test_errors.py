"""Errors that cross a process boundary keep their class."""

import pytest

from voice_app import errors
from voice_app.errors import InputError, VoiceAppError, from_info, to_info
from voice_app.server.protocol.errors import ProtocolError

CROSSING = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, VoiceAppError)
]


@pytest.mark.parametrize("kind", CROSSING, ids=lambda kind: kind.__name__)
def test_an_error_crosses_with_its_class(kind: type[VoiceAppError]) -> None:
    crossed = from_info(to_info(kind("what is wrong", param="voice")))

    assert type(crossed) is kind
    assert (crossed.message, crossed.param) == ("what is wrong", "voice")


def test_the_servers_own_errors_do_not_stand_in_for_a_workers() -> None:
    """In the server's process the tree has a class more, which inherits its parent's code."""
    assert ProtocolError.code == InputError.code

    assert type(from_info(to_info(InputError("no such voice", param="voice")))) is InputError
