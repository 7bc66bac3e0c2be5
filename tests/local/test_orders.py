"""What a client orders as "system" in mid-talk is asked in the place of a user who says nothing."""

from collections.abc import Sequence

import numpy as np
import pytest

from voice_app.messages import AudioPart, ImagePart, Message, Part, TextPart
from voice_app.models.local.prompt import orders_asked

RULES = Message("system", (TextPart("You are brief."),))
ORDER = Message("system", (TextPart("Greet the user."),))
NOTHING = Message("user", (TextPart(""),))
HELLO = Message("user", (TextPart("Hello."),))
ANSWER = Message("assistant", (TextPart("Hi."),))
PICTURE = ImagePart(b"a picture")


def user(*parts: Part) -> Message:
    return Message("user", parts)


@pytest.mark.parametrize(
    ("talk", "asked"),
    [
        ([RULES, HELLO, ANSWER, ORDER, NOTHING], [RULES, HELLO, ANSWER, user(*ORDER.parts)]),
        ([RULES, ORDER, NOTHING], [RULES, user(*ORDER.parts)]),
        ([ORDER, user(PICTURE)], [user(PICTURE, *ORDER.parts)]),
        ([HELLO, ANSWER, ORDER, user(PICTURE)], [HELLO, ANSWER, user(PICTURE, *ORDER.parts)]),
    ],
)
def test_an_order_is_asked(talk: Sequence[Message], asked: Sequence[Message]) -> None:
    assert orders_asked(talk) == asked


@pytest.mark.parametrize(
    "talk",
    [
        [RULES, HELLO],
        [RULES, HELLO, ANSWER, ORDER, HELLO],
        [RULES, HELLO, ANSWER, NOTHING],
        [ORDER, HELLO, ANSWER, user(PICTURE)],
        [RULES, user(AudioPart(np.zeros(1600, np.float32), 16_000))],
        [NOTHING],
    ],
)
def test_what_is_asked_already_stays(talk: Sequence[Message]) -> None:
    assert orders_asked(talk) is talk
