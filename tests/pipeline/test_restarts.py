"""When a worker that ended is started again."""

from itertools import pairwise

from voice_app.pipeline.restarts import (
    FAILING_BACKOFF_S,
    FIRST_BACKOFF_S,
    MAX_BACKOFF_S,
    MAX_LOAD_FAILURES,
    STEADY_S,
    Restarts,
)


def test_who_dies_at_work_again_and_again_waits_longer_up_to_a_bound_for_ever() -> None:
    restarts = Restarts()
    waits = [restarts.ended(STEADY_S / 2) for _ in range(5000)]
    assert waits[0] == FIRST_BACKOFF_S
    assert all(now == min(MAX_BACKOFF_S, 2 * before) for before, now in pairwise(waits))
    assert not restarts.failing
    assert restarts.ended(STEADY_S) == FIRST_BACKOFF_S, "it was well for a while"


def test_starts_that_fail_are_said_to_and_go_on_less_often() -> None:
    restarts = Restarts()
    failing = []
    waits = []
    for _ in range(5000):
        waits.append(restarts.ended(0.0))
        failing.append(restarts.failing)
    assert failing[:MAX_LOAD_FAILURES] == [False] * (MAX_LOAD_FAILURES - 1) + [True]
    assert all(failing[MAX_LOAD_FAILURES:])
    assert waits[0] == FIRST_BACKOFF_S
    assert max(waits) == waits[-1] == FAILING_BACKOFF_S
    restarts.ended(STEADY_S / 2)
    assert not restarts.failing
    assert restarts.failures == 0


def test_who_says_that_it_cannot_start_is_asked_again_after_a_while() -> None:
    restarts = Restarts()
    assert restarts.ended(0.0, refused=True) == FAILING_BACKOFF_S
    assert restarts.failing
    assert restarts.ended(0.0) < FAILING_BACKOFF_S
    assert not restarts.failing, "that was one failure, of another kind"
