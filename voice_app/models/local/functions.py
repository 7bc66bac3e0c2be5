"""Built-in functions: what a small model gets wrong and a rule gets right."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """A function's answer. `spoken`: the whole sentence to say."""

    name: str
    spoken: str


def plan(question: str, now: datetime) -> FunctionResult | None:
    """The answer of the function that `question` asks for; None if it asks for none."""
    return None
