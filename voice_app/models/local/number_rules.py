"""How whatever holds digits is read: dates, times, money, measures, telephone numbers, sums."""

import re

from voice_app.models.local import numerals as say
from voice_app.models.local.reading import Rule, Say, fixed, rule
from voice_app.models.local.units import UNITS

_NUMBER = r"(?:\d{1,3}(?:[,\u00a0\u202f]\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_N = f"({_NUMBER})"
_HALF = r"([aApP])(?:\.[mM]\.?|[mM])(?![A-Za-z])"
_MAGNITUDE = r"(?:\s?(thousand|million|billion|trillion|bn|mn|[kKmMbBT])(?![A-Za-z]))?"
MONTH = (
    r"(Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|"
    r"Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)(?![A-Za-z])\.?"
)
_UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
_VULGAR = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5),
    "⅘": (4, 5), "⅙": (1, 6), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8),
}  # fmt: skip
_DASHES = "-–—−"


def month_number(name: str) -> int:
    """Of a month's name or its first three letters."""
    return 1 + [month[:3] for month in say.MONTHS].index(name[:3])


def _iso(match: re.Match[str]) -> str | None:
    words = say.date(int(match[3]), int(match[2]), int(match[1]))
    if words is None or match[4] is None:
        return words
    time = say.clock(int(match[4]), int(match[5]), None, "")
    return time and f"{words}, {time}"


def _slashed(match: re.Match[str]) -> str | None:
    first, second, year = int(match[1]), int(match[2]), match[3]
    full = int(year) if len(year) == 4 else 2000 + int(year)
    return say.date(second, first, full) or say.date(first, second, full)


def _dotted_date(match: re.Match[str]) -> str | None:
    return say.date(int(match[1]), int(match[2]), int(match[3]))


def _dots(match: re.Match[str]) -> str:
    parts = match[0].split(".")
    read = say.digits if len(parts) == 4 else say.number
    return " dot ".join(map(read, parts)) if len(parts) == 4 else " point ".join(map(read, parts))


def _telephone(match: re.Match[str]) -> str:
    groups = re.findall(r"\d+", match[0])
    plus = "plus " if match[0].startswith("+") else ""
    return plus + ", ".join(map(say.digits, groups))


def _local_number(match: re.Match[str]) -> str | None:
    # 200-1000 is a range.
    return None if int(match[2]) % 100 == 0 else _telephone(match)


def _clock(match: re.Match[str]) -> str | None:
    second = int(match[3]) if match[3] else None
    return say.clock(int(match[1]), int(match[2]), second, match[4] or "")


def _hour(match: re.Match[str]) -> str | None:
    return f"{say.cardinal(int(match[1]))} {match[2].upper()} M" if int(match[1]) <= 24 else None


def _money(match: re.Match[str]) -> str:
    return say.money(match[1], match[2], match[3] or "")


def _money_after(match: re.Match[str]) -> str:
    return say.money(match[3], match[1], match[2] or "")


def _day_first(match: re.Match[str]) -> str | None:
    words = say.date(int(match[1]), month_number(match[2]))
    if words is None:
        return None
    month, _, day = words.partition(" ")
    the = "" if re.search(r"\b[Tt]he\s+$", match.string[: match.start()]) else "the "
    return f"{the}{day} of {month}" + (f", {say.year(int(match[3]))}" if match[3] else "")


def _mixed(match: re.Match[str]) -> str | None:
    return _with_whole(match[1], say.fraction(int(match[2]), int(match[3])))


def _with_whole(whole: str, part: str | None) -> str | None:
    if part in ("one half", "one quarter"):
        part = part.replace("one", "a")
    return part and f"{say.number(whole)} and {part}"


def _half(match: re.Match[str]) -> str:
    return "half an" if match.string[match.end()] in "aeiou" else "half a"


def _fraction(match: re.Match[str]) -> str:
    if match[0] in ("24/7", "50/50"):
        return f"{say.number(match[1])} {say.number(match[2])}"
    if match[2] in ("10", "100") and match[1] != "1":
        return f"{say.number(match[1])} out of {say.number(match[2])}"
    said = say.fraction(int(match[1]), int(match[2]))
    return said or f"{say.number(match[1])} over {say.number(match[2])}"


