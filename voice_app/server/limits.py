"""Token buckets: so much a second, with a short burst."""

from dataclasses import dataclass


@dataclass(slots=True)
class Bucket:
    """Fills with `rate` a second up to `burst`; starts full. Time is passed in."""

    rate: float
    burst: float
    _level: float = -1.0
    _since: float = 0.0

    def take(self, amount: float, now: float) -> bool:
        """Whether there is so much; then it is taken."""
        if self._level < 0:
            self._level, self._since = self.burst, now
        self._level = min(self.burst, self._level + (now - self._since) * self.rate)
        self._since = now
        if amount > self._level:
            return False
        self._level -= amount
        return True

    @property
    def left(self) -> int:
        """Whole units that may be taken now, as of the last call."""
        return int(self._level)
