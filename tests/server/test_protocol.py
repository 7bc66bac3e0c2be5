"""What is no event of a client's is answered with a code, and the talk goes on."""

from typing import Any

import pytest
from virtual_talk import VirtualTalk


@pytest.mark.parametrize(
    "data", ["{", "[]", "null", "1", '"x"', "", "\x00", '{"type":"x","a":NaN}', b"\xff\xfe"]
)
def test_what_is_no_event_is_answered_and_the_talk_goes_on(t: VirtualTalk, data: str | bytes):
    t.session.receive(data, t.now)
    t._act()
    assert t.error()["code"] == "invalid_value"
    t.update()
    assert t.kinds[-1] == "session.updated"


@pytest.mark.parametrize(
    ("event", "code", "param"),
    [
        ({"type": "session.magic"}, "invalid_value", "type"),
        ({"type": 7}, "invalid_value", "type"),
        ({}, "missing_required_parameter", "type"),
        ({"type": "input_audio_buffer.commit", "extra": 1}, "unknown_parameter", "extra"),
        ({"type": "output_audio_buffer.clear"}, "invalid_value", "type"),
        ({"type": "input_audio_buffer.append", "audio": 5}, "invalid_value", "audio"),
    ],
)
def test_unknown_events_and_keys(t: VirtualTalk, event: dict[str, Any], code: str, param: str):
    t.send_raw({"event_id": "e1", **event})
    assert (t.error()["code"], t.error()["param"], t.error()["event_id"]) == (code, param, "e1")