def _vulgar(match: re.Match[str]) -> str | None:
    part = say.fraction(*_VULGAR[match[2]])
    return _with_whole(match[1], part) if match[1] else part


def _feet(match: re.Match[str]) -> str:
    return f"{say.number(match[1])} foot {say.number(match[2])}"


def _measure(match: re.Match[str]) -> str:
    # A five kilometer walk, five kilometers.
    adjective = match[2] == "-" or re.search(r"\b[Aa]n?\s+$", match.string[: match.start()])
    words = f"{say.number(match[1])} {say.plural(UNITS[match[3]], '1' if adjective else match[1])}"
    return f"{words} per {UNITS[match[4]]}" if match[4] else words


def _large(match: re.Match[str]) -> str:
    return f"{say.number(match[1])} {'million' if match[2] == 'M' else 'billion'}"


def _decade(match: re.Match[str]) -> str:
    return say.decade(match[1])


def _scientific(match: re.Match[str]) -> str:
    sign = "minus " if match[2] in ("-", "−") else ""
    return f"{say.number(match[1])} times ten to the power of {sign}{say.number(match[3])}"


def _ordinal(match: re.Match[str]) -> str:
    return say.ordinal(int(match[1].replace(",", "")))


def _coded(match: re.Match[str]) -> str:
    in_sum = re.match(r"\s?[-+*/=^²³]", match.string[match.end() :])
    letters = "times" if match[2] in "xX" and not in_sum else " ".join(match[2].upper())
    return f"{_short(match[1])} {letters}"


def _short(text: str) -> str:
    """A number in a name (Boeing 747, 1080p): by twos where it is usual."""
    if len(text) == 3 and not text.startswith("0") and not text.endswith("00"):
        rest = text[1:] if text[1] != "0" else "oh " + text[2]
        return f"{say.cardinal(int(text[0]))} " + " ".join(
            part if part == "oh" else say.cardinal(int(part)) for part in rest.split()
        )
    if len(text) == 4 and not text.endswith("00"):
        return (
            f"{say.cardinal(int(text[:2]))} {say.cardinal(int(text[2:]))}"
            if text[2] != "0"
            else say.number(text)
        )
    return say.number(text)


def _plain_year(match: re.Match[str]) -> str | None:
    before = match.string[: match.start()].rstrip()[-1:]
    after = match.string[match.end() :].lstrip()[:1]
    if (before and before in "+=*×/÷^<>≈~√#") or (after and after in "+=*×÷^<>≈"):
        return None
    return say.year(int(match[0])) if 1100 <= int(match[0]) < 2100 else None


_OPERAND_BEFORE = re.compile(r"(?:\d|[%°²³)]|(?<![A-Za-z])[A-Za-z])\s?$")
_OPERAND_AFTER = re.compile(r"\s?(?:[$€£]?[\d.√(-]|[A-Za-z](?![A-Za-z]))")


def _operator(words: str) -> Say:
    """Said so between two operands, with spaces around or without."""

    def say_it(match: re.Match[str]) -> str | None:
        before, after = match.string[: match.start()], match.string[match.end() :]
        spaced = before.endswith(" ") == after.startswith(" ")
        return words if spaced and _OPERAND_BEFORE.search(before) and _OPERAND_AFTER.match(after) else None

    return say_it


def _times(match: re.Match[str]) -> str | None:
    tight = match.string[match.start() - 1 : match.start()] != " "
    sum_follows = re.match(r"[\d.,\s]*=", match.string[match.end() :])
    return _operator("by" if tight and match[0] in "x×" and not sum_follows else "times")(match)


def _spaced_only(words: str) -> Say:
    said = _operator(words)
    return lambda match: said(match) if match.string[match.end() : match.end() + 1] == " " else None


