"""The reply's text, as it grows, cut into clauses that can be spoken by themselves.

A cut depends on the text alone and never on how it came in pieces: the text is read from the left, a place
is decided once the few characters it depends on are there, and no later place is looked at before. The
first clause may be short, for an early start; later ones are longer and sound better, since the voice is
ahead of the ear by then. The first few words of a reply may be spoken before their clause is whole.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

from voice_app.models.local.clause_ends import COMMAS, LOOK, OPENERS, ending, may_part, needs_next, plain_ends

_WORD = re.compile(r"\S+")
_LIST_NUMBER = re.compile(r"\d{1,3}[.)]")
_FENCE = ("```", "~~~")
_PLAIN_WORDS = re.compile(r"\s*[A-Za-z]['a-z]*(?: (?:[a-z]|[A-Z][a-z])['a-z]*)+ ")
"""Words and names, with the space that shows that the last of them is whole. No word but the first is one
capital or several: those may be numbers or letters."""
_OPENING, _OPENING_MOST = 10, 30
"""Least characters of an opening, and most with the word after it: less than any clause has that is cut
without punctuation."""


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


@dataclass(frozen=True, slots=True)
class Opening:
    """A reply's first words, `end` characters long, known together with the word that follows them: `text` is
    both. How they are spoken depends on little more."""

    text: str
    end: int


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

    def opening(self) -> Opening | None:
        """The reply's first words, while no clause was taken, where they are plain ones."""
        plain = _PLAIN_WORDS.match(self._rest) if self._start == 0 else None
        if plain is None:
            return None
        first, *others = _WORD.finditer(plain.group())
        for word, following in pairwise([first, *others]):
            if word.end() - first.start() >= _OPENING:
                fits = following.end() - first.start() <= _OPENING_MOST
                return Opening(self._rest[: following.end()], word.end()) if fits else None
        return None

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
        cut = self._code_line() if silent else self._cut()
        if cut is not None:
            end, pause = cut
            return Clause(self._rest[:end], self._start, pause, silent)
        return Clause(self._rest, self._start, silent=silent) if self._finished else None

    def _code_line(self) -> tuple[int, str] | None:
        first = len(self._rest) - len(self._rest.lstrip())
        newline = self._rest.find("\n", first)
        return None if newline < 0 else (newline, "")

    def _cut(self) -> tuple[int, str] | None:
        """Where the next clause ends and the pause there; None if that cannot be said yet."""
        text = self._rest
        limits = _LIMITS[min(self._given, len(_LIMITS) - 1)]
        words = list(_WORD.finditer(text))
        begin = words[0].start()
        for index, match in enumerate(words):
            word, end = match.group(), match.end()
            for early in plain_ends(word):
                place = match.start() + early
                if place - begin <= limits.hard and self._ends(word[early - 1], begin, place, limits):
                    return place, "."
            if end - begin > limits.hard:
                return (words[index - 1].end() if index else begin + limits.hard), ","
            if end == len(text):
                return None
            following = words[index + 1] if index + 1 < len(words) else None
            if not (index == 0 and self._is_list_number(word, begin)):
                if "\n" in text[end : following.start() if following else len(text)]:
                    return end, "."
                if needs_next(word) and not self._is_telling(following):
                    return None
                if self._ends(ending(word, following.group() if following else ""), begin, end, limits):
                    return end, "."
            if following is None:
                return None
            if end - begin >= limits.joiner:
                grows = following.end() == len(text) and not self._finished
                if grows and len(following.group()) < LOOK:
                    return None
                anywhere = end - begin >= limits.anywhere
                if may_part(word, following.group(), anywhere=anywhere):
                    return end, ","
        return None

    def _is_telling(self, following: re.Match[str] | None) -> bool:
        """Whether what there is of the next word says whether a sentence ended before it."""
        if following is None:
            return False
        grows = following.end() == len(self._rest) and not self._finished
        return not grows or following.group().strip(OPENERS) != ""

    def _is_list_number(self, word: str, begin: int) -> bool:
        """Whether `word`, the clause's first, numbers the item of a list."""
        at_line_start = self._start == 0 or "\n" in self._rest[:begin]
        return at_line_start and _LIST_NUMBER.fullmatch(word) is not None

    def _ends(self, mark: str, begin: int, end: int, limits: Limits) -> bool:
        """Whether the mark ends a clause that has something to say and is long enough."""
        if not mark or not any(c.isalnum() for c in self._rest[begin:end]):
            return False
        return mark not in COMMAS or end - begin >= limits.comma
