"""Straight lines through long runs: against numpy's own fit, and against noise whose correlation is known."""

import numpy as np
import pytest
from scipy import stats

from load.drift import ALPHA, LEAST_POINTS, Drift, by_window, drift, fit, noise

TIMES = np.arange(60) * 27.0
RUNS = 1000


def drifts(values: np.ndarray, alpha: float = ALPHA) -> list[Drift]:
    """Of each row, one point every 27 s."""
    found = [drift(TIMES[: values.shape[1]], row, alpha) for row in values]
    return [line for line in found if line is not None]


def wandering(rho: float, points: int = 60, seed: int = 5) -> np.ndarray:
    """[`RUNS`, points]: noise of which neighbours have the correlation `rho`; its standard deviation is 1,
    that of its steps for a random walk (`rho` 1)."""
    steps = np.random.default_rng(seed).standard_normal((RUNS, points))
    return noise(rho, steps) * (np.sqrt(1 - rho**2) if rho < 1 else 1.0)


def test_the_line_is_that_of_a_linear_regression():
    dice = np.random.default_rng(3)
    values = 200 + 0.01 * TIMES + dice.normal(0, 5, 60)
    found = drift(TIMES, values)
    assert found is not None
    slope, intercept = np.polyfit(TIMES, values, 1)
    assert found.slope == pytest.approx(slope)
    assert found.change == pytest.approx(slope * 59 * 27)
    assert found.level == pytest.approx(values.mean()) == intercept + slope * TIMES.mean()
    rest = values - intercept - slope * TIMES
    assert found.scatter == pytest.approx(np.sqrt(np.square(rest).sum() / 58))
    # The textbook's margin, and more: it admits some correlation that noise without any may have had.
    error = found.scatter / np.sqrt(np.square(TIMES - TIMES.mean()).sum())
    assert found.margin >= error * stats.t.ppf(0.975, 58)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_noise_has_the_correlation_and_the_variance_that_it_should(rho):
    made = wandering(rho, points=200)
    assert np.var(made[:, 0]) == pytest.approx(1, rel=0.15)
    assert np.var(made) == pytest.approx(1, rel=0.05)
    assert (made[:, 1:] * made[:, :-1]).mean() == pytest.approx(rho, abs=0.02)


@pytest.mark.parametrize("points", [LEAST_POINTS, 30, 60])
@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6, 0.8, 0.9])
def test_noise_is_called_a_drift_in_one_run_of_twenty_at_most(rho, points):
    assert np.mean([not line.within_noise for line in drifts(wandering(rho, points))]) <= ALPHA


@pytest.mark.parametrize("points", [30, 60])
def test_a_random_walk_is_said_to_grow_in_one_run_of_twenty_at_most(points):
    """As memory that is taken and given back at random."""
    assert np.mean([line.verdict == "grows" for line in drifts(wandering(1.0, points))]) <= ALPHA


def test_noise_of_other_kinds_is_none_either():
    dice = np.random.default_rng(8)
    skewed = noise(0.5, np.exp(dice.standard_normal((RUNS, 60))))
    moving = np.lib.stride_tricks.sliding_window_view(dice.standard_normal((RUNS, 63)), 4, axis=1).mean(
        axis=2
    )
    for values in (skewed, moving):
        assert np.mean([not line.within_noise for line in drifts(values)]) <= ALPHA


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.9])
def test_six_figures_of_a_run_together_alarm_in_one_run_of_twenty_at_most(rho):
    alarms = [not line.within_noise for line in drifts(wandering(rho), ALPHA / 6)]
    runs = np.reshape(alarms[: RUNS // 6 * 6], (-1, 6))
    assert np.mean(runs.any(axis=1)) <= ALPHA


@pytest.mark.parametrize(("rho", "change"), [(0.0, 2.0), (0.3, 3.0), (0.6, 10.0)])
def test_a_true_drift_is_detected(rho, change):
    """`change` over the run, in standard deviations of its noise."""
    rising = wandering(rho) + change * TIMES / TIMES[-1]
    assert np.mean([line.verdict == "grows" for line in drifts(rising)]) >= 0.9
    assert np.mean([line.verdict == "shrinks" for line in drifts(-rising)]) >= 0.9


@pytest.mark.parametrize(("rho", "change"), [(0.0, 3.5), (0.3, 6.0), (0.6, 18.0), (0.9, 18.0), (1.0, 45.0)])
def test_the_smallest_leak_that_a_soak_of_six_figures_finds(rho, change):
    """In nine runs of ten, as docs/performance.md says it. `change`: as above, of a random walk in steps."""
    leaking = wandering(rho) + change * TIMES / TIMES[-1]
    assert np.mean([line.verdict == "grows" for line in drifts(leaking, ALPHA / 6)]) >= 0.9


def test_memory_that_grows_from_point_to_point_is_detected_in_a_random_walk():
    leaking = wandering(1.0) + np.arange(60)
    assert np.mean([line.verdict == "grows" for line in drifts(leaking, ALPHA / 6)]) >= 0.9


def test_the_interval_holds_the_true_slope():
    slope = 5.0 / TIMES[-1]
    for rho in (0.0, 0.7):
        lines = drifts(wandering(rho) + slope * TIMES)
        assert np.mean([abs(line.slope - slope) <= line.margin for line in lines]) >= 1 - ALPHA


def test_one_step_is_no_drift():
    """Memory that was taken once, in the middle of the run."""
    taken = np.repeat([0.0, 3.0], 30)
    found = drift(TIMES, 500 + taken + np.random.default_rng(0).normal(0, 0.01, 60))
    assert found is not None
    assert found.within_noise


def test_what_never_changes_does_not_drift_and_a_bare_line_does():
    still, bare = drift(TIMES, np.full(60, 500.0)), drift(TIMES, 500 + 0.01 * TIMES)
    assert still is not None
    assert bare is not None
    assert (still.verdict, bare.verdict) == ("within noise", "grows")


def test_missing_points_are_left_out_and_too_few_say_nothing():
    values = np.arange(12.0)
    values[3] = np.nan
    found = drift(TIMES[:12], values)
    assert found is not None
    assert found.slope == pytest.approx(1 / 27)
    assert drift(TIMES[: LEAST_POINTS - 1], np.ones(LEAST_POINTS - 1)) is None
    assert drift(np.zeros(20), np.ones(20)) is None


def test_lines_of_many_runs_are_those_of_each():
    made = wandering(0.5, points=20)[:3]
    together = fit(TIMES[:20], made)
    for row, slope, level in zip(made, together.slope, together.level, strict=True):
        assert np.polyfit(TIMES[:20], row, 1)[0] == pytest.approx(slope)
        assert row.mean() == pytest.approx(level)


def test_values_fall_into_their_windows():
    found = by_window([0.0, 9.9, 10.0, 29.9, 30.0, -1.0], [1, 2, 3, 4, 5, 6], 3, 0.0, 30.0)
    assert found == [(5.0, [1, 2]), (15.0, [3]), (25.0, [4])]
