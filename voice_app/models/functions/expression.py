"""Arithmetic in words: "12 times 7 plus half of 90" → its exact value and how it reads aloud.

sum     := product (("plus" | "minus") product)*
product := power (("times" | "divided by") power)*
power   := value ("squared" | "cubed" | "to the power of" value)*
value   := number ["and a half"] ["percent of" power] | "minus" value
         | ("square root of" | "half of" | "2 3rds of" | "twice" | …) power
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction

_LARGEST_POWER = 64
_MOST_BITS = 512
"""Of the numerator and the denominator of every partial result: a chain of powers must not keep the thinker
busy. It is far beyond what can be said, and within what a float holds."""
_MOST_TOKENS = 64
"""Of one expression: each may be a level of recursion."""

_OPERATORS = {
    "plus": ("plus", "+", "and", "added to"),
    "minus": ("minus", "-", "less", "take away", "subtract"),
    "times": ("times", "multiplied by", "x", "×", "*"),
    "divided by": ("divided by", "over", "÷", "/"),
    "percent of": ("percent of", "per cent of", "% of"),
    "to the power of": ("to the power of", "raised to the power of", "to the power", "^"),
    "squared": ("squared",),
    "cubed": ("cubed",),
    "the square root of": ("square root of", "root of"),
    "and a half": ("and a half", "and half"),
}
_FACTORS = {
    "half of": Fraction(1, 2),
    "half": Fraction(1, 2),
    "a half of": Fraction(1, 2),
    "twice": Fraction(2),
    "double": Fraction(2),
    "triple": Fraction(3),
}
_PHRASES = {phrase: said for said, phrases in _OPERATORS.items() for phrase in phrases}
_WORD = re.compile(
    "(" + "|".join(map(re.escape, sorted([*_PHRASES, *_FACTORS], key=len, reverse=True))) + r")(?=\s|$)"
)
_NUMBER = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)(?=\s|$)")
_PART_OF = re.compile(r"(?:(\d{1,30}) )?(half|halves|quarters?|3rds?|[4-9]ths?|10ths?) of(?=\s|$)")
_PARTS = {"hal": 2, "qua": 4}
_ORDINALS = {
    3: "third",
    4: "quarter",
    5: "fifth",
    6: "sixth",
    7: "seventh",
    8: "eighth",
    9: "ninth",
    10: "tenth",
}


class NotAnExpression(ValueError):
    """The words are not arithmetic from the first to the last."""


class TooLong(ArithmeticError):
    """A result on the way has more digits than anybody would say."""


@dataclass(frozen=True, slots=True)
class Value:
    """A (partial) result: `said` is the expression in words, `exact` whether no root was rounded,
    `steps` how many operations are in it. Raises TooLong."""

    value: Fraction
    said: str
    exact: bool = True
    steps: int = 0

    def __post_init__(self) -> None:
        if _bits(self.value) > _MOST_BITS:
            raise TooLong(self.said)


def read_expression(text: str) -> Value:
    """The value of normalised words. Raises NotAnExpression (a number alone is none; nor is what holds more
    than 30 digits in a row), ZeroDivisionError, TooLong."""
    reader = _Reader(_tokens(text))
    found = reader.sum()
    if reader.left() or not found.steps:
        raise NotAnExpression(text)
    return found


_Token = tuple[str, Fraction | None]
"""What is said, and the number or factor that it stands for; None for an operator."""


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    rest = text.strip()
    while rest:
        if len(tokens) == _MOST_TOKENS:
            raise NotAnExpression(text)
        if found := _PART_OF.match(rest):
            tokens.append(_part_of(int(found[1] or 1), found[2]))
        elif found := _NUMBER.match(rest):
            tokens.append((found[1], Fraction(found[1])))
        elif found := _WORD.match(rest):
            word = found[1]
            tokens.append((word, _FACTORS[word]) if word in _FACTORS else (_PHRASES[word], None))
        else:
            raise NotAnExpression(text)
        rest = rest[found.end() :].lstrip()
    return tokens


def _part_of(count: int, name: str) -> _Token:
    part = _PARTS.get(name[:3]) or int(re.sub(r"\D", "", name))
    if part == 2:
        return ("half of", Fraction(count, 2))
    said = _ORDINALS[part]
    return (f"a {said} of" if count == 1 else f"{count} {said}s of", Fraction(count, part))


class _Reader:
    """Recursive descent over the tokens."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def left(self) -> bool:
        return self._at < len(self._tokens)

    def sum(self) -> Value:
        found = self._product()
        while operator := self._take("plus", "minus"):
            right = self._product()
            value = found.value + right.value if operator == "plus" else found.value - right.value
            found = _joined(value, found, operator, right)
        return found

    def _product(self) -> Value:
        found = self._power()
        while operator := self._take("times", "divided by"):
            right = self._power()
            value = found.value * right.value if operator == "times" else found.value / right.value
            found = _joined(value, found, operator, right)
        return found

    def _power(self) -> Value:
        found = self._value()
        while operator := self._take("squared", "cubed", "to the power of"):
            if operator == "to the power of":
                right = self._value()
                found = _joined(_raised(found.value, right.value), found, operator, right)
            else:
                value = _raised(found.value, Fraction(2 if operator == "squared" else 3))
                found = Value(value, f"{found.said} {operator}", found.exact, found.steps + 1)
        return found

    def _value(self) -> Value:
        if self._take("minus"):
            found = self._value()
            return Value(-found.value, f"minus {found.said}", found.exact, found.steps)
        if self._take("the square root of"):
            return _root(self._power())
        if not self.left():
            raise NotAnExpression("it ends too early")
        said, value = self._tokens[self._at]
        self._at += 1
        if value is None:
            raise NotAnExpression(said)
        if not said[0].isdigit() or said.endswith("of"):
            of = self._power()
            return Value(value * of.value, f"{said} {of.said}", of.exact, of.steps + 1)
        if self._take("and a half"):
            return Value(value + Fraction(1, 2), f"{said} and a half")
        if self._take("percent of"):
            of = self._power()
            return Value(value * of.value / 100, f"{said} percent of {of.said}", of.exact, of.steps + 1)
        return Value(value, said)

    def _take(self, *wanted: str) -> str | None:
        """The next token if it is one of these operators."""
        if self.left() and self._tokens[self._at][0] in wanted and self._tokens[self._at][1] is None:
            self._at += 1
            return self._tokens[self._at - 1][0]
        return None


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _joined(value: Fraction, left: Value, operator: str, right: Value) -> Value:
    said = f"{left.said} {operator} {right.said}"
    return Value(value, said, left.exact and right.exact, left.steps + right.steps + 1)


def _raised(base: Fraction, power: Fraction) -> Fraction:
    if power.denominator != 1 or abs(power) > _LARGEST_POWER:
        raise NotAnExpression("only whole powers that are small")
    if _bits(base) * abs(power) > 2 * _MOST_BITS:
        raise TooLong("a power")
    return base ** int(power)


def _root(of: Value) -> Value:
    if of.value < 0:
        raise NotAnExpression("the root of a negative number")
    top, bottom = math.isqrt(of.value.numerator), math.isqrt(of.value.denominator)
    exact = Fraction(top, bottom)
    said = f"the square root of {of.said}"
    if exact * exact == of.value:
        return Value(exact, said, of.exact, of.steps + 1)
    return Value(Fraction(math.sqrt(of.value)), said, False, of.steps + 1)
