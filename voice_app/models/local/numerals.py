"""Numbers, dates, times and money as American English says them. Words come back separated by spaces; a
comma after a word is a short pause."""

import re
from functools import lru_cache

from num2words import num2words

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip

_CARDINAL_DIGITS = 15
"""A longer number is read digit by digit."""
_MAGNITUDES = {
    "k": "thousand",
    "m": "million",
    "mn": "million",
    "b": "billion",
    "bn": "billion",
    "t": "trillion",
}
_MONEY = {
    "$": ("dollar", "cent"), "US$": ("dollar", "cent"), "USD": ("dollar", "cent"),
    "€": ("euro", "cent"), "EUR": ("euro", "cent"), "£": ("pound", "penny"), "GBP": ("pound", "penny"),
    "¥": ("yen", ""), "JPY": ("yen", ""), "₹": ("rupee", "paisa"), "INR": ("rupee", "paisa"),
    "CHF": ("Swiss franc", "centime"), "CAD": ("Canadian dollar", "cent"),
}  # fmt: skip
_PLURALS = {
    "penny": "pence", "yen": "yen", "paisa": "paise", "foot": "feet", "inch": "inches",
    "percent": "percent", "mille": "mille", "celsius": "celsius", "fahrenheit": "fahrenheit",
}  # fmt: skip
CURRENCY = r"US\$|[$€£¥₹]"
CURRENCY_CODES = "USD|EUR|GBP|JPY|INR|CHF|CAD"


@lru_cache(maxsize=4096)
def _words(number: int, kind: str) -> str:
    return num2words(number, to=kind).replace(",", "").replace("-", " ").replace(" and ", " ")


def cardinal(number: int) -> str:
    """21 → twenty one"""
    return _words(number, "cardinal")


def ordinal(number: int) -> str:
    """21 → twenty first"""
    return _words(number, "ordinal")


def year(number: int) -> str:
    """1905 → nineteen oh five"""
    return _words(number, "year") if 1100 <= number < 2000 or number > 2009 else cardinal(number)


def digits(text: str) -> str:
    """Each digit of `text` by itself; other characters are left out, and every fourth digit is followed by a
    pause where there are many."""
    words = [cardinal(int(c)) for c in text if c.isdecimal()]
    if len(words) > 8:
        words[3:-1:4] = [word + "," for word in words[3:-1:4]]
    return " ".join(words)


def number(text: str) -> str:
    """A number as written, groups set off by commas or hard spaces.

    1,234.5 → one thousand two hundred thirty four point five"""
    whole, _, decimals = re.sub("[,\u00a0\u202f]", "", text).partition(".")
    if len(whole) > _CARDINAL_DIGITS or (len(whole) > 1 and whole.startswith("0")):
        spoken = digits(whole)
    else:
        spoken = cardinal(int(whole)) if whole else ""
    if decimals:
        spoken = f"{spoken} point {digits(decimals)}"
    return spoken.strip()


def is_one(text: str) -> bool:
    """Whether a thing so many times is in the singular."""
    return text.lstrip("-−") == "1"


def plural(noun: str, count: str) -> str:
    """`noun` as it is after the number `count`."""
    if is_one(count):
        return noun
    if noun.startswith("degree"):
        return "degrees" + noun.removeprefix("degree")
    counted, per, rest = noun.partition(" per ")
    before, space, last = counted.rpartition(" ")
    many = _PLURALS.get(last) or (last if last.endswith("hertz") else last + "s")
    return before + space + many + per + rest


def money(symbol: str, amount: str, magnitude: str) -> str:
    """$, 3.50 → three dollars and fifty cents; $, 2.5, million → two point five million dollars"""
    unit, small = _MONEY[symbol]
    whole, _, cents = amount.replace(",", "").partition(".")
    if magnitude:
        return f"{number(amount)} {_MAGNITUDES.get(magnitude.lower(), magnitude)} {plural(unit, '2')}"
    if len(cents) != 2 or not small:
        return f"{number(amount)} {plural(unit, amount)}"
    parts = []
    if int(whole or 0) or not int(cents):
        parts.append(f"{number(whole)} {plural(unit, whole)}")
    if int(cents):
        parts.append(f"{cardinal(int(cents))} {plural(small, str(int(cents)))}")
    return " and ".join(parts)


def clock(hour: int, minute: int, second: int | None, half: str) -> str | None:
    """10, 5, "am" → ten oh five A M. None if there is no such time."""
    if hour > 24 or minute > 59 or (second or 0) > 59:
        return None
    words = cardinal(hour)
    if minute:
        words += f" oh {cardinal(minute)}" if minute < 10 else f" {cardinal(minute)}"
    elif not half:
        words += " o'clock" if 1 <= hour <= 12 else " hundred"
    if second is not None:
        words += f" and {cardinal(second)} {plural('second', str(second))}"
    letter = half[:1].upper()
    return f"{words} {letter} M" if letter else words


def date(day: int, month: int, of_year: int | None = None) -> str | None:
    """29, 11, 2026 → November twenty ninth, twenty twenty six. None if there is no such day."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    words = f"{MONTHS[month - 1]} {ordinal(day)}"
    return words if of_year is None else f"{words}, {year(of_year)}"


def fraction(above: int, below: int) -> str | None:
    """3, 4 → three quarters. None if it is not said so."""
    if not 0 < above < below or not (below <= 20 or below == 100):
        return None
    name = {2: "half", 4: "quarter"}.get(below) or ordinal(below)
    if above == 1:
        return f"one {name}"
    return f"{cardinal(above)} {'halves' if below == 2 else name + 's'}"


def decade(text: str) -> str:
    """1990 → nineteen nineties; 90 → nineties"""
    words = year(int(text)) if len(text) == 4 else cardinal(int(text))
    return re.sub("y$", "ie", words) + "s"
