"""How words that are not read as they are written are read: addresses, short forms, capitals, signs."""

import re
from collections.abc import Iterable

from voice_app.models.local import numerals as say
from voice_app.models.local.abbreviations import (
    ALWAYS,
    BEFORE_NUMBER,
    LETTERED,
    SAID_AS_WORDS,
    SHOUTED,
    TITLES,
    WITH_PERIOD,
    roman,
)
from voice_app.models.local.number_rules import MONTH, month_number
from voice_app.models.local.reading import Rule, fixed, rule

_TOP_LEVEL = "com|org|net|edu|gov|info|app|dev|io|ai|co|uk|de|eu|fr|ca|us|tv|me|ch|at|nl|jp|in"
_HOST = rf"(?:[A-Za-z0-9-]+\.)+(?:{_TOP_LEVEL})"
_PATH = r"(?:[/?#][^\s<>\"')\]]*[^\s<>\"')\].,;:!?])?/?"
_EXTENSION = (
    r"js|ts|py|txt|md|json|html|css|exe|pdf|zip|csv|sh|ya?ml|toml|cpp|rs|go|jpe?g|png|gif|mp[34]|wav|docx?|"
    r"xlsx?"
)
_SHORT_WORDS = ("co", "go", "me", "my", "we", "to")
"""Parts of addresses that are said as words although they are so short."""


