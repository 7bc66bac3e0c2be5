"""The client's loudspeaker, as far as it can be known: a clock that runs while there is audio to play.

Audio starts to play when it is sent and runs in real time; when all that was sent has been played, the
clock stands until more comes. All times are in seconds.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class PlaybackClock:
    """How much of one reply was sent (`sent_s`) and, at a moment, heard."""

    sent_s: float = 0.0
    _played_s: float = 0.0
    _since: float = 0.0

    def heard_s(self, now: float) -> float:
        """Seconds of the reply that the user has heard by `now`."""
        return min(self.sent_s, self._played_s + max(0.0, now - self._since))

    def ahead_s(self, now: float) -> float:
        """Seconds that are sent and not heard yet."""
        return self.sent_s - self.heard_s(now)

    def starved_s(self, now: float) -> float:
        """For how long there has been nothing to play, after something was."""
        return max(0.0, now - self.ends_at()) if self.sent_s else 0.0

    def ends_at(self) -> float:
        """When the last of what was sent will have been heard."""
        return self._since + self.sent_s - self._played_s

    def sent(self, seconds: float, now: float) -> None:
        """`seconds` more were sent."""
        heard = self.heard_s(now)
        if heard >= self.sent_s:
            self._played_s, self._since = heard, now
        self.sent_s += seconds

    def stop(self, now: float) -> float:
        """The client stopped playing: what was heard stays; gives it."""
        self.sent_s = self.heard_s(now)
        return self.sent_s
