"""What the user asks to have done, taken apart: phrases, amounts, words. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from text_to_num import alpha2digit

from voice_app.models.functions.question import bare, normalise, without_lead_in
from voice_app.models.functions.units import AMOUNT, UNIT, UNITS, Unit, amount

_LEADS = frozenset(
    (
        "in", "at", "to", "for", "from", "on", "with", "about", "by", "near", "into", "under", "as",
        "saying", "that", "called", "named", "titled",
    )
)  # fmt: skip
"""Words that a phrase begins with."""
_PARTICLES = frozenset(["on", "off", "up", "down", "out", "over"])
_DETERMINERS = frozenset(
    (
        "the", "a", "an", "some", "any", "my", "our", "your", "this", "that", "me", "us", "it",
    )
)  # fmt: skip
_ASKING = frozenset(
    (
        "what", "what's", "whats", "how", "how's", "who", "who's", "where", "where's", "when", "when's",
        "which", "is", "are", "was", "were", "do", "does", "did", "will", "can", "could", "should",
        "would", "many", "much", "long", "far",
    )
)  # fmt: skip
_WISH = re.compile(
    r"(?:(?:i|we) (?:want|need|would like)|(?:i|we)'d like)(?P<to> to)? |(?:let's|let us) (?P<do>)"
)
_DAY = (
    r"(?:(?:on|next|this) )?(?:today|tonight|tomorrow|yesterday|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|week|weekend|month)(?: morning| afternoon| evening| night)?"
)
_HOUR = r"(?:noon|midnight|(?:\d{1,2}|one|two|three)(?::\d\d| \d\d)?(?: ?[ap]\.?m\b\.?| o'clock)?)"
_IN_A_WHILE = r"in (?:an?|\d+|one|two|three) (?:second|minute|hour|day|week)s?"
_WHEN = re.compile(
    rf"\b(?:{_DAY}(?: at {_HOUR})?|at {_HOUR}(?: {_DAY})?|{_IN_A_WHILE})(?=$|[\s,])", re.IGNORECASE
)
_ENDING = re.compile(r"(?:ing|ed|es|s|e|(?<=\w{5})er)$")
_QUOTED = re.compile(r"[\"“]([^\"”]+)[\"”]")
_NUMBER = re.compile(
    rf"(?<![\w.])(?:{AMOUNT} {UNIT}\b( and a half)?|((?:minus )?\d{{1,30}}(?:\.\d{{1,30}})?)(?![\w.]))"
)
"""More than 30 digits in a row are no amount: what is read stays within what a float holds."""


@dataclass(slots=True)
class Phrase:
    """Words with what leads them in ("" for what the verb is about, "when" for a time)."""

    lead: str
    words: list[str]
    used: bool = False


@dataclass(slots=True)
class Amount:
    value: Fraction
    unit: Unit | None
    used: bool = False


@dataclass(slots=True)
class Command:
    """A question taken apart. What an argument takes of it is `used` and goes to no other."""

    text: str
    stems: frozenset[str]
    words: Sequence[str]
    """Lower case, numbers as digits."""
    quoted: list[str]
    phrases: list[Phrase] = field(default_factory=list)
    amounts: list[Amount] = field(default_factory=list)


def read_command(question: str, *, times: bool = False) -> Command:
    """`times`: phrases that say when are phrases of their own."""
    text = question.strip()
    normalised = normalise(text)
    words = normalised.split()
    command = Command(text, stems(words), words, _QUOTED.findall(text))
    command.amounts = [_amount(found) for found in _NUMBER.finditer(normalised)]
    plain = alpha2digit(re.sub(r"[?!;:]+(?=\s|$)|[\"“”]|\.+(?=\s|$)", "", text.replace("’", "'")), "en")
    plain = _opened(plain)
    if times and (found := _WHEN.search(plain)):
        when = re.sub(r"^(?:at|on) ", "", found[0], flags=re.IGNORECASE)
        command.phrases.append(Phrase("when", when.split()))
        plain = plain[: found.start()] + plain[found.end() :]
    command.phrases += _phrases(_without_verb(plain.split()))
    return command


def stems(words: Iterable[str]) -> frozenset[str]:
    """Words without the endings of number and tense, and without those that mean nothing by themselves."""
    found = (_ENDING.sub("", word) if len(word) > 3 else word for word in words)
    return (
        frozenset(found) - _LEADS - _DETERMINERS - _ASKING - {"of", "and", "or", "i", "you", "pleas", "get"}
    )


def name_words(name: str) -> list[str]:
    """The words of an identifier or a text: "setLight_on" → set, light, on."""
    return re.findall(r"[a-z]+|\d+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())


def cleaned(words: Sequence[str], known: frozenset[str] = frozenset()) -> str:
    """Without articles before, nor at either end what the function's own words say: "the kitchen light" is
    "kitchen" to a function about lights. Where nothing is left, only the articles go."""
    kept = list(words)
    while kept and kept[0].lower() in _DETERMINERS:
        kept = kept[1:]
    short = kept
    while short and _is_known(short[0], known):
        short = short[1:]
    while short and _is_known(short[-1], known):
        short = short[:-1]
    return " ".join(short or kept).strip(" ,")


def _is_known(word: str, known: frozenset[str]) -> bool:
    meant = stems([word.strip(",").lower()])
    return bool(meant) and meant <= known


def says_only(words: Sequence[str], known: frozenset[str]) -> bool:
    """Whether all of `words` that mean something are `known`."""
    return stems(word.strip(",").lower() for word in words) <= known


def capitalised(words: Sequence[str]) -> str:
    """The first run of words with a capital; "" for none."""
    run: list[str] = []
    for word in words:
        if word[:1].isupper() and word != "I":
            run.append(word.strip(","))
        elif run:
            break
    return " ".join(run)


def _amount(found: re.Match[str]) -> Amount:
    said, unit, half, number = found.groups()
    more = Fraction(1, 2) if half else 0
    return Amount(amount(number or said) + more, UNITS[unit] if unit else None)


def _opened(text: str) -> str:
    """Without what only opens or closes it politely. Commas stay."""
    words, without = text.split(), " ".join(text.replace(",", "").split())
    opened = without_lead_in(without).split()
    return " ".join(words[len(words) - len(opened) :][: len(bare(without).split())])


def _without_verb(words: list[str]) -> list[str]:
    wish = _WISH.match(" ".join(words).lower() + " ")
    if wish:
        words = words[len(wish[0].split()) :]
        if not (wish["to"] or wish["do"] is not None):
            return words
    if words and words[0].lower() in _ASKING:
        while words and words[0].lower() in _ASKING:
            words = words[1:]
        return words
    if words and words[0].lower() not in _LEADS:
        words = words[1:]
        if words and words[0].lower() in _PARTICLES:
            words = words[1:]
    return words


def _phrases(words: Sequence[str]) -> list[Phrase]:
    phrases = [Phrase("", [])]
    if words and words[-1].lower() in _PARTICLES:
        words = words[:-1]  # "turn the light off"
    for word in words:
        lower = word.lower()
        begins = lower in _LEADS and not (lower == "that" and not phrases[-1].words)
        if begins:
            phrases.append(Phrase(lower, []))
        else:
            phrases[-1].words.append(word)
    return [phrase for phrase in phrases if phrase.words]
