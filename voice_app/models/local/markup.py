"""Markdown, HTML and emoji, made inaudible: what is not to be read out becomes spaces or a pause.

The text keeps its length, so that places in it stay what they are.
"""

import re
import unicodedata
from collections.abc import Callable

_KEPT_SYMBOLS = frozenset("°℃℉№")
"""Symbols of the categories that emoji are in, which are read."""

_EMOTICON = r"(?<![\w:;])(?:[:;][\-o'^]?[)(\]\[DPp/\\|*3]|<3|[xX]D|\^_?\^)(?!\w)"


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _inside(*groups: int) -> Callable[[re.Match[str]], str]:
    """Keeps the named groups and blanks the rest of the match."""

    def keep(match: re.Match[str]) -> str:
        kept = [" "] * len(match[0])
        for group in groups:
            if match[group] is not None:
                start = match.start(group) - match.start()
                kept[start : start + len(match[group])] = match[group]
        return "".join(kept)

    return keep


def _as_pause(match: re.Match[str]) -> str:
    return "," + " " * (len(match[0]) - 1)


def _entity(match: re.Match[str]) -> str:
    sign = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&apos;": "'"}.get(
        match[0], " "
    )
    return sign.ljust(len(match[0]))


_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern, re.MULTILINE), replacement)
    for pattern, replacement in (
        (r"^[ \t]*(?:```|~~~).*?$", _blank),
        (r"&(?:amp|lt|gt|quot|nbsp|apos|#39);", _entity),
        (r"<!--.*?-->|</?[A-Za-z][^<>\n:@]*>", _blank),
        (r"!?\[([^\]\n]*)\]\((?:[^()\n]|\([^()\n]*\))*\)", _inside(1)),
        (r"\[\^?\d+\](?!\()", _blank),
        (r"^[ \t|:\-]*\|[ \t|:\-]*-[ \t|:\-]*$", _blank),
        (r"^[ \t]*(?:[-*_][ \t]*){3,}$", _blank),
        (r"^[ \t]{0,3}#{1,6}(?=\s)", _blank),
        (r"^[ \t]*(?:>[ \t]?)+", _blank),
        (r"^[ \t]*[-*+•‣◦·](?:[ \t]+\[[ xX]\])?(?=\s)", _blank),
        (r"^([ \t]*\d{1,3})[.)](?=\s)", lambda match: match[1] + ","),
        (r"\|+", _as_pause),
        (r"`+", _blank),
        (r"~~", _blank),
        # A star between digits, or alone between spaces, is a times sign.
        (r"(?<![\d\s])\*+|\*+(?![\d\s])|\*{2,}", _blank),
        (r"(?<!\w)_+|_+(?!\w)", _blank),
        (r"\\[()\[\]]", _blank),
        (r"\\(?=[^\w\s])", _blank),
        (_EMOTICON, _blank),
    )
)


def _audible(character: str) -> str:
    if character in _KEPT_SYMBOLS:
        return character
    # So, Sk: pictures and their modifiers; Cf, Co, Cn, Cs: joiners, private and unassigned ones.
    if (
        unicodedata.category(character) in ("So", "Sk", "Cf", "Co", "Cn", "Cs", "Cc")
        and character not in "\n\t^`"
    ):
        return " "
    return " " if character in "\ufe0e\ufe0f\u20e3" else character


def without_markup(text: str) -> str:
    """`text` with markup and pictures blanked out; as long as `text`."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return "".join(map(_audible, text))
