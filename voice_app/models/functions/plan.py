"""The rule that decides which function, if any, answers a question."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from voice_app.models.functions.arithmetic import read_sum, spoken_sum
from voice_app.models.functions.dates import spoken_date
from voice_app.models.functions.expression import TooLong
from voice_app.models.functions.question import bare, normalise
from voice_app.models.functions.recall import facts, spoken_greeting, spoken_recall
from voice_app.models.functions.sight import spoken_sight
from voice_app.models.functions.small_talk import spoken_phrase
from voice_app.models.functions.units import spoken_conversion


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """A function's answer. `name`: which one; `spoken`: the whole sentence to say."""

    name: str
    spoken: str


ALL = ("recall", "small_talk", "camera", "date_and_time", "convert_units", "calculate")
EXACT = ("date_and_time", "convert_units", "calculate")
"""Those that any language model is better off with."""


def plan(
    question: str,
    now: datetime,
    earlier: Sequence[str] = (),
    seen: str = "",
    allowed: Sequence[str] = ALL,
) -> FunctionResult | None:
    """The answer of the function that `question` asks for; None if it asks for none.

    `question` as a recogniser wrote it; `now` is the user's time; `earlier` is what the user said in the
    turns before, oldest first; `seen` what the camera shows, as in `sight`; `allowed` names
    the functions to consider."""
    words = normalise(question)
    asked = bare(words)
    answers = {
        "recall": lambda: spoken_greeting(question) or spoken_recall(asked, facts(earlier)),
        "small_talk": lambda: spoken_phrase(words) or spoken_phrase(asked),
        "camera": lambda: spoken_sight(asked, seen),
        "date_and_time": lambda: spoken_date(asked, now),
        "convert_units": lambda: spoken_conversion(asked),
        "calculate": lambda: spoken_sum(asked, _last_result(earlier)),
    }
    for name in ALL:
        if name in allowed and (spoken := answers[name]()):
            return FunctionResult(name, spoken)
    return None


def _last_result(earlier: Sequence[str]) -> Fraction | None:
    """The value of the sum that the turn before asked for, itself perhaps going on from one before it."""
    if not earlier:
        return None
    try:
        found = read_sum(bare(normalise(earlier[-1])), _last_result(earlier[:-1][-4:]))
    except (ZeroDivisionError, TooLong):
        return None
    return found.value if found else None
