"""Written English → the words that a person says when reading it aloud, each with its place in the text."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """`text`: letters and apostrophes; a single capital is the letter's name. [start, end): what in the
    written text it stands for (several words may share a place). `pause`: the punctuation heard after it, one
    of , ; : . ? ! or ""."""

    text: str
    start: int
    end: int
    pause: str = ""


def spoken_form(text: str) -> list[SpokenWord]:
    """The words of `text`, in order."""
    found = re.finditer(r"([A-Za-z']+)([,;:.?!]?)", text)
    return [SpokenWord(match[1], match.start(), match.end(), match[2]) for match in found]
