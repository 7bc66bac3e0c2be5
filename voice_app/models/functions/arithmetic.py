"""Spoken sums: "what is twelve times seven" → "12 times 7 is 84."

The whole of what follows the question's opening has to be one expression; anything else is not a sum.
"""

import re
from fractions import Fraction

from voice_app.models.functions.expression import NotAnExpression, TooLong, Value, read_expression

_LARGEST = Fraction(10) ** 15
"""Results beyond it are not said."""
_TOO_LONG = "That number is too long to say."

_OPENING = re.compile(
    r"^(?:.*\b)?(?:what (?:is|are|does|would(?: be)?|will be)|what(?= \d)|how much (?:is|are|does|do)"
    r"|calculate|compute|solve|work out|figure out|what do (?:you|i|we) get (?:if|when) (?:you|i|we)"
    r"|if (?:you|i|we)|what happens if (?:you|i|we)|the result of|the answer to|the value of)\s+"
)
_CLOSING = re.compile(
    r"(?:\s+(?:=|equals?|equal to|is equal to|is|is how much|be|make|makes|come to|give|gives"
    r"|what do (?:you|i|we) get|what is (?:that|it|the result|the answer)|how much is (?:that|it)"
    r"|in total|altogether|together))+$"
)
_REWRITES = tuple(
    (re.compile(pattern), becomes)
    for pattern, becomes in (
        (r"\b(?:an?|the) (?=\d|square root|sum|total|product|difference|quarter|half of)", ""),
        (r"\bpoint (?=\d+\b)", "0."),
        (r"^(?:sum|total) of (.+?) and (.+)$", r"\1 plus \2"),
        (r"^product of (.+?) and (.+)$", r"\1 times \2"),
        (r"^difference (?:between|of) (.+?) and (.+)$", r"\1 minus \2"),
        (r"^add (.+?) (?:to|and|with) (.+)$", r"\1 plus \2"),
        (r"^(?:subtract|take) (.+?) (?:away )?from (.+)$", r"\2 minus \1"),
        (r"^multiply (.+?) (?:by|and|with|times) (.+)$", r"\1 times \2"),
        (r"^divide (.+?) by (.+)$", r"\1 divided by \2"),
        (r"^how many times does (\S+) go into (\S+)$", r"\2 divided by \1"),
    )
)
_HEARD_WRONG = {"to": "2", "too": "2", "for": "4", "ate": "8", "won": "1"}


def spoken_sum(question: str, that: Fraction | None = None) -> str | None:
    """The sentence that answers a normalised question if it asks for a sum. `that`: the last result, for
    "and double that"."""
    try:
        found = read_sum(question, that)
    except ZeroDivisionError:
        return "You can't divide by zero."
    except TooLong:
        return _TOO_LONG
    if found is None:
        return None
    if abs(found.value) > _LARGEST:
        return _TOO_LONG
    verb = (
        "is" if found.exact and Fraction(number(found.value).replace(",", "")) == found.value else "is about"
    )
    return f"{found.said[0].upper()}{found.said[1:]} {verb} {number(found.value)}."


def read_sum(question: str, that: Fraction | None = None) -> Value | None:
    """The sum that a normalised question asks for. Raises ZeroDivisionError, TooLong."""
    asked = _expression(question)
    if that is not None:
        asked = _with_that(asked, number(that).replace(",", ""))
    mended = " ".join(_HEARD_WRONG.get(word, word) for word in asked.split())
    for words in (asked, mended):
        try:
            return read_expression(words)
        except NotAnExpression:
            continue
    return None


def number(value: Fraction) -> str:
    """In digits, as it is read aloud: at most two decimals, four below 0.1; commas from 10,000 on."""
    places = 2 if abs(value) >= Fraction(1, 10) else 4
    rounded = round(value, places)
    text = (
        f"{float(rounded):.{places}f}".rstrip("0").rstrip(".") if rounded.denominator != 1 else str(rounded)
    )
    whole, point, decimals = text.partition(".")
    return (f"{int(whole):,}" if len(whole) > 4 else whole) + point + decimals


def _expression(question: str) -> str:
    text = _CLOSING.sub("", _OPENING.sub("", question))
    for pattern, becomes in _REWRITES:
        text = pattern.sub(becomes, text)
    return text


def _with_that(asked: str, that: str) -> str:
    if re.match(r"(?:plus|minus|times|divided by|multiplied by)\b", asked):
        return f"{that} {asked}"
    return re.sub(r"\b(?:that|it|the result)\b", that, asked)
