"""Items of the conversation: created, retrieved, deleted, and cut to what was heard."""

import base64
from typing import Any

import numpy as np
import pytest
from fake_pipeline import spoken
from virtual_talk import SPEECH, VirtualTalk

from voice_app import messages as m
from voice_app.server.settings import TalkSettings

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PNG_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


def user_text(text: str) -> dict[str, Any]:
    """An item."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def test_items_are_added_in_order_and_one_can_be_put_between(t: VirtualTalk):
    for name, previous in (("a", None), ("b", None), ("first", "root"), ("between", "a")):
        item = {
            "id": name,
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": name}],
        }
        fields = {"previous_item_id": previous} if previous else {}
        t.send("conversation.item.create", item=item, **fields)
    assert [item.id for item in t.session.conversation] == ["first", "a", "between", "b"]
    assert [e.get("previous_item_id") for e in t.events("conversation.item.added")] == [None, "a", None, "a"]
    assert t.kinds.count("conversation.item.done") == 4


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"item": {"type": "message", "role": "user"}}, "missing_required_parameter", "item.content"),
        ({}, "missing_required_parameter", "item"),
        ({"item": {"type": "message", "role": "bot", "content": []}}, "invalid_value", "item"),
        (
            {"item": {"type": "message", "role": "user", "content": [{"type": "input_audio"}]}},
            "missing_required_parameter",
            "item.content[0].audio",
        ),
        (
            {"item": {"type": "message", "role": "user", "content": [{"type": "input_text", "txt": ""}]}},
            "missing_required_parameter",
            "item.content[0].text",
        ),
        (
            {
                "item": {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_image", "image_url": "http://x"}],
                }
            },
            "invalid_value",
            "item.content[0].image_url",
        ),
        (
            {
                "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
                "previous_item_id": "nobody",
            },
            "invalid_value",
            "previous_item_id",
        ),
    ],
)
def test_bad_items_are_refused(t: VirtualTalk, fields: dict[str, Any], code: str, param: str):
    t.send("conversation.item.create", event_id="mine", **fields)
    assert (t.error()["code"], t.error()["param"], t.error()["event_id"]) == (code, param, "mine")
    assert len(t.session.conversation) == 0


def test_a_duplicate_id_has_its_own_code(t: VirtualTalk):
    item = {"id": "x", **user_text("x")}
    t.send("conversation.item.create", item=item)
    t.send("conversation.item.create", item=item)
    assert t.error()["code"] == "item_create_duplicate_item_id"


def test_nulls_in_items_mean_left_out(t: VirtualTalk):
    part = {"type": "input_text", "text": "x", "audio": None, "transcript": None}
    t.send(
        "conversation.item.create",
        item={"id": None, "type": "message", "role": "user", "status": None, "content": [part]},
        previous_item_id=None,
    )
    assert t.kinds[-1] == "conversation.item.done"


def test_retrieve_gives_the_audio_that_was_sent(t: VirtualTalk):
    t.update(audio={"input": {"turn_detection": None}})
    t.speak(1)
    t.send("input_audio_buffer.commit")
    item_id = t.last("input_audio_buffer.committed")["item_id"]
    assert "audio" not in t.last("conversation.item.added")["item"]["content"][0]
    t.send("conversation.item.retrieve", item_id=item_id)
    part = t.last("conversation.item.retrieved")["item"]["content"][0]
    got = np.frombuffer(base64.b64decode(part["audio"]), "<i2").astype(float)
    sent = np.tile(np.frombuffer(base64.b64decode(SPEECH), "<i2").astype(float), 50)
    assert len(got) == pytest.approx(len(sent), abs=100)
    size = min(len(got), len(sent))
    assert np.corrcoef(got[2400 : size - 2400], sent[2400 : size - 2400])[0, 1] > 0.95


def test_delete_takes_the_item_out_of_the_prompt(t: VirtualTalk):
    t.say("forget this")
    item_id = t.last("conversation.item.added")["item"]["id"]
    t.send("conversation.item.delete", item_id=item_id)
    assert t.last("conversation.item.deleted")["item_id"] == item_id
    t.say("and this?")
    t.send("response.create")
    assert "forget this" not in str(t.history())


@pytest.mark.parametrize("verb", ["retrieve", "delete", "truncate"])
def test_unknown_items_have_the_codes_that_clients_know(t: VirtualTalk, verb: str):
    fields = {"content_index": 0, "audio_end_ms": 0} if verb == "truncate" else {}
    t.send(f"conversation.item.{verb}", item_id="nobody", **fields)
    assert t.error()["code"] == f"item_{verb}_invalid_item_id"


def test_a_picture_goes_into_the_prompt(t: VirtualTalk):
    content = [{"type": "input_image", "image_url": PNG_URL}, {"type": "input_text", "text": "What is this?"}]
    t.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    t.send("response.create")
    parts = t.requests[0][1].messages[-1].parts
    assert parts == (m.ImagePart(PNG), m.TextPart("What is this?"))


# --------------------------------------------------------------------------------------------------- truncate


WORDS = "one two three four"


def replied() -> tuple[VirtualTalk, str]:
    """A talk with one whole spoken reply, 0.3 s a word, and the reply's item."""
    t = VirtualTalk(lambda request: spoken(WORDS, heard=None), TalkSettings(lead_s=100))
    t.say("Hello")
    t.send("response.create")
    t.wait(1)
    return t, t.last("response.done")["response"]["output"][0]["id"]


@pytest.mark.parametrize(
    ("end_ms", "kept"),
    [
        (0, ""),
        (299, ""),
        (300, "one"),
        (650, "one two"),
        (1200, "one two three four"),
        (1400, "one two three four"),
    ],
)
def test_truncate_keeps_exactly_the_heard_words(end_ms: int, kept: str):
    t, item_id = replied()
    t.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=end_ms)
    assert t.last("conversation.item.truncated")["audio_end_ms"] == min(end_ms, 1200)
    t.send("conversation.item.retrieve", item_id=item_id)
    assert t.last("conversation.item.retrieved")["item"]["content"][0]["transcript"] == kept
    t.say("And?")
    t.send("response.create")
    said = [text for role, text in t.history() if role == "assistant"]
    assert said == ([kept] if kept else []), "what was not heard is not remembered; nothing heard, no item"


def test_truncate_beyond_the_end_and_its_slack_is_an_error():
    t, item_id = replied()
    t.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=1451)
    assert t.error()["code"] == "invalid_value"
    assert "already shorter than 1451ms" in t.error()["message"]


def test_the_client_may_correct_the_servers_cut_upwards():
    """The server thinks that 0 ms were heard when speech began; the client knows better."""
    t, item_id = replied()
    t.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=300)
    t.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=900)
    t.send("conversation.item.retrieve", item_id=item_id)
    assert t.last("conversation.item.retrieved")["item"]["content"][0]["transcript"] == "one two three"


def test_only_spoken_answers_can_be_truncated(t: VirtualTalk):
    t.say("Hello")
    item_id = t.last("conversation.item.added")["item"]["id"]
    t.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=0)
    assert t.error()["code"] == "unsupported_content_type"


def test_truncate_while_the_reply_is_being_made():
    t = VirtualTalk(lambda request: spoken("one two three four", heard=None), each_s=0.1)
    t.say("Hello")
    t.send("response.create")
    t.wait(0.5)
    item_id = t.last("response.output_item.added")["item"]["id"]
    t.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=300)
    t.send("conversation.item.retrieve", item_id=item_id)
    assert t.last("conversation.item.retrieved")["item"]["content"][0]["transcript"] == "one"
    t.send("response.cancel")
    t.checker.finish()
