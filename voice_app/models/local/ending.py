"""When a spoken answer is long enough: after a sentence, not in the middle of "Dr. Smith" or "3.5"."""

import re

SENTENCES = 2
"""Sentences of an answer."""

_END = re.compile(
    r"(?<!\b[A-Z])(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\bvs)(?<!\betc)(?<!\be\.g)(?<!\bi\.e)"
    r"[.!?]+[\"'”’)]*(?=\s|$)"
)
_MAYBE_DECIMAL = re.compile(r"\d\.$")


def said_enough(text: str) -> bool:
    """Whether `text` ends with the last sentence that an answer should have. A digit and a point at the end
    may go on as a decimal, so they wait for what follows."""
    ends = list(_END.finditer(text))
    if len(ends) < SENTENCES or _MAYBE_DECIMAL.search(text):
        return False
    return ends[-1].end() == len(text.rstrip())
