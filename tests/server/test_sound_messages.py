"""Messages of sound are read in one go; whatever they hold, the outcome is that of the careful way."""

import base64
import json
from typing import Any
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from voice_app.server.protocol import client_events as client
from voice_app.server.protocol.errors import ProtocolError
from voice_app.server.session.item_wire import decode_base64

PADDING = " " * 100
"""Before a message: its type is then not found where clients write it, and the message is read with care."""

base64_or_nearly = st.one_of(
    st.binary(max_size=40).map(lambda data: base64.b64encode(data).decode()),
    st.text("ABCDwxyz0189+/=-_ \n\\é", max_size=12),
)
values = st.one_of(base64_or_nearly, st.none(), st.integers(), st.lists(st.text(max_size=2), max_size=2))
messages = st.fixed_dictionaries(
    {"audio": values},
    optional={"event_id": st.one_of(st.none(), st.text(max_size=3), st.just("x" * 513)), "more": st.none()},
)


def outcome(text: str) -> tuple[object, ...]:
    """What the client's message comes to: its sound, or the error that it is told."""
    try:
        event = client.parse(text)
        match event:
            case client.Sound():
                return "heard", event.audio, event.event_id
            case client.AudioAppend():
                return "heard", decode_base64(event.audio, "audio"), event.event_id
            case _:
                return "other", type(event)
    except ProtocolError as error:
        return "refused", error.code, error.message, error.param


def appended(fields: dict[str, Any]) -> str:
    return json.dumps({"type": "input_audio_buffer.append", **fields})


@given(messages)
@example({"audio": "AAB="})
@example({"audio": "AA==AAAA"})
@example({"audio": "AAAA", "event_id": "é" * 512})
def test_both_ways_of_reading_agree(fields: dict[str, Any]):
    text = appended(fields)
    assert outcome(text) == outcome(PADDING + text)


@given(messages, st.integers(0, 60), st.text(max_size=2))
def test_both_ways_agree_about_broken_json(fields: dict[str, Any], cut: int, tail: str):
    text = appended(fields)
    broken = text[: len(text) - cut] + tail
    told, carefully = outcome(broken), outcome(PADDING + broken)
    # Where it breaks off is told as a position, which the padding moves.
    assert told[:2] == carefully[:2]


def test_two_types_in_one_message():
    """The last of two equal keys counts, in JSON as msgspec reads it."""
    for first, second in (("input_audio_buffer.append", "x"), ("x", "input_audio_buffer.append")):
        text = f'{{"type":"{first}","type":"{second}","audio":"AAAA"}}'
        assert outcome(text) == outcome(PADDING + text)


def test_sound_is_read_in_one_go():
    """Else the tests above compare the careful way with itself."""
    assert isinstance(client.parse(appended({"audio": "AAAA"})), client.Sound)
    # As pipecat writes it: the id comes first.
    first = {"event_id": str(UUID(int=7)), "type": "input_audio_buffer.append", "audio": "AAAA"}
    assert isinstance(client.parse(json.dumps(first)), client.Sound)
    assert isinstance(client.parse(PADDING + appended({"audio": "AAAA"})), client.AudioAppend)
