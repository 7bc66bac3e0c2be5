"""One rule of how a stretch of written text is read aloud."""

import re
from collections.abc import Callable
from dataclasses import dataclass

Say = Callable[[re.Match[str]], str | None]
"""Gives the words of a stretch (a comma after one is a pause), or None if it is not what it looked like."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A stretch of text that is read in a way of its own. `closes`: a period at its end may also end the
    sentence."""

    pattern: re.Pattern[str]
    say: Say
    closes: bool = False


def rule(pattern: str, say: Say, *, closes: bool = False) -> Rule:
    return Rule(re.compile(pattern), say, closes)


def fixed(pattern: str, words: str) -> Rule:
    """A stretch that is always read the same."""
    return Rule(re.compile(pattern), lambda _: words)
