"""When a loudspeaker runs dry."""

import pytest

from load.listener import JITTER_S, Listener


def test_sound_that_comes_in_time_never_runs_dry():
    listener = Listener()
    for number in range(10):
        listener.hear(0.1, 5.0 + number * 0.1)
    assert listener.underruns == []
    assert listener.sound_s == pytest.approx(1.0)
    assert listener.dry_at() == pytest.approx(6.0)


def test_an_underrun_begins_when_the_last_sound_was_played_and_lasts_until_the_next_comes():
    listener = Listener()
    listener.hear(0.2, 10.0)
    listener.hear(0.1, 10.1)  # 0.2 s in hand: dry at 10.3
    listener.hear(0.5, 10.55)
    (underrun,) = listener.underruns
    assert (underrun.at, underrun.seconds) == (pytest.approx(10.3), pytest.approx(0.25))


def test_what_comes_after_an_underrun_is_played_at_once():
    listener = Listener()
    listener.hear(0.1, 0.0)
    listener.hear(0.1, 1.0)
    listener.hear(0.1, 1.3)
    assert [round(u.at, 6) for u in listener.underruns] == [0.1, 1.1]
    assert [round(u.seconds, 6) for u in listener.underruns] == [0.9, 0.2]


def test_the_wait_for_the_first_sound_is_no_underrun():
    listener = Listener()
    listener.hear(0.1, 100.0)
    assert listener.underruns == []


def test_a_gap_within_a_sound_cards_buffer_does_not_count():
    listener = Listener()
    listener.hear(0.1, 0.0)
    listener.hear(0.1, 0.1 + JITTER_S / 2)
    assert listener.underruns == []


@pytest.mark.parametrize(("flushed_at", "silent_at"), [(0.5, 0.5), (7.0, 1.0)])
def test_silence_begins_when_the_buffer_is_thrown_away_or_was_empty_before(flushed_at, silent_at):
    listener = Listener()
    listener.hear(1.0, 0.0)
    assert listener.plays(0.25)
    assert listener.silence(flushed_at) == pytest.approx(silent_at)
    assert not listener.plays(flushed_at)
    assert listener.sound_s == pytest.approx(silent_at)
