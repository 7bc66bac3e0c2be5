"""Written English → the words that a person says when reading it aloud, each with its place in the text.

Markup and pictures are blanked first (`markup`). Then the text is read from the left: at each place the
rules are tried in order, the first that applies says how its stretch is read, and what no rule takes is a
word or a punctuation mark.
"""

import re
import unicodedata
from dataclasses import dataclass, replace

from anyascii import anyascii

from voice_app.models.local.markup import without_markup
from voice_app.models.local.number_rules import NUMBER_RULES
from voice_app.models.local.numerals import cardinal
from voice_app.models.local.word_rules import ADDRESS_RULES, WORD_RULES


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """`text`: letters and apostrophes; a single capital is the letter's name. [start, end): what in the
    written text it stands for (several words may share a place). `pause`: the punctuation heard after it, one
    of , ; : . ? ! or ""."""

    text: str
    start: int
    end: int
    pause: str = ""


_PAUSES = {
    ",": ",", ";": ";", ":": ":", ".": ".", "!": "!", "?": "?", "…": ",", "—": ",", "–": ",", "(": ",",
    ")": ",", "[": ",", "]": ",", "\n": ".", "。": ".", "，": ",", "、": ",", "！": "!", "？": "?", "：": ":",
    "；": ";", "।": ".",
}  # fmt: skip
_STRENGTH = ("", ",", ";", ":", ".", "!", "?")
_LETTER = r"[^\W\d_²³¹¼-¾\u2070-\u218f\u2460-\u24ff]"
_WORD = re.compile(rf"{_LETTER}(?:{_LETTER}|[\u0300-\u036f]|['’](?={_LETTER}))*")
_INITIAL = re.compile(r"\b[A-Za-z]\.$")
_SENTENCE_FOLLOWS = re.compile(r"\s*$|\s*\n|\s+[\"“(]?[A-Z]")
_RULES = (*ADDRESS_RULES, *NUMBER_RULES, *WORD_RULES)


def spoken_form(text: str) -> list[SpokenWord]:
    """The words of `text`, in order."""
    heard = without_markup(text)
    words: list[SpokenWord] = []
    place = 0
    while place < len(heard):
        if heard[place] in " \t":
            place += 1
        else:
            place = _ruled(words, heard, place) or _plain(words, heard, place)
    return words


def _ruled(words: list[SpokenWord], heard: str, place: int) -> int | None:
    """Reads what a rule applies to at `place`; where it ends, or None if none applies."""
    for rule in _RULES:
        match = rule.pattern.match(heard, place)
        if match is None:
            continue
        said = rule.say(match)
        if said is None:
            continue
        end = match.end()
        _add(words, said, place, end)
        if rule.closes and heard[end - 1] == "." and _SENTENCE_FOLLOWS.match(heard, end):
            _pause(words, ".")
        return end
    return None


def _plain(words: list[SpokenWord], heard: str, place: int) -> int:
    """Reads a word or a punctuation mark as it is; where it ends."""
    word = _WORD.match(heard, place)
    if word is None:
        _sign(words, heard, place)
        return place + 1
    _add(words, _latin(word[0]), place, word.end())
    return word.end()


def _sign(words: list[SpokenWord], heard: str, place: int) -> None:
    sign = heard[place]
    if sign in _PAUSES or sign == "-":
        _pause(words, _heard_pause(heard, place))
    elif (value := unicodedata.numeric(sign, None)) is not None and value == int(value):
        _add(words, cardinal(int(value)), place, place + 1)


def _heard_pause(heard: str, place: int) -> str:
    sign, before, after = heard[place], heard[place - 1 : place], heard[place + 1 : place + 2]
    if sign == "." and "." in (before, after):
        # Periods in a row are an ellipsis.
        return ","
    if sign == "." and _INITIAL.search(heard, 0, place + 1) and not _SENTENCE_FOLLOWS.match(heard, place + 1):
        return ""
    if sign == "-":
        # As a dash: doubled, or alone between spaces.
        return "," if "-" in (before, after) or (before, after) == (" ", " ") else ""
    if sign in "()[]":
        # A bracket that is part of a word, as in f(x), is not heard.
        opened = place if sign in "([" else heard.rfind("(" if sign == ")" else "[", 0, place)
        return "" if opened > 0 and heard[opened - 1].isalnum() else ","
    return _PAUSES[sign]


def _latin(word: str) -> str:
    """The word in letters that the lexicon or the letter-to-sound model knows."""
    word = word.replace("’", "'")
    if word.isascii():
        return word
    composed = unicodedata.normalize("NFC", word)
    if all(unicodedata.name(c, "").startswith("LATIN") or c == "'" for c in composed):
        return composed
    if len(word) == 1 and "GREEK" in unicodedata.name(word, ""):
        return unicodedata.name(word).rpartition(" ")[2].lower()
    return " ".join(re.findall(r"[A-Za-z']+", anyascii(word))).lower()


def _add(words: list[SpokenWord], said: str, start: int, end: int) -> None:
    for word in said.split():
        text = word.rstrip(",")
        words.append(SpokenWord(text, start, end, "," if text != word else ""))


def _pause(words: list[SpokenWord], mark: str) -> None:
    """Puts `mark` after the last word, unless a stronger one is there."""
    if words and _STRENGTH.index(mark) > _STRENGTH.index(words[-1].pause):
        words[-1] = replace(words[-1], pause=mark)
