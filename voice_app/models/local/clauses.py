"""The reply's text, as it grows, cut into clauses that can be spoken by themselves.

A cut depends on the text alone and never on how it came in pieces: the text is read from the left, a place
is decided once the few characters it depends on are there, and no later place is looked at before. The
first clause may be short, for an early start; later ones are longer and sound better, since the voice is
ahead of the ear by then.
"""

import re
from dataclasses import dataclass


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TITLES = _words("dr mr mrs ms mx prof st mt gen col sgt capt lt rev hon pres gov sen rep e.g i.e vs cf")
"""Never the end of a sentence."""
_ABBREVIATIONS = _words(
    "etc approx inc ltd co corp jr sr dept est min max ave blvd rd ft in oz lb a.m p.m al ph.d"
)
"""The end of a sentence if a capital follows; so are dotted letters (U.S.)."""
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

_WORD = re.compile(r"\S+")
_CLOSERS = "\"'”’»)]}*_`~"
_OPENERS = "\"'“‘«([{*_`~"
_PLAIN = re.compile(r"[\"'“‘(*_]*[^\W\d_](?:[^\W\d_]|['’\-])*[,;!?]")
"""A word whose punctuation cannot become part of something else, whatever follows."""
_LIST_NUMBER = re.compile(r"\d{1,3}[.)]")
_DOTTED = re.compile(r"(?:[^\W\d_]\.)+")
_FENCE = ("```", "~~~")


@dataclass(frozen=True, slots=True)
class Limits:
    """Least characters before a cut of each kind; `hard`: where a text with no place to cut is cut anyway."""

    comma: int
    joiner: int
    anywhere: int
    hard: int


_LIMITS = (Limits(10, 32, 64, 120), Limits(24, 60, 100, 180), Limits(48, 90, 150, 240))
"""For the first clause, the second, and those after. By the word errors of `voice_app.bench.voice`."""


@dataclass(frozen=True, slots=True)
class Clause:
    """`text` is the reply's text from `start` on; joined, the clauses are the reply. `pause`: what is heard
    at its end if it has no punctuation there: "," where the sentence goes on. `silent`: a line of a fenced
    code block, which nobody wants read out."""

    text: str
    start: int
    pause: str = "."
    silent: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class ClauseCutter:
    """One reply's."""

    def __init__(self) -> None:
        self._rest = ""
        self._start = 0
        self._given = 0
        self._finished = False
        self._in_code = False
        self._found: Clause | None = None
        self._looked = False

    def push(self, text: str) -> None:
        """More of the reply's text."""
        self._rest += text
        self._looked = False

    def finish(self) -> None:
        """The text is complete."""
        self._finished = True
        self._looked = False

    @property
    def done(self) -> bool:
        """Whether every clause of a finished text was taken."""
        return self._finished and self.peek() is None

    @property
    def length(self) -> int:
        """Characters pushed so far."""
        return self._start + len(self._rest)

    def peek(self) -> Clause | None:
        """The next clause, if it is whole."""
        if not self._looked:
            self._looked = True
            self._found = self._find()
        return self._found

    def take(self) -> Clause:
        """The next clause, which `peek` has shown to be there."""
        clause = self.peek()
        assert clause is not None
        self._rest = self._rest[len(clause.text) :]
        self._start = clause.end
        if clause.text.strip().startswith(_FENCE):
            self._in_code = not self._in_code
        elif not clause.silent:
            self._given += 1
        self._looked = False
        return clause

    def _find(self) -> Clause | None:
        stripped = self._rest.lstrip()
        if not stripped:
            return None
        silent = self._in_code or stripped.startswith(_FENCE)
        end = self._code_line() if silent else self._cut()
        if end is None:
            if not self._finished:
                return None
            end = len(self._rest)
        rest = self._rest[end:].lstrip(" \t")
        goes_on = not silent and bool(rest) and not rest.startswith("\n")
        return Clause(self._rest[:end], self._start, "," if goes_on else ".", silent)

    def _code_line(self) -> int | None:
        first = len(self._rest) - len(self._rest.lstrip())
        newline = self._rest.find("\n", first)
        return None if newline < 0 else newline

    def _cut(self) -> int | None:
        """Where the next clause ends: its length, or None if that cannot be said yet."""
        text = self._rest
        limits = _LIMITS[min(self._given, len(_LIMITS) - 1)]
        words = list(_WORD.finditer(text))
        begin = words[0].start()
        for index, word in enumerate(words):
            early = _PLAIN.match(word.group())
            if early and _long_enough(
                text[word.start() + early.end() - 1], word.start() + early.end() - begin, limits
            ):
                return word.start() + early.end()
            if word.end() == len(text):
                return begin + limits.hard if word.end() - begin > limits.hard else None
            following = words[index + 1] if index + 1 < len(words) else None
            gap = text[word.end() : following.start() if following else len(text)]
            line_start = index == 0 and (self._start == 0 or "\n" in text[:begin])
            if "\n" in gap and not (line_start and _LIST_NUMBER.fullmatch(word.group())):
                return word.end()
            next_word = following.group() if following else None
            if _needs_next(word.group()) and next_word is None:
                return None
            ending = (
                ""
                if line_start and _LIST_NUMBER.fullmatch(word.group())
                else _ending(word.group(), next_word or "")
            )
            if ending and _long_enough(ending, word.end() - begin, limits):
                return word.end()
            if following is None:
                return None
            length = word.end() - begin
            if length >= limits.joiner:
                if following.end() == len(text) and not self._finished:
                    return None
                if _may_part(word.group(), following.group(), length, limits):
                    return word.end()
        return None


def _long_enough(ending: str, length: int, limits: Limits) -> bool:
    return ending in ".!?…" or length >= limits.comma


def _needs_next(word: str) -> bool:
    """Whether it takes the next word's first character to say if a sentence ends with `word`."""
    core = word.strip(_CLOSERS + _OPENERS)
    if core.endswith(","):
        return core[:-1].isdecimal()
    name = core.removesuffix(".").lower()
    return core.endswith(".") and (
        name in _ABBREVIATIONS
        or name in _BEFORE_NUMBERS
        or core.endswith("..")
        or _DOTTED.fullmatch(core) is not None
    )


def _ending(word: str, following: str) -> str:
    """The punctuation that a clause may end with here, one of . ! ? … , or "" if none may."""
    core = word.rstrip(_CLOSERS)
    mark = core[-1:]
    following = following.lstrip(_OPENERS)
    if mark in "!?…":
        return mark
    if mark in ",;:—–" or word == "-":
        return "" if core[:-1].isdecimal() and following[:1].isdecimal() else ","
    if mark != ".":
        return ""
    name = core.lstrip(_OPENERS).removesuffix(".").lower()
    if name in _TITLES:
        return ""
    if name in _BEFORE_NUMBERS:
        return "" if following[:1].isdecimal() else "."
    if len(name) == 1 and name.isalpha() and name != "i":
        return ""
    if name in _ABBREVIATIONS or core.endswith("..") or _DOTTED.fullmatch(core.lstrip(_OPENERS)):
        return "." if following[:1].isupper() or not following else ""
    return "."


def _may_part(word: str, following: str, length: int, limits: Limits) -> bool:
    """Whether a sentence that is too long may be cut between these two words."""
    first, second = word.strip(_CLOSERS + _OPENERS).lower(), following.strip(_CLOSERS + _OPENERS).lower()
    if length >= limits.hard:
        return True
    if any(c.isdecimal() for c in first + second) or first.endswith("."):
        return False
    if second in _JOINERS:
        return first not in _CLINGING
    return length >= limits.anywhere and first not in _CLINGING
