"""The built-in functions as tools, for models that call functions by themselves."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from voice_app.errors import InputError
from voice_app.messages import ToolSpec
from voice_app.models.functions.arithmetic import spoken_sum
from voice_app.models.functions.dates import clock, find_date, long
from voice_app.models.functions.question import bare, normalise
from voice_app.models.functions.units import UNITS, Unit, convert

Arguments = Mapping[str, object]

_LARGEST_AMOUNT = 1e30


@dataclass(frozen=True, slots=True)
class Tool:
    """A function: what a model is told of it, and itself. `call` takes the arguments and the user's time, and
    gives text for the model; it raises InputError for arguments that make no sense."""

    spec: ToolSpec
    call: Callable[[Arguments, datetime], str]


def _calculate(arguments: Arguments, now: datetime) -> str:
    expression = _text(arguments, "expression")
    spoken = spoken_sum(bare(normalise(expression)))
    if spoken is None:
        raise InputError(f"expression: {expression!r} is no sum; give one such as 12 * 7", param="expression")
    return spoken


def _current_time(arguments: Arguments, now: datetime) -> str:
    return f"{long(now.date())}, {clock(now)}"


def _days_until(arguments: Arguments, now: datetime) -> str:
    words = _text(arguments, "date")
    named = find_date(normalise(words), now.date())
    if named is None:
        raise InputError(f"date: {words!r} is no date; give one such as July 4th", param="date")
    return f"{(named[1] - now.date()).days} days until {named[0]} ({long(named[1])})"


def _convert_units(arguments: Arguments, now: datetime) -> str:
    source, target = _unit(arguments, "from"), _unit(arguments, "to")
    amount = arguments.get("amount")
    if not isinstance(amount, int | float) or not abs(amount) <= _LARGEST_AMOUNT:
        raise InputError(
            f"amount: must be a number of at most {_LARGEST_AMOUNT:g}, either way", param="amount"
        )
    try:
        value = convert(Fraction(amount), source, target)
    except ValueError as error:
        raise InputError(f"to: {error}", param="to") from error
    return f"{float(value):g} {target.many}"


def _unit(arguments: Arguments, name: str) -> Unit:
    unit = UNITS.get(_text(arguments, name).lower())
    if unit is None:
        raise InputError(f"{name}: no unit that is known here; use names such as miles", param=name)
    return unit


def _text(arguments: Arguments, name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise InputError(f"{name}: must be text", param=name)
    return value


def _spec(name: str, description: str, **properties: str) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    return ToolSpec(name, description, json.dumps(schema))


TOOLS: tuple[Tool, ...] = (
    Tool(_spec("calculate", "Works out an arithmetic expression.", expression="string"), _calculate),
    Tool(_spec("current_time", "The user's date, weekday and time."), _current_time),
    Tool(_spec("days_until", "Days from today until a date or holiday.", date="string"), _days_until),
    Tool(
        _spec(
            "convert_units",
            "Converts an amount between units.",
            amount="number",
            **{"from": "string"},
            to="string",
        ),
        _convert_units,
    ),
)
