"""Straight lines through long runs, against numpy's own fit and the tables of Student's t."""

import numpy as np
import pytest
from scipy import stats

from load.drift import LEAST_POINTS, by_window, drift, students_t

TIMES = np.arange(30) * 60.0


def test_slope_and_margin_are_those_of_a_linear_regression():
    dice = np.random.default_rng(3)
    values = 200 + 0.01 * TIMES + dice.normal(0, 5, 30)
    found = drift(TIMES, values)
    assert found is not None
    slope, _, _, _, standard_error = stats.linregress(TIMES, values)
    assert found.slope == pytest.approx(slope)
    assert found.margin == pytest.approx(standard_error * stats.t.ppf(0.975, 28), rel=0.03)
    assert found.change == pytest.approx(found.slope * 29 * 60)
    assert found.level == pytest.approx(values.mean())


@pytest.mark.parametrize("freedom", [*range(1, 12), 14, 15, 19, 20, 29, 30, 59, 60, 500])
def test_the_quantile_is_never_below_the_true_one(freedom):
    true = stats.t.ppf(0.975, freedom)
    assert true - 0.001 <= students_t(freedom) <= true * 1.03 + 0.05


def test_a_leak_is_told_from_noise():
    noise = np.random.default_rng(1).normal(0, 1, 30)
    steady, leaking = drift(TIMES, 500 + noise), drift(TIMES, 500 + 0.01 * TIMES + noise)
    assert steady is not None
    assert leaking is not None
    assert steady.within_noise
    assert not leaking.within_noise


def test_missing_points_are_left_out_and_too_few_say_nothing():
    values = np.array([1.0, np.nan, 3.0, 4.0, 5.0])
    found = drift(TIMES[:5], values)
    assert found is not None
    assert found.slope == pytest.approx(1 / 60)
    assert drift(TIMES[: LEAST_POINTS - 1], np.ones(LEAST_POINTS - 1)) is None
    assert drift(np.zeros(9), np.ones(9)) is None


def test_values_fall_into_their_windows():
    found = by_window([0.0, 9.9, 10.0, 29.9, 30.0, -1.0], [1, 2, 3, 4, 5, 6], 10.0, 0.0, 30.0)
    assert found == [(5.0, [1, 2]), (15.0, [3]), (25.0, [4])]
