"""What the audio encoder needs of a recogniser, and what all of them share."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

SAMPLE_RATE = 16_000
"""What every recogniser hears, in Hz."""

_MAX_PERIOD = 12
_REPEATS = 4


@dataclass(frozen=True, slots=True)
class Heard:
    """What a recogniser made of a stretch of sound.

    `score`: mean log-probability per token, ≤ 0. `looped`: decoding fell into a loop and was cut. `ids`: the
    recogniser's own tokens, where it takes them as a draft."""

    text: str
    score: float
    looped: bool = False
    ids: tuple[int, ...] = ()


Hearing = Generator[None, None, Heard]
"""Each step is a call of a model or some; what was said comes with the last."""


def finish(hearing: Hearing) -> Heard:
    """All steps that are left."""
    while True:
        try:
            next(hearing)
        except StopIteration as over:
            return over.value


class Recogniser(Protocol):
    """Speech → words."""

    @property
    def identity(self) -> str:
        """Changes whenever the same samples could give other words."""
        ...

    @property
    def max_seconds(self) -> float:
        """Longest stretch it takes well; longer sound is cut at pauses."""
        ...

    def hear(self, samples: np.ndarray) -> Heard:
        """[n] float32 at 16 kHz, n ≤ max_seconds · 16000 → what was said."""
        ...

    def hearing(self, samples: np.ndarray, draft: Sequence[int] = ()) -> Hearing:
        """`hear` in steps, between which the caller may turn to something else. `draft`: the `ids` of what
        `samples` may begin with; but for rounding nothing else is heard for it, perhaps sooner."""
        ...


def loop_start(ids: list[int]) -> int | None:
    """Where `ids` end in one period repeated four times (a decoder that fell into a loop): the index after
    the period's first round. None: no loop. A short word said thrice ("no, no, no") is none."""
    for period in range(1, _MAX_PERIOD + 1):
        span = period * _REPEATS
        if len(ids) < span:
            return None
        if ids[-span:-period] == ids[-span + period :]:
            return len(ids) - span + period
    return None
