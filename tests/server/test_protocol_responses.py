"""Responses: what one may ask for, how they end, tool calls, how many a minute, and how large a message."""

import msgspec
from fake_pipeline import answer, spoken, written
from virtual_talk import VirtualTalk

from voice_app import messages as m
from voice_app.server.settings import TalkSettings


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
    assert t.error()["code"] == "response_cancel_not_active"
    assert t.error()["message"].startswith("Cancellation failed"), "a client library looks for these words"


def test_two_responses_at_once_are_refused(t: VirtualTalk):
    t.say("Hello")
    t.send("response.create")
    t.send("response.create")
    assert t.error()["code"] == "conversation_already_has_active_response"


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
    assert t.error()["code"] == "rate_limit_exceeded"
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
    assert t.error()["code"] == "invalid_value"


def test_every_message_stays_below_what_small_clients_take(t: VirtualTalk):
    t.speak(1)
    t.silence(4)
    assert max(len(msgspec.json.encode(event)) for _, event in t.log) < 1 << 20
