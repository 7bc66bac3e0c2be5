"""Function calls in an answer: found however the tokens are cut, never shown, never spoken."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from harness import Harness, Result
from hypothesis import given
from msgspec import structs
from omni_requests import greedy, sound, text, user
from transformers import AutoTokenizer

from voice_app import messages as m
from voice_app.models.qwen3_omni import thinker
from voice_app.models.qwen3_omni.checkpoint import Checkpoint
from voice_app.models.qwen3_omni.processors import TextProcessor
from voice_app.models.qwen3_omni.tool_calls import ToolCalls, demanded, opening_of

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "clock", "arguments": "{\\"zone\\": 1}"}\n</tool_call>'
WEATHER = m.ToolCall("get_weather", '{"city": "Zürich"}')
CLOCK = m.ToolCall("clock", '{"zone": 1}')
NAMES = ("get_weather", "clock")


def _cut(answer: str, places: Sequence[int]) -> list[bytes]:
    """As tokens, which may end within a character."""
    raw = answer.encode()
    bounds = [0, *sorted({place % (len(raw) + 1) for place in places}), len(raw)]
    return [raw[a:b] for a, b in pairwise(bounds)]


def _read(tokens: Sequence[bytes], stops: Sequence[str] = ()) -> tuple[str, list[m.ToolCall], str | None]:
    """What is shown, what is called, and how the answer ends (None: not by itself)."""
    reader = ToolCalls(NAMES, stops, tokens.__getitem__)
    shown, calls, held = b"", list[m.ToolCall](), list[int]()
    for token in range(len(tokens)):
        held.append(token)
        reading = reader.push(token)
        shown += b"".join(tokens[t] for t in held[: reading.safe])
        held = held[reading.safe :]
        if reading.shown:
            shown += tokens[held[0]][: reading.shown]
        held = held[reading.dropped :]
        if reading.call is not None:
            calls.append(reading.call)
        if reading.finish_reason is not None:
            return shown.decode(), calls, reading.finish_reason
    assert reader.called == bool(calls)
    assert not (held and calls)
    return (shown + b"".join(tokens[t] for t in held)).decode(), calls, None


places = st.lists(st.integers(0, 400), max_size=60)


@given(places)
def test_a_call_behind_words(places: list[int]) -> None:
    assert _read(_cut(f"Let me see.\n{CALL}", places)) == ("Let me see.\n", [WEATHER], None)


@given(places)
def test_two_calls(places: list[int]) -> None:
    between = len(f"{CALL}\n".encode())
    assert _read(_cut(f"{CALL}\n{OTHER}\n", [*places, between])) == ("", [WEATHER, CLOCK], None)


@given(places)
def test_words_behind_a_call_are_no_answer(places: list[int]) -> None:
    shown, calls, reason = _read(_cut(f"{CALL}\nIt is sunny. {OTHER}", [*places, len(CALL.encode()) + 4]))
    assert (shown, calls, reason) == ("", [WEATHER], "tool_call")


@given(places)
def test_stop_strings_count_outside_of_calls(places: list[int]) -> None:
    assert _read(_cut(f"One, two. {CALL}", places), ["two"]) == ("One, ", [], "stop")
    assert _read(_cut(f"One. {CALL}", places), ["city"]) == ("One. ", [WEATHER], None)


@given(places)
def test_stop_strings_count_in_what_turns_out_to_be_no_call(places: list[int]) -> None:
    unheard_of = '<tool_call>{"name": "radio", "arguments": {}}</tool_call>'
    assert _read(_cut(f"One. {unheard_of}", places), ["radio"]) == ('One. <tool_call>{"name": "', [], "stop")
    assert _read(_cut(f"{unheard_of} Two.", places), ["> T"]) == (unheard_of[:-1], [], "stop")


@given(places)
def test_a_call_behind_what_is_no_call(places: list[int]) -> None:
    unheard_of = '<tool_call>{"name": "radio", "arguments": {}}</tool_call>'
    assert _read(_cut(f"{unheard_of}{CALL}", places)) == (unheard_of, [WEATHER], None)


@pytest.mark.parametrize(
    "malformed",
    [
        "<tool_call>get_weather</tool_call>",
        '<tool_call>{"name": "unheard_of", "arguments": {}}</tool_call>',
        '<tool_call>{"name": ["clock"], "arguments": {}}</tool_call>',
        '<tool_call>{"name": "clock", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "clock", "arguments": "now"}</tool_call>',
        "<tool_call>[1]</tool_call>",
        f"<tool_call>{'[' * 100_000}</tool_call>",
        '<tool_call>{"name": "clock", "argu',
        "a <tool_cal",
        "</tool_call>",
    ],
)
def test_what_is_no_call_is_text(malformed: str) -> None:
    for places in ([], [5], range(0, 400, 3)):
        shown, calls, reason = _read(_cut(malformed, places))
        assert (shown, calls, reason) == (malformed, [], None)


bits = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<", '{"name": "clock", "arguments": {}}', "{", " ", "é"]
)


@given(st.lists(bits, max_size=12), places)
def test_no_text_is_lost_and_nothing_crashes(bits: list[str], places: list[int]) -> None:
    answer = "".join(bits)
    shown, calls, _ = _read(_cut(answer, places))
    assert answer.startswith(shown) if calls else shown == answer


# ------------------------------------------------------------------------------- through all the stages

TOOLS = tuple(m.ToolSpec(name, "A function.", '{"type": "object"}') for name in NAMES)


@pytest.fixture
def say(
    checkpoint: Callable[..., Path], harness: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, m.TurnRequest], Result]:
    """Run a request whose answer's tokens are given: those of a text, then the end."""

    def run(answer: str, request: m.TurnRequest) -> Result:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint(0))
        ids = tokenizer.encode(f"{answer}<|im_end|>", add_special_tokens=False)

        def scripted(logits: torch.Tensor, samplers: object, counters: Sequence[int]) -> list[int]:
            return [ids[counter] for counter in counters]

        monkeypatch.setattr(thinker, "sample", scripted)
        (result,) = harness(checkpoint(0)).run([request])
        assert result.error is None
        return result

    return run


