"""What functions gave, said aloud."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_app.models.local.tool_results import spoken_results

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ('{"temperature": 21}', "The temperature is 21."),
        (
            '{"temperature": 21.5, "unit": "celsius", "condition": "partly_cloudy"}',
            "The temperature is 21.5 celsius and the condition is partly cloudy.",
        ),
        ('{"weather": {"windSpeed": 3}}', "The wind speed is 3."),
        ("done", "Done."),
        ('"OK"', "Done."),
        ("true", "Done."),
        ("null", "Done."),
        ("", "Done."),
        ('{"success": true}', "Done."),
        ('{"status": "ok", "message": "The timer is set."}', "The timer is set."),
        ("false", "That didn't work."),
        ('{"success": false}', "That didn't work."),
        ('{"success": false, "error": "no such lamp"}', "That didn't work: no such lamp."),
        ("the light is on", "The light is on."),
        ("42", "The answer is 42."),
        ('{"on": true, "room": "kitchen"}', "It is on and the room is kitchen."),
        ('{"isOpen": false}', "It is not open."),
        ('["milk", "eggs", "bread"]', "I found milk, eggs and bread."),
        ('[{"name": "Rome", "id": 7}, {"name": "Oslo", "id": 8}]', "I found Rome and Oslo."),
        ("[1, 2, 3, 4, 5, 6, 7]", "I found 1, 2, 3, 4, 5 and 2 more."),
    ],
)
def test_a_result_becomes_a_sentence(output: str, said: str) -> None:
    assert spoken_results([output]) == said


def test_several_results_are_told_one_after_another() -> None:
    assert spoken_results(['{"price": 3}', "Sold out", "Sold out"]) == "The price is 3. Sold out."


def test_a_long_text_ends_after_a_sentence() -> None:
    said = spoken_results(["Rain is likely. " * 40])
    assert said.endswith("Rain is likely.")
    assert 250 < len(said) <= 300
    assert len(spoken_results(["rain " * 400])) <= 301


@given(JSON.map(json.dumps) | st.text() | st.integers(1, 5000).map(lambda deep: "[" * deep + "]" * deep))
def test_whatever_comes_is_one_line_that_can_be_said(output: str) -> None:
    said = spoken_results([output])
    assert said.strip()
    assert "\n" not in said
    assert len(said) <= 301
