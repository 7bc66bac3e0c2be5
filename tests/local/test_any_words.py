"""No words, and no date on the user's clock, make a built-in function or a function's arguments fail."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voice_app.errors import InputError
from voice_app.messages import ToolSpec
from voice_app.models.functions import ALL, TOOLS, Tool, plan
from voice_app.models.functions.dates import find_date
from voice_app.models.functions.question import normalise
from voice_app.models.local.tool_choice import demanded_call
from voice_app.models.local.tool_results import spoken_results

_NUMBERS = st.sampled_from(
    ["0", "00", "1", "31", "29th", "9999", "10000", "0001", "0.5", ".", "9" * 15, "9" * 30, "9" * 40, "٣",
     "²", "1e9", "nan", "inf", "-5", "minus 3", "half a", "a", "twenty", "million", "trillion", "hundred",
     "third", "a half", "7.", "1,000"]
)  # fmt: skip
_WORDS = st.sampled_from(
    ["january", "monday", "next", "christmas", "new", "year's", "eve", "tomorrow", "day", "after", "before",
     "weeks", "miles", "km", "celsius", "°f", "kilos", "seconds", "stone", "2nd", "plus", "minus", "times",
     "over", "^", "squared", "cubed", "percent", "of", "square root of", "half", "double", "quarter", "to",
     "in", "at", "for", "on", "off", "is", "it", "that", "please", "name"]
)  # fmt: skip
_OPENINGS = st.sampled_from(
    ["", "what is", "what day is", "what day of the week was", "how many days until", "how many weeks until",
     "when is", "how far away is", "what time is it in", "how many kilometers is", "convert", "set", "turn",
     "remind me", "what is the", "how much is", "my name is", "i am", "read", "what do you see"]
)  # fmt: skip
_PIECES = st.lists(_NUMBERS | _WORDS | st.text(max_size=5), max_size=8).map(" ".join)
_DATES = st.sampled_from(
    ["christmas", "new year's eve", "monday", "next sunday", "tomorrow", "yesterday", "january 1st",
     "the day after tomorrow", "the day before yesterday", "december 31st", "february 29th", "february 30th",
     "july 4th 9999", "the 1st of january 1", "may 5 10000", "march 3 " + "9" * 5000, "july 4th ٣", "june 0"]
)  # fmt: skip
_ASKED_DATES = st.sampled_from(
    ["{}", "what day is {}", "what is {}'s date", "how many days until {}", "how many weeks until {}",
     "when is {}", "what day of the week was {}"]
)  # fmt: skip
_ASKED_TIMES = st.sampled_from(["tokyo", "honolulu", "kiritimati", "france", "atlantis", "gmt", "utc"]).map(
    "what time is it in {}".format
)
_QUESTIONS = st.builds(str.format, _ASKED_DATES, _DATES) | _ASKED_TIMES
TEXTS = _QUESTIONS | st.text() | _PIECES | st.tuples(_OPENINGS, _PIECES).map(" ".join)
"""What may have been said: anything, or the functions' own words in any order."""
_EDGES = (
    st.sampled_from([datetime.min, datetime.max])
    | st.datetimes(max_value=datetime(1, 1, 9))
    | st.datetimes(min_value=datetime(9999, 12, 1))
)
CLOCKS = st.builds(
    lambda time, zone: time.replace(tzinfo=zone),
    st.datetimes() | _EDGES,
    st.none()
    | st.sampled_from([UTC, timezone(timedelta(hours=-14)), timezone(timedelta(hours=14))])
    | st.timezones(),
)
"""Whatever a client's clock may show."""

_anything = partial(settings, max_examples=500)


@_anything()
@given(TEXTS, CLOCKS, st.lists(TEXTS, max_size=3), st.text(max_size=20) | st.just("mug; text: STOP"))
def test_an_answer_or_none(question: str, now: datetime, earlier: list[str], seen: str) -> None:
    for name in ALL:
        found = plan(question, now, earlier, seen, (name,))
        assert found is None or found.spoken


@_anything()
@given(TEXTS, CLOCKS)
def test_a_date_or_none(words: str, now: datetime) -> None:
    found = find_date(normalise(words), now.date())
    assert found is None or found[0]


