"""Window policy of code2wav: how many new frames the next decoder call of a turn takes. Pure.

The first window is small, so that sound starts early. Each window may then be twice the one before,
up to the largest: it is made while the sound of the one before is played. Waiting for a window to fill
is only allowed while what has been sent outlasts the wait.
"""

from dataclasses import dataclass

from voice_app.schedulers.base import WaveSpec

LOW_LEAD_S = 0.25
"""Below this much unplayed sound a turn decodes whatever is ready: room for one decoder call of a full
batch and the way to the ear."""


def target_window(spec: WaveSpec, previous: int) -> int:
    """New frames that the next window would like to have. `previous`: the window before, 0 at first."""
    return min(spec.max_window, 2 * previous) if previous else min(spec.max_window, spec.first_window)


def next_window(spec: WaveSpec, previous: int, ready: int, closed: bool, lead_s: float) -> int:
    """New frames to decode now; 0: wait for more.

    `ready`: frames of the segment not decoded yet whose right context is there. `closed`: no frame
    is to follow in it. `lead_s`: sound sent and not played yet, in seconds."""
    target = target_window(spec, previous)
    if ready >= target or closed:
        # What piled up goes in one call; only a turn's first window stays small whatever is there.
        return min(ready, spec.max_window if previous else target)
    return ready if previous and lead_s <= LOW_LEAD_S else 0


@dataclass(slots=True)
class PlaybackLead:
    """How much of a turn's sound is still unplayed, if it is played as it comes."""

    _empty_at: float | None = None
    """When the sound sent so far will have been played."""

    def sent(self, seconds: float, now: float) -> None:
        """`seconds` of sound went out at `now`."""
        self._empty_at = now + self.seconds(now) + seconds

    def seconds(self, now: float) -> float:
        """Unplayed sound at `now`; 0 before the first and after a gap."""
        return 0.0 if self._empty_at is None else max(0.0, self._empty_at - now)