def test_a_call_is_neither_shown_nor_spoken(say: Callable[[str, m.TurnRequest], Result]) -> None:
    request = greedy("calls", user(sound(80), text("And the weather?")), tokens=200, frames=12)
    offering = structs.replace(request, tools=TOOLS)
    called = say(f"One moment.{CALL}", offering)
    assert called.text == "One moment."
    assert [e for e in called.events if isinstance(e, m.ToolCall)] == [WEATHER]
    assert called.text_done.finish_reason == "tool_call"
    assert isinstance(called.events[-1], m.TextDone | m.AudioDone)
    plain = say("One moment.", offering)
    assert len(plain.codes)
    assert called.codes.tolist() == plain.codes.tolist()
    # A request that offers nothing gets the same tokens as text.
    assert say(f"One moment.{CALL}", request).text == f"One moment.{CALL}"


@pytest.mark.parametrize("tokens", [200, 20])
def test_a_call_that_the_end_cuts_off_is_neither_shown_nor_spoken(
    say: Callable[[str, m.TurnRequest], Result], tokens: int
) -> None:
    """By the model's own end, or since no more tokens are allowed."""
    cut = CALL[: len(CALL) // 2]
    request = greedy("cut", user(text("And the weather?")), tokens=tokens, speech=False)
    result = say(f"Well.{cut}", structs.replace(request, tools=TOOLS))
    assert result.text == "Well."
    assert not [e for e in result.events if isinstance(e, m.ToolCall)]
    assert result.text_done.finish_reason == ("stop" if tokens == 200 else "length")


def test_nothing_but_a_call(say: Callable[[str, m.TurnRequest], Result]) -> None:
    request = greedy("only calls", user(sound(81)), tokens=200, frames=12)
    called = say(CALL, structs.replace(request, tools=TOOLS))
    assert (called.text, len(called.samples)) == ("", 0)
    assert [e for e in called.events if isinstance(e, m.ToolCall)] == [WEATHER]
    assert called.text_done.finish_reason == "tool_call"


# ------------------------------------------------------------------------------------------ demanded calls


@pytest.mark.parametrize(
    ("choice", "names"),
    [("required", NAMES), ("clock", ("clock",)), ("auto", ()), ("none", ()), ("radio", ())],
)
def test_of_which_functions_one_has_to_be_called(choice: str, names: tuple[str, ...]) -> None:
    assert demanded(NAMES, choice) == names


def test_a_call_opens_as_the_template_writes_it(checkpoint: Callable[..., Path]) -> None:
    """Token for token, as far as it goes."""
    processor = TextProcessor(Checkpoint(str(checkpoint(0))))
    call = {"type": "function", "function": {"name": "clock", "arguments": {"zone": 1}}}
    talk = [{"role": "user", "content": "Now?"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    written = processor.prompt_ids(talk, [])
    for names in (["clock"], ["clock", "get_weather"]):
        begins = list(processor.ids(opening_of(names)))
        assert begins in [written[start : start + len(begins)] for start in range(len(written))]


@pytest.mark.parametrize(
    ("choice", "rest"),
    [
        ("clock", ' {"zone": 1}}\n</tool_call>'),
        ("required", 'clock", "arguments": {"zone": 1}}\n</tool_call>'),
    ],
)
def test_an_answer_that_has_to_be_a_call_begins_as_one(
    say: Callable[[str, m.TurnRequest], Result], checkpoint: Callable[..., Path], choice: str, rest: str
) -> None:
    """Whatever the model would say: of the script only what comes after the opening is heard."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint(0))
    opening = opening_of(demanded(NAMES, choice))
    begins = len(tokenizer.encode(opening, add_special_tokens=False))
    unheard = tokenizer.decode(tokenizer.encode(" the the the" * begins, add_special_tokens=False)[:begins])
    request = greedy("demanded", user(text("And the time?")), tokens=200, frames=12)
    asked = structs.replace(request, tools=TOOLS, tool_choice=choice)
    result = say(unheard + rest, asked)
    assert [e for e in result.events if isinstance(e, m.ToolCall)] == [CLOCK]
    assert (result.text, len(result.samples)) == ("", 0)
    usage = result.text_done.usage
    assert usage.output_tokens > begins, "the opening counts as output"


def test_what_is_demanded_holds_for_the_model_itself(
    checkpoint: Callable[..., Path], harness: Callable[..., Harness]
) -> None:
    """And of sequences that step together, for that alone which it was demanded of."""
    free = greedy("free", user(text("And the time?")), tokens=12, speech=False)
    free = structs.replace(free, tools=TOOLS)
    named = structs.replace(free, turn=m.TurnId("named", "named"), tool_choice="clock")
    freely, forced = harness(checkpoint(0)).run([free, named])
    (alone,) = harness(checkpoint(0)).run([free])
    assert freely.text == alone.text != ""
    assert (forced.text, forced.text_done.finish_reason) == ("", "length"), "a call that was cut off"


def test_what_functions_gave_is_answered_freely(say: Callable[[str, m.TurnRequest], Result]) -> None:
    """A session that demands a call at every turn would else call for ever."""
    asked = m.Message("assistant", (m.ToolCallPart("1", "clock", "{}"),))
    told = m.Message("user", (m.ToolResultPart("1", "noon"),))
    request = greedy("told", user(text("The time?")), tokens=50, speech=False)
    request = structs.replace(
        request, messages=(*request.messages, asked, told), tools=TOOLS, tool_choice="required"
    )
    assert say("It is noon.", request).text == "It is noon."