NUMBER_RULES: tuple[Rule, ...] = (
    rule(r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::\d\d(?:\.\d+)?)?Z?)?(?!\d)", _iso),
    rule(r"(\d{1,2})/(\d{1,2})/(\d{4}|\d\d)(?![\d/])", _slashed),
    rule(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?!\d)", _dotted_date),
    rule(r"\d+(?:\.\d+){2,}(?!\d)", _dots),
    rule(r"(?:\+?\d{1,3}[ .-])?(?:\(\d{3}\)[ .-]?|\d{3}[.-])\d{3}[ .-]\d{4}(?!\d)", _telephone),
    rule(r"\+\d{1,3}(?:[ -]?\(?\d{2,5}\)?){2,5}(?!\d)", _telephone),
    rule(r"([2-9]\d\d)-(\d{4})(?!\d)", _local_number),
    rule(r"911(?![\d.,]*\d)", lambda _: say.digits("911")),
    rule(rf"(\d{{1,2}}):(\d\d)(?::(\d\d))?(?!\d)(?:\s?{_HALF})?", _clock, closes=True),
    rule(rf"(\d{{1,2}})\s?{_HALF}", _hour, closes=True),
    rule(r"(\d+):(\d+)(?!\d)", lambda match: f"{say.number(match[1])} to {say.number(match[2])}"),
    rule(rf"({say.CURRENCY})\s?{_N}{_MAGNITUDE}", _money),
    rule(rf"{_N}{_MAGNITUDE}\s?([€£₹]|(?:{say.CURRENCY_CODES})\b)", _money_after),
    rule(rf"(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?{MONTH}(?:,?\s+(\d{{4}})(?!\d))?", _day_first),
    rule(r"(\d+)\s+(\d+)/(\d+)(?![\d/])", _mixed),
    rule(r"1/2\s+(?=[a-z])(?!of\b)|½\s+(?=[a-z])(?!of\b)", _half),
    rule(r"(\d+)/(\d+)(?![\d/])", _fraction),
    rule(rf"(\d*)\s?([{''.join(_VULGAR)}])", _vulgar),
    rule(r"(\d+)['′’]\s?(\d{1,2})(?:\"|″|”|'')", _feet),
    rule(r"(\d+)\s?ft\.?\s(\d{1,2})\s?in\b\.?", _feet),
    rule(
        r"['’]?(\d{3}0|(?:(?<=['’])|(?<=the )|(?<=mid-)|(?<=late )|(?<=early ))[2-9]0)['’]?s(?!\w)", _decade
    ),
    rule(rf"{_N}([\s-]?)({_UNIT})(?:/({_UNIT}))?(?![\w])", _measure),
    rule(r"(\d{1,3}(?:,\d{3})+|\d+)(?:st|nd|rd|th)(?![\w])", _ordinal),
    rule(rf"{_N}[eE]([-+−]?)(\d+)(?!\w)", _scientific),
    rule(rf"{_N}([MB])(?![\w])", _large),
    rule(r"(\d{1,4})([A-Za-z]{1,3})(?!\w)", _coded),
    rule(rf"{_N}[xX](?!\w)", lambda match: f"{say.number(match[1])} times"),
    rule(r"\d{4}(?![\d.,]*\d)", _plain_year),
    rule(_N, lambda match: say.number(match[0])),
    # What stands between numbers.
    rule(r"[x×*]", _times),
    fixed(
        r"(?:(?<=\d)|(?<=[%°])|(?<=\d[A-Za-z])|(?<=\d[A-Za-z]{2})|(?<=\d[ °][A-Za-z]{2}))[-–—](?=[$€£¥]?\d)",
        "to",
    ),
    fixed(r"(?<=\d )[–—](?= [$€£¥]?\d)", "to"),
    fixed(r"(?<![\w.)])[-−](?=[$€£¥]?[\d.])", "minus"),
    rule(r"[-−]", _spaced_only("minus")),
    rule(r"/", _spaced_only("divided by")),
    fixed(r"(?<=\d)/(?=[A-Za-z])", "per"),
    rule(r"÷", lambda match: "divided by"),
    rule(r"<", _operator("is less than")),
    rule(r">", _operator("is greater than")),
    fixed(r"\^2(?!\d)|²", "squared"),
    fixed(r"\^3(?!\d)|³", "cubed"),
    fixed(r"\^(?=[\w(-])", "to the power of"),
)
"""In the order in which they are tried."""