_ARGUMENTS = st.dictionaries(
    st.sampled_from(["expression", "date", "amount", "from", "to"]),
    TEXTS
    | st.sampled_from(["miles", "feet", "Celsius", "fahrenheit", "2nd"])
    | st.floats()
    | st.integers()
    | st.booleans()
    | st.none(),
)


@_anything()
@given(st.sampled_from(TOOLS), _ARGUMENTS, CLOCKS)
def test_text_or_what_is_wrong(tool: Tool, arguments: dict[str, object], now: datetime) -> None:
    with suppress(InputError):
        assert tool.call(arguments, now)


_TYPES = ["string", "integer", "number", "boolean", "array", "object", "null", "odd"]
_VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(10**400), 1e308, -1e308, 0.5, float("inf"), float("nan")])
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["Paris", "on", "#/properties/a", "#/$defs/x", "#", "5"])
)
_NAMES = st.sampled_from(["city", "on", "minutes", "date", "to", "celsius", "message", "", "a"]) | st.text(
    max_size=3
)


def _schema(parts: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """JSON that looks much like a schema, and need not be one."""
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(_TYPES) | st.lists(st.sampled_from(_TYPES), max_size=2) | _VALUES,
            "properties": st.dictionaries(_NAMES, parts, max_size=4) | _VALUES,
            "items": parts,
            "required": st.lists(_NAMES, max_size=3) | _VALUES,
            "enum": st.lists(_VALUES, max_size=3) | _VALUES,
            "const": _VALUES,
            "default": parts,
            "anyOf": st.lists(parts, max_size=2) | _VALUES,
            "oneOf": st.lists(parts, max_size=2) | _VALUES,
            "$ref": _VALUES,
            "description": st.sampled_from(["in minutes", "degrees celsius"]) | _VALUES,
            **dict.fromkeys(["minimum", "maximum", "maxLength", "minItems", "maxItems"], _VALUES),
        },
    )


_SCHEMAS = _schema(st.recursive(_VALUES, _schema, max_leaves=6))


@_anything()
@given(TEXTS, _SCHEMAS, st.sampled_from(["required", "f"]))
def test_a_call_whatever_the_schema(question: str, schema: object, choice: str) -> None:
    found = demanded_call(question, (ToolSpec("f", "Set it", json.dumps(schema)),), choice)
    assert found is not None
    assert isinstance(json.loads(found.arguments), dict)


@pytest.mark.parametrize("kind", ["integer", "number", "string", "array"])
@pytest.mark.parametrize(
    "question",
    ["Set it to {}", "Set it to {}.5", "Wait for {} minutes", "Wait for {}.25 hours", "Set it to minus {}"],
)
@pytest.mark.parametrize("digits", [30, 310, 5000])
def test_endless_digits_in_a_call(kind: str, question: str, digits: int) -> None:
    schema = {"properties": {"minutes": {"type": kind, "items": {"type": "number"}}}, "required": ["minutes"]}
    tool = ToolSpec("wait", "Wait", json.dumps(schema))
    found = demanded_call(question.format("9" * digits), (tool,), "required")
    assert found is not None
    assert "minutes" in json.loads(found.arguments)


def _short(number: float) -> str:
    return str(number)[:5]


@pytest.mark.parametrize("key", ["minimum", "maximum", "maxLength", "minItems", "maxItems"])
@pytest.mark.parametrize("kind", ["integer", "number", "string", "array"])
@pytest.mark.parametrize("bound", [10**400, -(10**400), 1e308, 0.5, -0.5, float("inf")], ids=_short)
def test_a_call_within_any_bound(key: str, kind: str, bound: float) -> None:
    schema = {"properties": {"a": {"type": kind, key: bound, "items": {}}}, "required": ["a"]}
    found = demanded_call("Set it to 5", (ToolSpec("f", "Set it", json.dumps(schema)),), "f")
    assert found is not None
    assert isinstance(json.loads(found.arguments), dict)


@_anything()
@given(st.lists(TEXTS | _SCHEMAS.map(json.dumps), max_size=3))
def test_a_sentence_of_any_result(outputs: list[str]) -> None:
    assert spoken_results(outputs)
