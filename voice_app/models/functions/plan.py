"""The rule that decides which function, if any, answers a question."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from voice_app.models.functions.arithmetic import read_sum, spoken_sum
from voice_app.models.functions.dates import spoken_date
from voice_app.models.functions.question import bare, normalise
from voice_app.models.functions.recall import facts, spoken_greeting, spoken_recall
from voice_app.models.functions.sight import spoken_sight
from voice_app.models.functions.units import spoken_conversion


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """A function's answer. `name`: which one; `spoken`: the whole sentence to say."""

    name: str
    spoken: str


def plan(question: str, now: datetime, earlier: Sequence[str] = (), seen: str = "") -> FunctionResult | None:
    """The answer of the function that `question` asks for; None if it asks for none.

    `question` as a recogniser wrote it; `now` is the user's time; `earlier` is what the user said in the
    turns before, oldest first; `seen` what the camera shows, as in `sight`."""
    asked = bare(normalise(question))
    answers = (
        ("recall", lambda: spoken_greeting(question) or spoken_recall(asked, facts(earlier))),
        ("camera", lambda: spoken_sight(asked, seen)),
        ("current_time", lambda: spoken_date(asked, now)),
        ("convert_units", lambda: spoken_conversion(asked)),
        ("calculate", lambda: spoken_sum(asked, _last_result(earlier))),
    )
    for name, answer in answers:
        if spoken := answer():
            return FunctionResult(name, spoken)
    return None


def _last_result(earlier: Sequence[str]) -> Fraction | None:
    """The value of the sum that the turn before asked for, itself perhaps going on from one before it."""
    if not earlier:
        return None
    try:
        found = read_sum(bare(normalise(earlier[-1])), _last_result(earlier[:-1][-4:]))
    except ZeroDivisionError:
        return None
    return found.value if found else None
