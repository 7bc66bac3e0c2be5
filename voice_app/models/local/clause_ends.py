"""Whether a sentence or a part of one ends with a given word, judged by the word and the one after it."""

import re
from collections.abc import Iterator

OPENERS = "\"'“‘«([{*_`~"
CLOSERS = "\"'”’»)]}*_`~"

COMMAS = ",;，、；"
LOOK = 12
"""Characters of the next word that a cut between words depends on: more than any joining word has."""
_PLAIN = re.compile(r"[\"'“‘(*_]*[^\W\d_](?:[^\W\d_]|['’\-])*[,;!?，、；。！？]")
_DOTTED = re.compile(r"(?:[^\W\d_]\.)+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TITLES = _words("dr mr mrs ms mx prof st mt gen col sgt capt lt rev hon pres gov sen rep e.g i.e vs cf")
"""Never the end of a sentence."""
_ABBREVIATIONS = _words(
    "etc approx inc ltd co corp jr sr dept est min max ave blvd rd ft in oz lb a.m p.m al ph.d"
)
"""The end of a sentence if a capital follows; so are dotted letters (U.S.) and an ellipsis."""
_BEFORE_NUMBERS = _words(
    "no fig vol ch pp p jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun"
)
"""The end of a sentence unless a number follows."""
_JOINERS = _words(
    "and but or so because which who while when where if although though since until unless whereas as"
)
"""A long sentence may be cut before one of these."""
_CLINGING = _words(
    "a an the of to in on at by for with from and or but as is are was were be his her its their my your our "
    "this that these those very not no into than about over under"
)
"""A cut without punctuation never comes after one of these."""


def plain_ends(word: str) -> Iterator[int]:
    """Where punctuation ends that cannot become part of something else, whatever follows: "Paris," but not
    "1," nor "Dr."; several in a text without spaces."""
    match = _PLAIN.match(word)
    while match:
        yield match.end()
        match = _PLAIN.match(word, match.end())


def needs_next(word: str) -> bool:
    """Whether it takes the next word's first character to say if something ends with `word`."""
    core = word.strip(CLOSERS + OPENERS)
    if core.endswith(","):
        return core[:-1].isdecimal()
    name = core.removesuffix(".").lower()
    return core.endswith(".") and (_depends_on_capital(core, name) or name in _BEFORE_NUMBERS)


def ending(word: str, following: str) -> str:
    """The mark that ends something here: one of . ! ? … for a sentence, a comma for less, "" for nothing."""
    core = word.strip(CLOSERS + OPENERS)
    following = following.lstrip(OPENERS)
    if core.endswith(("!", "?", "…")):
        return core[-1]
    if core.endswith((",", ";", ":", "—", "–")) or word == "-":
        return "" if core[:-1].isdecimal() and following[:1].isdecimal() else ","
    return "." if core.endswith(".") and _period_ends(core, following) else ""


def _period_ends(core: str, following: str) -> bool:
    name = core.removesuffix(".").lower()
    if name in _TITLES:
        return False
    if name in _BEFORE_NUMBERS:
        return not following[:1].isdecimal()
    if len(name) == 1 and name.isalpha() and name != "i":
        # An initial.
        return False
    return not _depends_on_capital(core, name) or following[:1].isupper() or not following


def _depends_on_capital(core: str, name: str) -> bool:
    return name in _ABBREVIATIONS or core.endswith("..") or _DOTTED.fullmatch(core) is not None


def may_part(word: str, following: str, *, anywhere: bool) -> bool:
    """Whether a sentence that is too long may be cut between these two words: before a joining word, or
    `anywhere` that is not beside a number or after a word that clings to the next."""
    first = word.strip(CLOSERS + OPENERS).lower()
    second = following[:LOOK].strip(CLOSERS + OPENERS).lower()
    if first in _CLINGING or first.endswith(".") or any(c.isdecimal() for c in first + second):
        return False
    return anywhere or second in _JOINERS
