"""Which number of talks holds: the rule for one number, and the search for the largest. Pure.

A number is tried for a while (a `Step`), perhaps more than once. It holds if nobody's loudspeaker ran dry,
the 95th percentile of end of speech → first audio is within the limit, and every turn was answered.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from voice_app.bench.report import percentile


@dataclass(frozen=True, slots=True)
class Limits:
    """`turns`: so many are needed before a number can be the answer."""

    first_audio_s: float = 1.0
    turns: int = 40


@dataclass(frozen=True, slots=True)
class Step:
    """One try of a number of talks. `first_audio_s`: of each turn; `overdue`: questions that had waited for
    longer than the limit when the try ended; `faults`: turns that failed, and errors outside of turns;
    `client`: why the callers themselves were the bottleneck."""

    sessions: int
    first_audio_s: Sequence[float]
    underruns: int = 0
    overdue: int = 0
    faults: int = 0
    client: str | None = None

    def why_not(self, limits: Limits) -> list[str]:
        """What speaks against this number; empty: it holds."""
        against: list[str] = []
        if self.underruns:
            against.append(f"{self.underruns} underruns")
        p95 = percentile(self.first_audio_s, 95)
        if p95 > limits.first_audio_s:
            against.append(f"p95 of first audio {p95:.2f} s")
        if self.overdue:
            against.append(f"{self.overdue} answers overdue")
        if self.faults:
            against.append(f"{self.faults} turns or talks failed")
        if not self.first_audio_s:
            against.append("no turn was answered")
        if self.client:
            against.append(self.client)
        return against


@dataclass(slots=True)
class Search:
    """Doubles from `start` until a number does not hold, then halves what is left between; the answer must
    have been tried for enough turns, and falls if it does not hold in all of its tries."""

    start: int = 2
    most: int = 64
    limits: Limits = field(default_factory=Limits)
    steps: list[Step] = field(default_factory=list)

    def next(self) -> int | None:
        """The number to try; None: the answer is found."""
        best, worst = self.best, self._worst
        if worst is None:
            if best < self.most:
                return min(self.most, best * 2) if best else self.start
        elif worst - best > self._grain(worst):
            return (best + worst) // 2
        return None if not best or self.confirmed else best

    @property
    def best(self) -> int:
        """The largest number that held, below all that did not; 0: none."""
        worst = self._worst
        tried = [step.sessions for step in self.steps if worst is None or step.sessions < worst]
        return max(tried, default=0)

    @property
    def confirmed(self) -> bool:
        """Whether the best number was tried for enough turns."""
        turns = sum(len(step.first_audio_s) for step in self.steps if step.sessions == self.best)
        return turns >= self.limits.turns

    @property
    def _worst(self) -> int | None:
        """The smallest number that did not hold."""
        return min((step.sessions for step in self.steps if step.why_not(self.limits)), default=None)

    @staticmethod
    def _grain(worst: int) -> int:
        """How fine the answer is: one talk, of many talks a sixteenth."""
        return max(1, worst // 16)
