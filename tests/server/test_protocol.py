"""Client events one by one: what they do, and with which codes they are refused."""

import base64
from typing import Any

import msgspec
import numpy as np
import pytest
from fake_pipeline import spoken, written
from virtual_talk import SPEECH, VirtualTalk

from voice_app import messages as m
from voice_app.errors import StageFailed
from voice_app.server.protocol.voices import STAND_INS
from voice_app.server.settings import TalkSettings

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PNG_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


def answer(request: m.TurnRequest):
    return spoken("It is fine today.", heard="hello") if request.speech else written("It is fine today.")


@pytest.fixture
def t() -> VirtualTalk:
    return VirtualTalk(answer)


BOTH = ["text", "audio"]
FAST = {"output": {"speed": 9}}


def user_text(text: str) -> dict[str, Any]:
    """An item."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def error(t: VirtualTalk) -> dict[str, Any]:
    """The last event, which must be an error."""
    assert t.kinds[-1] == "error", t.log[-1]
    return t.log[-1][1]["error"]


def detection(t: VirtualTalk) -> dict[str, Any] | None:
    return t.last("session.updated")["session"]["audio"]["input"]["turn_detection"]


# -------------------------------------------------------------------------------------- session.update


def test_session_created_shows_the_whole_session(t: VirtualTalk):
    session = t.last("session.created")["session"]
    assert session["type"] == "realtime"
    assert session["audio"]["input"]["turn_detection"] == {
        "type": "server_vad",
        "threshold": 0.5,
        "prefix_padding_ms": 300,
        "silence_duration_ms": 500,
        "create_response": True,
        "interrupt_response": True,
    }
    assert session["output_modalities"] == ["audio"]


def test_a_partial_turn_detection_keeps_the_rest(t: VirtualTalk):
    t.update(audio={"input": {"turn_detection": {"threshold": 0.8}}})
    changed = detection(t)
    assert changed
    assert (changed["type"], changed["threshold"], changed["silence_duration_ms"]) == ("server_vad", 0.8, 500)


def test_null_switches_turn_detection_off_and_an_object_on_again(t: VirtualTalk):
    t.update(audio={"input": {"turn_detection": None}})
    assert detection(t) is None
    t.speak(1)
    t.silence(2)
    assert "input_audio_buffer.speech_started" not in t.kinds
    t.update(audio={"input": {"turn_detection": {"silence_duration_ms": 300}}})
    changed = detection(t)
    assert changed
    assert changed["silence_duration_ms"] == 300
    t.speak(1)
    t.silence(2)
    assert "input_audio_buffer.speech_stopped" in t.kinds


def test_only_present_keys_change_and_empty_values_clear(t: VirtualTalk):
    tool = {"type": "function", "name": "f", "parameters": {"$schema": "x", "type": "object"}}
    t.update(instructions="Be brief.", tools=[tool])
    t.update(max_output_tokens=100)
    session = t.last("session.updated")["session"]
    assert session["instructions"] == "Be brief."
    assert session["tools"][0]["name"] == "f"
    t.update(instructions="", tools=[])
    session = t.last("session.updated")["session"]
    assert (session["instructions"], session["tools"]) == ("", [])


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({}, "missing_required_parameter", "session.type"),
        ({"type": "realtime", "modalities": ["text"]}, "unknown_parameter", "session.modalities"),
        ({"type": "realtime", "audio": {"input": {"x": 1}}}, "unknown_parameter", "session.audio.input.x"),
        (
            {"type": "realtime", "output_modalities": ["text", "audio"]},
            "invalid_value",
            "session.output_modalities",
        ),
        (
            {"type": "realtime", "audio": {"output": {"speed": 9}}},
            "invalid_value",
            "session.audio.output.speed",
        ),
        (
            {
                "type": "realtime",
                "audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": "0"}}},
            },
            "invalid_value",
            "session.audio.input.turn_detection.threshold",
        ),
        (
            {"type": "realtime", "audio": {"input": {"format": {"type": "audio/mp3"}}}},
            "invalid_value",
            "session.audio.input.format",
        ),
        ({"type": "transcription"}, "invalid_value", "session.type"),
    ],
)
def test_a_bad_update_changes_nothing_and_names_the_key(
    t: VirtualTalk, session: dict[str, Any], code: str, param: str
):
    t.send("session.update", session={"instructions": "changed", **session})
    assert (error(t)["code"], error(t)["param"]) == (code, param)
    t.update()
    assert t.last("session.updated")["session"]["instructions"] != "changed"


def test_harmless_keys_are_accepted_and_shown(t: VirtualTalk):
    t.update(
        tracing="auto",
        audio={"input": {"noise_reduction": {"type": "near_field"}, "transcription": {"model": "whisper-1"}}},
        truncation={"type": "retention_ratio", "retention_ratio": 0.5},
        include=["item.input_audio_transcription.logprobs"],
        prompt=None,
        model="gpt-realtime",
    )
    session = t.last("session.updated")["session"]
    assert session["tracing"] == "auto"
    assert session["audio"]["input"]["noise_reduction"] == {"type": "near_field"}
    assert session["model"] == "local"


def test_semantic_vad_without_a_model_falls_back_and_says_so(t: VirtualTalk):
    turn_detection = {"type": "semantic_vad", "eagerness": "high", "interrupt_response": False}
    t.update(audio={"input": {"turn_detection": turn_detection}})
    changed = detection(t)
    assert changed
    assert (changed["type"], changed["interrupt_response"]) == ("server_vad", False)


def test_the_voice_is_frozen_once_it_was_heard(t: VirtualTalk):
    t.update(audio={"output": {"voice": "joe"}})
    t.say("Hello")
    t.send("response.create")
    t.wait(3)
    t.update(audio={"output": {"voice": "ann"}})
    assert error(t)["code"] == "cannot_update_voice"
    t.update(audio={"output": {"voice": "joe"}}, instructions="Hi")
    assert t.kinds[-1] == "session.updated"


@pytest.mark.parametrize(
    ("pack", "asked", "given"),
    [
        ("local", "alloy", None),
        ("local", "Cherry", None),
        ("local", "Ethan", None),
        ("local", "", None),
        ("local", {"id": "marin"}, None),
        ("local", "joe", "joe"),
        ("qwen3-omni", "alloy", None),
        ("qwen3-omni", "Ethan", "Ethan"),
    ],
)
def test_voices_of_other_services_are_the_packs_own(
    pack: str, asked: str | dict[str, str], given: str | None
):
    t = VirtualTalk(answer, TalkSettings(stand_in_voices=STAND_INS[pack]))
    t.update(audio={"output": {"voice": asked}})
    shown = t.last("session.updated")["session"]["audio"]["output"].get("voice", "")
    assert shown == (asked if isinstance(asked, str) else asked["id"]), "as the client asked"
    t.say("Hello")
    t.send("response.create")
    assert t.requests[-1][1].voice == given


# ------------------------------------------------------------------------------------------------ items


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
    assert (error(t)["code"], error(t)["param"], error(t)["event_id"]) == (code, param, "mine")
    assert len(t.session.conversation) == 0


def test_a_duplicate_id_has_its_own_code(t: VirtualTalk):
    item = {"id": "x", **user_text("x")}
    t.send("conversation.item.create", item=item)
    t.send("conversation.item.create", item=item)
    assert error(t)["code"] == "item_create_duplicate_item_id"


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
    assert error(t)["code"] == f"item_{verb}_invalid_item_id"


def test_a_picture_goes_into_the_prompt(t: VirtualTalk):
    content = [{"type": "input_image", "image_url": PNG_URL}, {"type": "input_text", "text": "What is this?"}]
    t.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    t.send("response.create")
    parts = t.requests[0][1].messages[-1].parts
    assert parts == (m.ImagePart(PNG), m.TextPart("What is this?"))


# --------------------------------------------------------------------------------------------- truncate


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
    assert error(t)["code"] == "invalid_value"
    assert "already shorter than 1451ms" in error(t)["message"]


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
    assert error(t)["code"] == "unsupported_content_type"


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


# ------------------------------------------------------------------------------------------- responses


def test_cancel_stops_the_work_and_the_audio():
    t = VirtualTalk(lambda request: spoken("one two three four five six seven eight", heard=None), each_s=0.2)
    t.say("Hello")
    t.send("response.create")
    t.wait(1)
    t.send("response.cancel")
    assert t.cancelled == [t.requests[0][1].turn]
    done = t.last("response.done")["response"]
    assert done["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
    count = len(t.log)
    t.wait(5)
    assert len(t.log) == count
    t.checker.finish()


def test_cancel_without_a_response(t: VirtualTalk):
    t.send("response.cancel")
    assert error(t)["code"] == "response_cancel_not_active"
    assert error(t)["message"].startswith("Cancellation failed"), "a client library looks for these words"


def test_two_responses_at_once_are_refused(t: VirtualTalk):
    t.say("Hello")
    t.send("response.create")
    t.send("response.create")
    assert error(t)["code"] == "conversation_already_has_active_response"


def test_out_of_band_responses_run_beside_and_leave_no_trace(t: VirtualTalk):
    t.say("Hello")
    t.send("response.create")
    item_id = t.events("conversation.item.added")[0]["item"]["id"]
    t.send(
        "response.create",
        response={
            "conversation": "none",
            "metadata": {"topic": "sort"},
            "output_modalities": ["text"],
            "instructions": "Sort it.",
            "input": [{"type": "item_reference", "id": item_id}],
        },
    )
    t.wait(3)
    done = t.events("response.done")
    aside = next(e["response"] for e in done if e["response"].get("metadata") == {"topic": "sort"})
    assert "conversation_id" not in aside
    assert [role for role, _ in t.history()] == ["system", "user"]
    assert t.history() == [("system", "Sort it."), ("user", "Hello")]
    assert len(t.session.conversation) == 2, "the question and the answer to it"
    t.checker.finish()


def test_an_empty_input_clears_the_context(t: VirtualTalk):
    t.say("secret")
    t.send("response.create", response={"input": [], "instructions": "Greet.", "conversation": "none"})
    assert t.history() == [("system", "Greet."), ("user", "")]


def test_overrides_hold_for_one_response(t: VirtualTalk):
    t.say("Hello")
    t.send(
        "response.create",
        response={
            "output_modalities": ["text"],
            "max_output_tokens": 7,
            "instructions": None,
            "metadata": None,
        },
    )
    request = t.requests[-1][1]
    assert (request.speech, request.sampling.max_tokens) == (False, 7)
    t.wait(2)
    assert "response.output_text.done" in t.kinds
    t.say("Again")
    t.send("response.create")
    assert t.requests[-1][1].speech


def test_reaching_the_token_limit_is_incomplete():
    events = [m.TextDelta("one", (1,)), m.TextDone("length", m.Usage(3, 0, 1)), m.TurnDone({})]
    t = VirtualTalk(lambda request: events)
    t.update(output_modalities=["text"])
    t.say("Hello")
    t.send("response.create")
    t.wait(1)
    done = t.last("response.done")["response"]
    assert done["status"] == "incomplete"
    assert done["status_details"] == {"type": "incomplete", "reason": "max_output_tokens"}
    assert done["output"][0]["status"] == "incomplete"


def test_a_tool_call_and_its_result():
    def scripted(request: m.TurnRequest):
        if isinstance(request.messages[-1].parts[0], m.ToolResultPart):
            return written("It rains.")
        return [m.ToolCall("weather", '{"city":"Rome"}'), m.TextDone("tool_call"), m.TurnDone({})]

    t = VirtualTalk(scripted)
    tool = {"type": "function", "name": "weather", "description": "d", "parameters": {"type": "object"}}
    t.update(tools=[tool], tool_choice={"type": "function", "name": "weather"}, output_modalities=["text"])
    t.say("How is the weather in Rome?")
    t.send("response.create")
    t.wait(1)
    request = t.requests[0][1]
    assert request.tools == (m.ToolSpec("weather", "d", '{"type":"object"}'),)
    assert request.tool_choice == "weather"
    call = t.last("response.done")["response"]["output"][0]
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "weather", '{"city":"Rome"}')
    kinds = t.kinds
    assert kinds.index("conversation.item.added", 6) < kinds.index("response.function_call_arguments.done")
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    t.send("conversation.item.create", item=output)
    t.send("response.create", response={"tool_choice": "auto"})
    t.wait(1)
    assert t.history()[-2:] == [("assistant", 'weather({"city":"Rome"})'), ("user", "rain")]
    assert t.last("response.done")["response"]["output"][0]["content"][0]["text"] == "It rains."
    t.checker.finish()


def test_responses_a_minute():
    t = VirtualTalk(answer, TalkSettings(responses_per_minute=2))
    for left in (1, 0):
        t.send("response.create", response={"output_modalities": ["text"]})
        t.wait(1)
        [entry] = t.last("rate_limits.updated")["rate_limits"]
        assert (entry["name"], entry["limit"], entry["remaining"]) == ("requests", 2, left)
    t.send("response.create")
    assert error(t)["code"] == "rate_limit_exceeded"
    t.speak(1)
    t.silence(1)
    assert t.last("error")["error"]["code"] == "rate_limit_exceeded"
    assert t.kinds.count("response.created") == 2
    t.wait(60)
    t.send("response.create")
    assert t.kinds.count("response.created") == 3
    t.wait(3)
    t.checker.finish()


def test_a_named_tool_must_be_there(t: VirtualTalk):
    t.send("response.create", response={"tool_choice": {"type": "function", "name": "f"}})
    assert error(t)["code"] == "invalid_value"


# --------------------------------------------------------------------------------------------- the buffer


def manual() -> VirtualTalk:
    t = VirtualTalk(answer)
    t.update(audio={"input": {"turn_detection": None}})
    return t


def test_manual_turns():
    t = manual()
    t.speak(1)
    t.send("input_audio_buffer.commit")
    assert t.kinds[-3:] == [
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
    ]
    assert not t.requests, "the client decides when to answer"
    t.send("response.create")
    t.wait(3)
    assert t.last("response.done")["response"]["status"] == "completed"
    part = t.requests[0][1].messages[-1].parts[0]
    assert isinstance(part, m.AudioPart)
    assert len(part.samples) == pytest.approx(16_000, abs=40)


def test_words_that_could_not_be_found_out():
    """A turn that nobody answers, lost in the pipeline: the client is not left waiting for its words."""
    t = VirtualTalk(lambda request: [StageFailed("it broke")])
    t.update(audio={"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}})
    t.speak(1)
    t.send("input_audio_buffer.commit")
    t.wait(2)
    told = t.last("conversation.item.input_audio_transcription.failed")
    assert told["item_id"] == t.last("input_audio_buffer.committed")["item_id"]
    assert told["error"]["code"] == "stage_failed"


def test_an_empty_commit_is_refused():
    t = manual()
    t.speak(0.08)
    t.send("input_audio_buffer.commit")
    assert error(t)["code"] == "input_audio_buffer_commit_empty"


def test_clear_forgets_the_sound():
    t = manual()
    t.speak(1)
    t.send("input_audio_buffer.clear")
    assert t.kinds[-1] == "input_audio_buffer.cleared"
    t.send("input_audio_buffer.commit")
    assert error(t)["code"] == "input_audio_buffer_commit_empty"


def test_commit_while_the_user_speaks_takes_the_announced_id(t: VirtualTalk):
    t.speak(1)
    started = t.last("input_audio_buffer.speech_started")["item_id"]
    t.send("input_audio_buffer.commit")
    assert t.last("input_audio_buffer.committed")["item_id"] == started
    t.silence(2)
    assert "input_audio_buffer.speech_stopped" not in t.kinds


def test_odd_bytes_are_joined():
    """15 ms at 44.1 kHz, or any careless cut, gives half a sample."""
    t = manual()
    pcm = base64.b64decode(SPEECH) * 10
    for start in range(0, len(pcm), 333):
        t.send("input_audio_buffer.append", audio=base64.b64encode(pcm[start : start + 333]).decode())
    t.send("input_audio_buffer.commit")
    t.send("conversation.item.retrieve", item_id=t.last("input_audio_buffer.committed")["item_id"])
    part = t.last("conversation.item.retrieved")["item"]["content"][0]
    got = np.frombuffer(base64.b64decode(part["audio"]), "<i2").astype(float)
    sent = np.frombuffer(pcm, "<i2").astype(float)[: len(got)]
    assert np.corrcoef(got[600:4000], sent[600:4000])[0, 1] > 0.95


@pytest.mark.parametrize("audio", ["%%%", "YQ=", "ä"])
def test_bad_base64_is_refused(t: VirtualTalk, audio: str):
    t.send("input_audio_buffer.append", audio=audio)
    assert (error(t)["code"], error(t)["param"]) == ("invalid_value", "audio")


def test_telephone_audio_in_and_out():
    t = VirtualTalk(answer)
    telephone = {"format": {"type": "audio/pcmu"}}
    t.update(audio={"input": telephone, "output": telephone})
    loud, quiet = base64.b64encode(b"\x00\x00\x00\x00\x80\x80\x80\x80" * 20), base64.b64encode(b"\xff" * 160)
    for packet, count in ((loud, 50), (quiet, 150)):
        for _ in range(count):
            t.wait(0.02)
            t.send("input_audio_buffer.append", audio=packet.decode())
    assert t.last("input_audio_buffer.speech_stopped")["audio_end_ms"] == pytest.approx(1500, abs=40)
    voice = b"".join(base64.b64decode(e["delta"]) for e in t.events("response.output_audio.delta"))
    assert len(voice) / 8000 == pytest.approx(4 * 0.3, abs=0.005)
    assert t.last("response.done")["response"]["audio"]["output"]["format"] == {"type": "audio/pcmu"}


# ---------------------------------------------------------------------------------- what is no event at all


@pytest.mark.parametrize(
    "data", ["{", "[]", "null", "1", '"x"', "", "\x00", '{"type":"x","a":NaN}', b"\xff\xfe"]
)
def test_what_is_no_event_is_answered_and_the_talk_goes_on(t: VirtualTalk, data: str | bytes):
    t.session.receive(data, t.now)
    t._act()
    assert error(t)["code"] == "invalid_value"
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
    assert (error(t)["code"], error(t)["param"], error(t)["event_id"]) == (code, param, "e1")


def test_every_message_stays_below_what_small_clients_take(t: VirtualTalk):
    t.speak(1)
    t.silence(4)
    assert max(len(msgspec.json.encode(event)) for _, event in t.log) < 1 << 20


def test_the_session_ends_at_its_time():
    t = VirtualTalk(answer, TalkSettings(session_s=60))
    t.silence(61)
    assert t.last("error")["error"]["code"] == "session_expired"
    assert t.closed
    assert t.closed.code == 1001
