"""Unit conversions: "how many kilometers is five miles" → "5 miles is about 8.05 kilometers."."""

import re
from dataclasses import dataclass
from fractions import Fraction

from voice_app.models.functions.arithmetic import number


@dataclass(frozen=True, slots=True)
class Unit:
    """`size` units of the dimension's base make one; `zero` is where its scale starts, in base units."""

    one: str
    many: str
    dimension: str
    size: Fraction
    zero: Fraction = Fraction(0)


def _units() -> dict[str, Unit]:
    # Factors are exact by definition (international yard and pound, US customary volumes).
    table: dict[str, tuple[tuple[str, str, str], ...]] = {
        "length": (
            ("millimeter", "millimeters", "0.001"), ("centimeter", "centimeters", "0.01"),
            ("meter", "meters", "1"), ("kilometer", "kilometers", "1000"), ("inch", "inches", "0.0254"),
            ("foot", "feet", "0.3048"), ("yard", "yards", "0.9144"), ("mile", "miles", "1609.344"),
        ),
        "weight": (
            ("milligram", "milligrams", "0.000001"), ("gram", "grams", "0.001"),
            ("kilogram", "kilograms", "1"), ("ton", "tons", "1000"), ("ounce", "ounces", "0.028349523125"),
            ("pound", "pounds", "0.45359237"),
            ("stone", "stone", "6.35029318"),
        ),
        "volume": (
            ("milliliter", "milliliters", "0.001"), ("liter", "liters", "1"),
            ("gallon", "gallons", "3.785411784"), ("quart", "quarts", "0.946352946"),
            ("pint", "pints", "0.473176473"), ("cup", "cups", "0.2365882365"),
            ("tablespoon", "tablespoons", "0.01478676478125"), ("teaspoon", "teaspoons", "0.00492892159375"),
        ),
        "time": (
            ("second", "seconds", "1"), ("minute", "minutes", "60"), ("hour", "hours", "3600"),
            ("day", "days", "86400"), ("week", "weeks", "604800"),
        ),
    }  # fmt: skip
    units = {
        name: Unit(one, many, dimension, Fraction(size))
        for dimension, rows in table.items()
        for one, many, size in rows
        for name in (one, many, one.replace("meter", "metre"), many.replace("meter", "metre"),
                     one.replace("liter", "litre"), many.replace("liter", "litre"))
    }  # fmt: skip
    celsius = Unit("degree Celsius", "degrees Celsius", "temperature", Fraction(1))
    fahrenheit = Unit(
        "degree Fahrenheit", "degrees Fahrenheit", "temperature", Fraction(5, 9), Fraction(-160, 9)
    )
    for name, unit in (("celsius", celsius), ("centigrade", celsius), ("fahrenheit", fahrenheit)):
        units |= {name: unit, f"degrees {name}": unit, f"degree {name}": unit}
    short = {"kilo": "kilogram", "kilos": "kilogram", "kg": "kilogram", "km": "kilometer", "cm": "centimeter",
             "mm": "millimeter", "lbs": "pound", "kms": "kilometer", "tonne": "ton", "tonnes": "ton",
             "°c": "celsius", "°f": "fahrenheit", "2nd": "second", "2nds": "second"}  # fmt: skip
    return units | {name: units[long] for name, long in short.items()}


UNITS = _units()
UNIT = "(" + "|".join(map(re.escape, sorted(UNITS, key=len, reverse=True))) + ")"
"""Matches a unit's name, as a group."""
AMOUNT = r"((?:minus )?\d{1,30}(?:\.\d{1,30})?(?: and a half)?|an?|half an?)"
"""Matches how many, as a group."""
_IS_IN = r"(?:is|are|in|are in|are there in|is in|does|do|make|make up|go into)"
_FORMS = tuple(
    (re.compile(pattern), order)
    for pattern, order in (
        (rf"(?:convert|change|turn) {AMOUNT} {UNIT} (?:to|into|in) {UNIT}", "amount from to"),
        (rf"how (?:many|much)(?: is)? {UNIT} {_IS_IN}(?: in)?(?: the)? {AMOUNT} {UNIT}(?: have| has)?",
         "to amount from"),
        (rf"(?:what|how much|how many) is(?: the)? {AMOUNT} {UNIT} (?:in|to|as) {UNIT}", "amount from to"),
        (rf"{AMOUNT} {UNIT} (?:in|to|into|(?:is|are|equals) how many) {UNIT}", "amount from to"),
        (rf"how (?:long|far|heavy|hot|cold|warm|much) is {AMOUNT} {UNIT} in {UNIT}", "amount from to"),
    )
)  # fmt: skip


def spoken_conversion(question: str) -> str | None:
    """The sentence that answers a normalised question for a conversion; None if it is none."""
    for form, order in _FORMS:
        if found := form.fullmatch(question):
            parts = dict(zip(order.split(), found.groups(), strict=True))
            return _spoken(parts["amount"], UNITS[parts["from"]], UNITS[parts["to"]])
    return None


def convert(amount: Fraction, source: Unit, target: Unit) -> Fraction:
    """Raises ValueError if one can't become the other."""
    if source.dimension != target.dimension:
        raise ValueError(f"{source.many} can't be converted to {target.many}")
    return (amount * source.size + source.zero - target.zero) / target.size


def _spoken(words: str, source: Unit, target: Unit) -> str | None:
    given = amount(words)
    if source.dimension != target.dimension:
        return f"I can't turn {source.many} into {target.many}."
    value = convert(given, source, target)
    about = "" if Fraction(number(value).replace(",", "")) == value else "about "
    sentence = f"{_said(given, source)} is {about}{_said(value, target)}.".replace("-", "minus ")
    return sentence[0].upper() + sentence[1:]


def _said(amount: Fraction, unit: Unit) -> str:
    return f"{number(amount)} {unit.one if amount == 1 else unit.many}"


def amount(words: str) -> Fraction:
    """What `AMOUNT` matched, as a number."""
    words, half = words.removesuffix(" and a half"), words.endswith(" and a half")
    if words.startswith("half"):
        return Fraction(1, 2)
    if words in ("a", "an"):
        return Fraction(1)
    sign = -1 if words.startswith("minus ") else 1
    return sign * (Fraction(words.removeprefix("minus ")) + Fraction(half, 2))
