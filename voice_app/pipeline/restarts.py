"""When a worker that ended is started again. Pure."""

from dataclasses import dataclass

MAX_LOAD_FAILURES = 3
"""Starts in a row that end before the worker is ready, until it is said to fail."""
FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 5.0
"""Between deaths at work."""
FAILING_BACKOFF_S = 30.0
"""Between starts that fail: loading takes from the machine what the workers that are well need."""
STEADY_S = 10.0
"""After so long at work the back-off begins anew."""
_MOST_DOUBLINGS = 16


@dataclass(slots=True)
class Restarts:
    """One worker's deaths. It is started again for ever: what keeps it from loading (a host that is away, a
    file, a port) may come right at any time."""

    _deaths: int = 0
    failures: int = 0
    """Starts in a row after which it never was ready."""
    _refused: bool = False

    @property
    def failing(self) -> bool:
        """Whether the next start is not likely to help."""
        return self._refused or self.failures >= MAX_LOAD_FAILURES

    def ended(self, lived_s: float, *, refused: bool = False) -> float:
        """It ended after it was ready for so long (0: it never was; `refused`: it said why it cannot start).
        Returns after how many seconds to start it again."""
        self._deaths = 1 if lived_s >= STEADY_S else self._deaths + 1
        self.failures = 0 if lived_s else self.failures + 1
        self._refused = refused
        if refused:
            return FAILING_BACKOFF_S
        longest_s = FAILING_BACKOFF_S if self.failing else MAX_BACKOFF_S
        return min(longest_s, FIRST_BACKOFF_S * 2 ** min(self._deaths - 1, _MOST_DOUBLINGS))