def _alternatives(words: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


def _address(match: re.Match[str]) -> str:
    text = re.sub(r"^(?:https?|ftp)://|^mailto:", "", match[0], flags=re.IGNORECASE)
    text = re.sub(r"^www\.", "", text, flags=re.IGNORECASE)
    text = re.split(r"[?#]", text)[0].rstrip("/")
    names = {
        ".": "dot",
        "/": "slash",
        "-": "dash",
        "_": "underscore",
        "@": "at",
        "+": "plus",
        ":": "",
        "~": "tilde",
    }
    words = []
    for part in re.findall(r"[A-Za-z]+|\d+|\S", text):
        if part.isdecimal():
            words.append(say.number(part))
        elif part.isalpha() and part.isascii():
            words.append(part if _sayable(part) else " ".join(part.upper()))
        else:
            words.append(names.get(part, ""))
    return " ".join(words)


def _sayable(part: str) -> bool:
    if len(part) < 3:
        return part in _SHORT_WORDS
    return re.search("[aeiouy]", part, re.IGNORECASE) is not None


def _month_first(match: re.Match[str]) -> str | None:
    year = int(match[3]) if match[3] else None
    return say.date(int(match[2]), month_number(match[1]), year)


def _always(match: re.Match[str]) -> str:
    return ALWAYS.get(match[0]) or ALWAYS.get(match[0].lower()) or ALWAYS[match[0].upper()]


def _doctor(match: re.Match[str]) -> str:
    return (
        "drive"
        if _capital_before(match) and not re.match(r"\s+[A-Z]", match.string[match.end() :])
        else "doctor"
    )


def _saint(match: re.Match[str]) -> str:
    if re.match(r"\s*[A-Z]", match.string[match.end() :]) and not _capital_before(match):
        return "saint"
    return "street"


def _capital_before(match: re.Match[str]) -> bool:
    return re.search(r"[A-Z][a-z]+\s+$", match.string[: match.start()]) is not None


def _spelled(match: re.Match[str]) -> str:
    return " ".join(re.sub("[^A-Za-z]", "", match[0]).upper())


def _roman(match: re.Match[str]) -> str | None:
    before = re.search(r"([A-Za-z]+)\s+$", match.string[: match.start()])
    value = roman(match[0], before[1]) if before else None
    if value is None:
        return None
    return f"the {say.ordinal(value[0])}" if value[1] else say.cardinal(value[0])


def _letter_is_named(match: re.Match[str]) -> bool:
    """Whether the word before says that a letter follows: vitamin A, plan B."""
    before = re.search(r"(\w+)\s+$", match.string[: match.start()])
    return before is not None and before[1].lower() in LETTERED


def _article(match: re.Match[str]) -> str:
    word_follows = re.match(r"\s+[a-z\"'“]", match.string[match.end() :])
    return "A" if _letter_is_named(match) or not word_follows else "a"


def _initial(match: re.Match[str]) -> str | None:
    return None if _letter_is_named(match) else match[0][0]


def _mixed(match: re.Match[str]) -> str | None:
    """Capitals, digits and letters in one word: FBI's, GPUs, ChatGPT, MP3, H2O."""
    token = match[0]
    if not re.search(r"\d|.[A-Z]", token):
        return None
    ending = re.search(r"(?<=[A-Z])['’]?s$", token)
    parts = re.findall(
        r"[A-Z]{2,}(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+", token[: ending.start()] if ending else token
    )
    words = [_part(part, match) for part in parts]
    return " ".join(words) + ("'s" if ending else "")


def _part(part: str, match: re.Match[str]) -> str:
    if part.isdecimal():
        return say.digits(part) if part.startswith("0") else say.number(part)
    if len(part) == 1:
        return part.upper()
    if not part.isupper() or _is_word(part, match):
        return part.lower() if part.isupper() else part
    return " ".join(part)


def _is_word(capitals: str, match: re.Match[str]) -> bool:
    if capitals in SAID_AS_WORDS or capitals in SHOUTED:
        return True
    if len(capitals) >= 5 and re.search("[AEIOUY]", capitals):
        return True
    # In a text that is all capitals, capitals say nothing.
    return not re.search("[a-z]", match.string) and len(re.findall(r"[A-Z]{2,}", match.string)) >= 3


_TITLE = _alternatives(title.capitalize() for title in TITLES)

ADDRESS_RULES: tuple[Rule, ...] = (
    rule(r"(?:https?|ftp)://[^\s<>\"')\]]*[^\s<>\"')\].,;:!?]", _address),
    rule(rf"[\w.+-]+@{_HOST}(?![\w])", _address),
    rule(rf"(?<![\w.])(?:www\.)?{_HOST}(?![\w]){_PATH}", _address),
    rule(rf"(?<![\w.])[\w-]+\.(?:{_EXTENSION})(?!\w)", _address),
)

WORD_RULES: tuple[Rule, ...] = (
    rule(r"(?<!\w)(?i:etc)\.?(?!\w)", lambda match: "et cetera", closes=True),
    rule(rf"(?<!\w)(?i:{_alternatives(ALWAYS)})(?!\w)", _always),
    rule(
        rf"{MONTH}\s+(\d{{1,2}})(?:st|nd|rd|th)?(?![\d:.]\d|\d|\s?[ap]\.?m)(?:,?\s+(\d{{4}})(?!\d))?",
        _month_first,
    ),
    rule(r"Dr\.?(?=\s+[A-Z])|Dr\.", _doctor),
    rule(r"St\.", _saint),
    rule(rf"({_TITLE})(?:\.|(?=\s+[A-Z]))", lambda match: TITLES[match[1].lower()]),
    rule(rf"(?i:({_alternatives(WITH_PERIOD)}))\.", lambda match: WITH_PERIOD[match[1].lower()], closes=True),
    rule(rf"(?i:({_alternatives(BEFORE_NUMBER)}))\.(?=\s?\d)", lambda match: BEFORE_NUMBER[match[1].lower()]),
    rule(r"[B-HJ-Z]\.(?=\s+[A-Z])|[A-Z]\.(?=\s+[A-Z]\.)", _initial),
    fixed(r"[vV](?=\d+\.\d)", "version"),
    rule(r"(?:[A-Za-z]\.){2,}(?:[A-Za-z](?![\w]))?", _spelled, closes=True),
    rule(r"[IVX]{1,5}(?!\w)", _roman),
    rule(r"A(?![\w'’])", _article),
    fixed(r"a(?=\s?[\^²³=+])", "A"),
    rule(r"[a-zA-Z](?![A-Za-z\d_'’])", lambda match: match[0].upper() if match[0] != "a" else "a"),
    rule(r"[A-Za-z0-9]+(?<=[A-Za-z])(?:['’]s)?(?![\w])|[A-Za-z]+\d+(?:[A-Za-z]*)(?![\w])", _mixed),
    fixed(r"#(?=\d)", "number"),
    fixed(r"#(?=[A-Za-z])", "hashtag"),
    fixed(r"&", "and"),
    fixed(r"@", "at"),
    fixed(r"~(?=\d)|≈(?=\s?\d)", "about"),
    fixed(r"±|\+/-", "plus or minus"),
    fixed(r"<=|≤", "is less than or equal to"),
    fixed(r">=|≥", "is greater than or equal to"),
    fixed(r"!=|≠", "is not equal to"),
    fixed(r"≈", "is about"),
    fixed(r"={1,3}(?!>)", "equals"),
    fixed(r"\+", "plus"),
    fixed(r"√", "the square root of"),
    fixed(r"∞", "infinity"),
    fixed(r"π", "pi"),
    fixed(r"%", "percent"),
    fixed(r"§", "section"),
    fixed(r"°(?=\s)|°$", "degrees"),
    fixed(r"€", "euros"),
    fixed(r"£", "pounds"),
    fixed(r"\$(?=\s|$)", "dollars"),
)
