"""The loudspeaker of one answer, and when it ran dry.

The listener begins to play with the first sound that comes, without a buffer of its own, and never stops of
its own accord. Pure: times are seconds of one monotonic clock.
"""

import msgspec

from voice_app.server.session.playback import PlaybackClock

JITTER_S = 0.005
"""A shorter gap is within the buffer of any sound card."""


class Underrun(msgspec.Struct, frozen=True):
    """At `at` there was nothing left to play, for `seconds`."""

    at: float
    seconds: float


class Listener:
    """`underruns`: those so far, without the end of the answer."""

    def __init__(self) -> None:
        self.underruns: list[Underrun] = []
        self._clock = PlaybackClock()

    def hear(self, seconds: float, now: float) -> None:
        """So much more sound has come."""
        starved = self._clock.starved_s(now)
        if starved > JITTER_S:
            self.underruns.append(Underrun(self._clock.ends_at(), starved))
        self._clock.sent(seconds, now)

    @property
    def sound_s(self) -> float:
        """Seconds of sound that have come."""
        return self._clock.sent_s

    def heard_s(self, now: float) -> float:
        """Seconds of sound that have been played by `now`."""
        return self._clock.heard_s(now)

    def plays(self, now: float) -> bool:
        """Whether something can be heard at `now`."""
        return self._clock.ahead_s(now) > 0

    def dry_at(self) -> float:
        """When the last of what has come is, or was, played to its end. Without any sound: 0."""
        return self._clock.ends_at()

    def silence(self, now: float) -> float:
        """Throw away what is not played yet; gives since when nothing is heard."""
        silent_at = min(now, self.dry_at())
        self._clock.stop(now)
        return silent_at
