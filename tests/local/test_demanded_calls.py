"""Function calls made by rule, of commands as people say them. Expected values are worked out by hand."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_app.messages import ToolSpec
from voice_app.models.local.tool_choice import demanded_call

STRING, NUMBER, INTEGER, SWITCH = ({"type": kind} for kind in ("string", "number", "integer", "boolean"))
STRINGS = {"type": "array", "items": STRING}


def tool(called: str, description: str, required: list[str] | None = None, **properties: object) -> ToolSpec:
    wanted = list(properties) if required is None else required
    schema = {"type": "object", "properties": properties, "required": wanted}
    return ToolSpec(called, description, json.dumps(schema))


TOOLS = (
    tool("set_light", "Switch a light on or off", room=STRING, on=SWITCH),
    tool(
        "get_weather",
        "The weather forecast of a city",
        ["city"],
        city=STRING,
        date=STRING,
        unit={"type": "string", "enum": ["celsius", "fahrenheit"]},
    ),
    tool("set_timer", "Start a countdown timer", ["minutes"], minutes=NUMBER, label=STRING),
    tool("play_music", "Play music", query=STRING),
    tool("add_to_list", "Add items to a list", items=STRINGS, list=STRING),
    tool("call_contact", "Call somebody on the phone", name=STRING),
    tool("send_message", "Send a message to somebody", recipient=STRING, message=STRING),
    tool(
        "book_flight",
        "Find flights",
        ["origin", "destination"],
        origin=STRING,
        destination=STRING,
        date=STRING,
    ),
    tool("remind", "Set a reminder", text=STRING, time=STRING),
    tool("set_thermostat", "Set the temperature of a room", temperature=NUMBER, room=STRING),
    tool("lock_door", "Lock or unlock a door", locked=SWITCH),
    tool("search_web", "Search the web", query=STRING),
)


def called(
    question: str, choice: str = "required", tools: tuple[ToolSpec, ...] = TOOLS
) -> tuple[str, object]:
    call = demanded_call(question, tools, choice)
    assert call is not None
    return call.name, json.loads(call.arguments)


@pytest.mark.parametrize(
    ("question", "name", "arguments"),
    [
        ("Turn on the kitchen light.", "set_light", {"room": "kitchen", "on": True}),
        ("turn the light in the bedroom off", "set_light", {"room": "bedroom", "on": False}),
        ("What is the weather in Paris tomorrow?", "get_weather", {"city": "Paris", "date": "tomorrow"}),
        ("what's the weather like in new york", "get_weather", {"city": "new york"}),
        ("Will it rain in London tomorrow?", "get_weather", {"city": "London", "date": "tomorrow"}),
        (
            "What's the weather in Oslo in Fahrenheit?",
            "get_weather",
            {"city": "Oslo", "unit": "fahrenheit"},
        ),
        ("Set a timer for five minutes.", "set_timer", {"minutes": 5}),
        ("set a timer for an hour and a half", "set_timer", {"minutes": 90}),
        ("Set a timer for 1 hour and 30 minutes", "set_timer", {"minutes": 90}),
        ("Set a timer for ten minutes called pasta.", "set_timer", {"minutes": 10, "label": "pasta"}),
        ("Play some jazz.", "play_music", {"query": "jazz"}),
        ("Can you please play some Beatles songs?", "play_music", {"query": "Beatles songs"}),
        ("I want to hear some jazz music", "play_music", {"query": "jazz"}),
        (
            "Add milk and eggs to the shopping list.",
            "add_to_list",
            {"items": ["milk", "eggs"], "list": "shopping list"},
        ),
        (
            "Add milk, eggs, and bread to my shopping list.",
            "add_to_list",
            {"items": ["milk", "eggs", "bread"], "list": "shopping list"},
        ),
        ("Call Anna.", "call_contact", {"name": "Anna"}),
        ("please call my mother", "call_contact", {"name": "mother"}),
        (
            "Send a message to Anna saying I will be late.",
            "send_message",
            {"recipient": "Anna", "message": "I will be late"},
        ),
        (
            "Hey, could you tell Anna that I'm on my way?",
            "send_message",
            {"recipient": "Anna", "message": "I'm on my way"},
        ),
        (
            "Find flights from New York to San Francisco on Friday",
            "book_flight",
            {"origin": "New York", "destination": "San Francisco", "date": "Friday"},
        ),
        (
            "Remind me to call mum tomorrow at 5 pm.",
            "remind",
            {"text": "call mum", "time": "tomorrow at 5 pm"},
        ),
        (
            "Set the temperature in the living room to twenty one degrees",
            "set_thermostat",
            {"temperature": 21, "room": "living room"},
        ),
        ("Unlock the door", "lock_door", {"locked": False}),
        ("Lock the front door, please.", "lock_door", {"locked": True}),
        ("Search the web for cheap flights to Rome.", "search_web", {"query": "cheap flights to Rome"}),
    ],
)
def test_commands(question: str, name: str, arguments: object) -> None:
    assert called(question) == (name, arguments)


def test_a_named_function_is_called_whatever_is_said() -> None:
    assert called("Hello!", "search_web") == ("search_web", {"query": "Hello!"})
    assert called("Play some jazz.", "set_timer") == ("set_timer", {"minutes": 0})


def test_of_functions_that_fit_as_well_the_first_is_called() -> None:
    one, other = tool("one", "Light", on=SWITCH), tool("other", "Light", on=SWITCH)
    assert called("light", tools=(one, other))[0] == "one"
    assert called("light", tools=(other, one))[0] == "other"
    assert called("Is it?", tools=(other, one))[0] == "other"


@pytest.mark.parametrize("choice", ["auto", "none", "nobody"])
def test_none_is_called_unless_it_is_demanded(choice: str) -> None:
    assert demanded_call("Turn on the kitchen light.", TOOLS, choice) is None
    assert demanded_call("Turn on the kitchen light.", (), "required") is None


@pytest.mark.parametrize(
    ("question", "properties", "required", "arguments"),
    [
        ("Mute it.", {"muted": SWITCH}, ["muted"], {"muted": True}),
        ("Unmute it.", {"muted": SWITCH}, ["muted"], {"muted": False}),
        ("Close the window.", {"open": SWITCH}, ["open"], {"open": False}),
        ("Play it, don't shuffle.", {"shuffle": SWITCH, "repeat": SWITCH}, [], {"shuffle": False}),
        ("Two tickets for 3 days", {"days": INTEGER, "tickets": INTEGER}, [], {"days": 3, "tickets": 2}),
        (
            "For one hour and 30 minutes",
            {"hours": INTEGER, "minutes": INTEGER},
            [],
            {"hours": 1, "minutes": 30},
        ),
        ("Wait ninety seconds", {"duration": {**NUMBER, "description": "in minutes"}}, [], {"duration": 1.5}),
        ("Volume two hundred", {"volume": {"type": "integer", "maximum": 100}}, [], {"volume": 100}),
        ("Roll 3, 4 and 5", {"dice": {"type": "array", "items": INTEGER}}, [], {"dice": [3, 4, 5]}),
        ("A red and a blue one", {"color": {"items": {"enum": ["blue", "green", "red"]}}}, [],
         {"color": ["blue", "red"]}),
        ("Medium, please", {"size": {"enum": ["SMALL", "MEDIUM"]}}, ["size"], {"size": "MEDIUM"}),
        ("Whatever", {"size": {"enum": ["small", "large"]}}, ["size"], {"size": "small"}),
        ("Whatever", {"size": {"enum": ["small", "large"], "default": "large"}}, ["size"], {"size": "large"}),
        ("Whatever", {"size": {"enum": ["small", "large"]}, "count": INTEGER, "on": SWITCH}, [], {}),
        ('Write "see you soon" on it', {"text": STRING}, ["text"], {"text": "see you soon"}),
        ("Go to Rome", {"where": {"type": "object", "properties": {"city": STRING}, "required": ["city"]}},
         ["where"], {"where": {"city": "Rome"}}),
        ("Go to Rome", {"place": {"anyOf": [{"type": "null"}, STRING]}}, ["place"], {"place": "Rome"}),
    ],
)  # fmt: skip
def test_arguments(
    question: str, properties: dict[str, object], required: list[str], arguments: object
) -> None:
    assert called(question, "f", (tool("f", "", required, **properties),)) == ("f", arguments)


def test_a_reference_is_followed_and_one_to_itself_ends() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}, "city": STRING}}
    schema = {"$defs": {"tree": tree}, "properties": {"tree": {"$ref": "#/$defs/tree"}}, "required": ["tree"]}
    _, arguments = called("Go to Rome", "f", (ToolSpec("f", "", json.dumps(schema)),))
    jsonschema.validate(arguments, schema)


def test_a_schema_that_asks_for_too_much_gets_less() -> None:
    schema = {"type": "array", "items": STRING, "minItems": 10**12}
    _, arguments = called("Go", "f", (tool("f", "", items=schema, count={**INTEGER, "maximum": 1e400}),))
    assert arguments == {"items": ["Go"] * 64, "count": 0}


_NAMES = st.sampled_from(["city", "on", "minutes", "date", "items", "text", "to", "size"])
_LEAVES = st.sampled_from(
    [
        STRING,
        NUMBER,
        INTEGER,
        SWITCH,
        STRINGS,
        {"type": "null"},
        {"type": ["null", "integer"]},
        {"type": "string", "maxLength": 5},
        {"type": "integer", "minimum": 3, "maximum": 9},
        {"type": "integer", "minimum": 0.5},
        {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 3},
        {"type": "array", "items": {"enum": ["on", "off"]}},
        {"enum": ["Paris", 5, None, "kitchen"]},
        {"const": 7},
        {"anyOf": [{"type": "null"}, {"type": "number"}]},
    ]
)


def _object(parts: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    def made(properties: dict[str, object], most: int) -> dict[str, object]:
        return {"type": "object", "properties": properties, "required": list(properties)[:most]}

    return st.builds(made, st.dictionaries(_NAMES, parts, max_size=5), st.integers(0, 5))


@given(
    _object(st.recursive(_LEAVES, _object, max_leaves=4)),
    st.sampled_from(
        [
            "Turn on the kitchen light.",
            "Set five timers for ten minutes to Paris",
            "",
            "?!",
            "in to for 7 1/2",
        ]
    )
    | st.text(),
)
def test_arguments_are_always_valid(schema: dict[str, object], question: str) -> None:
    _, arguments = called(question, "f", (ToolSpec("f", "Do it", json.dumps(schema)),))
    jsonschema.validate(arguments, schema)
