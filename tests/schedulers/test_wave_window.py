"""The window policy: early, growing, never dry by its own fault."""

import pytest

from voice_app.schedulers.base import WaveSpec
from voice_app.schedulers.wave_window import LOW_LEAD_S, PlaybackLead, next_window, target_window

SPEC = WaveSpec(24000, 1920, 10, 0, 16, 2048, first_window=1, max_window=16)
LONG, SHORT = 10.0, LOW_LEAD_S / 2


@pytest.mark.parametrize(("previous", "target"), [(0, 1), (1, 2), (2, 4), (8, 16), (9, 16), (16, 16)])
def test_targets_double_up_to_the_largest(previous: int, target: int) -> None:
    assert target_window(SPEC, previous) == target


@pytest.mark.parametrize(
    ("previous", "ready", "closed", "lead", "new"),
    [
        (0, 0, False, 0.0, 0),
        (0, 1, False, 0.0, 1),
        (0, 40, False, 0.0, 1),  # The first window is small, whatever is there.
        (0, 40, True, 0.0, 1),
        (4, 8, False, LONG, 8),
        (4, 7, False, LONG, 0),  # It may fill.
        (4, 7, False, SHORT, 7),  # No time to fill.
        (4, 0, False, SHORT, 0),
        (4, 3, True, LONG, 3),  # Nothing is to come.
        (4, 40, False, LONG, 16),
        (4, 40, True, LONG, 16),
    ],
)
def test_what_is_taken(previous: int, ready: int, closed: bool, lead: float, new: int) -> None:
    assert next_window(SPEC, previous, ready, closed, lead) == new


def test_a_first_window_waits_until_it_is_full() -> None:
    four = WaveSpec(24000, 1920, 10, 0, 16, 2048, first_window=4, max_window=16)
    assert next_window(four, 0, 3, False, 0.0) == 0
    assert next_window(four, 0, 3, True, 0.0) == 3
    assert next_window(four, 0, 4, False, 0.0) == 4


def test_lead_runs_down_and_starts_over_after_a_gap() -> None:
    lead = PlaybackLead()
    assert lead.seconds(5.0) == 0
    lead.sent(0.5, now=0.0)
    lead.sent(1.0, now=0.25)
    assert lead.seconds(0.25) == pytest.approx(1.25)
    assert lead.seconds(9.0) == 0
    lead.sent(0.5, now=9.0)
    assert lead.seconds(9.1) == pytest.approx(0.4)


@pytest.mark.parametrize("frame_s", [0.005, 0.02, 0.04, 0.07])
def test_playback_never_runs_dry_while_frames_come_faster_than_they_are_played(frame_s: float) -> None:
    """A frame is 80 ms of sound and is made in `frame_s`; a decoder call takes 10 ms whatever its size."""
    lead = PlaybackLead()
    call_s, now, made, used, previous = 0.010, 0.0, 0, 0, 0
    windows: list[int] = []
    while used < 300:
        made = min(300, int(now / frame_s))
        new = next_window(SPEC, previous, made - used, made == 300, lead.seconds(now))
        if not new:
            now += 0.001
            continue
        now += call_s
        assert previous == 0 or lead.seconds(now) > 0, f"dry at {now:.3f} s, frame {used}"
        lead.sent(new * 0.08, now)
        used += new
        previous = max(previous, new)
        windows.append(new)
    assert windows[0] == 1
    assert now < 300 * max(frame_s, 0.08) + 1
    if frame_s <= 0.04:
        assert max(windows) == 16
