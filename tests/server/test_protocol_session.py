"""session.update: what it changes, what it refuses and names, and what is shown; the session's end."""

from typing import Any

import pytest
from fake_pipeline import answer
from virtual_talk import VirtualTalk

from voice_app.server.protocol.voices import STAND_INS
from voice_app.server.settings import TalkSettings


def detection(t: VirtualTalk) -> dict[str, Any] | None:
    return t.last("session.updated")["session"]["audio"]["input"]["turn_detection"]


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
    assert (t.error()["code"], t.error()["param"]) == (code, param)
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
    assert t.error()["code"] == "cannot_update_voice"
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


def test_a_voice_that_the_pack_has_is_not_taken_for_another_services():
    settings = TalkSettings(voices=("Cherry", "default"), stand_in_voices=STAND_INS["local"])
    t = VirtualTalk(answer, settings)
    t.update(audio={"output": {"voice": "cherry"}})
    t.say("Hello")
    t.send("response.create")
    assert t.requests[-1][1].voice == "cherry"


@pytest.mark.parametrize("asked", ["joe", "JOE", "default", "alloy", "Marin", {"id": "cedar"}, ""])
def test_a_voice_that_is_there_or_stands_for_it_is_taken(asked: str | dict[str, str]):
    settings = TalkSettings(voices=("en_US-joe-medium", "joe", "default"), stand_in_voices=STAND_INS["local"])
    t = VirtualTalk(answer, settings)
    t.update(audio={"output": {"voice": asked}})
    assert t.kinds[-1] == "session.updated"


@pytest.mark.parametrize("asked", ["jo", "somebody", {"id": "voice_123"}])
def test_an_unknown_voice_is_refused_with_the_names_that_are_known(asked: str | dict[str, str]):
    settings = TalkSettings(voices=("joe", "default"), stand_in_voices=STAND_INS["local"])
    t = VirtualTalk(answer, settings)
    t.update(instructions="changed", audio={"output": {"voice": asked}})
    error = t.error()
    assert (error["code"], error["param"]) == ("invalid_value", "session.audio.output.voice")
    for name in ("'joe'", "'default'", "'alloy'", "'marin'"):
        assert name in error["message"]
    t.update(audio={"output": {"voice": "joe"}})
    assert t.last("session.updated")["session"]["instructions"] != "changed", "nothing of it was done"


@pytest.mark.parametrize(("asked", "taken"), [("jo", False), ("JOE", True), ("alloy", True)])
def test_the_voice_of_one_response_is_checked_too(asked: str, taken: bool):
    settings = TalkSettings(voices=("joe", "default"), stand_in_voices=STAND_INS["local"])
    t = VirtualTalk(answer, settings)
    t.say("Hello")
    t.send("response.create", response={"audio": {"output": {"voice": asked}}})
    assert len(t.requests) == taken
    if not taken:
        error = t.error()
        assert (error["code"], error["param"]) == ("invalid_value", "response.audio.output.voice")
        assert "'joe'" in error["message"]
    t.wait(3)
    t.checker.finish()


def test_where_the_pack_does_not_tell_its_voices_any_is_taken(t: VirtualTalk):
    t.update(audio={"output": {"voice": "somebody"}})
    assert t.kinds[-1] == "session.updated"


def test_the_session_ends_at_its_time():
    t = VirtualTalk(answer, TalkSettings(session_s=60))
    t.silence(61)
    error = t.last("error")["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "session_expired")
    assert t.closed
    assert t.closed.code == 1001
