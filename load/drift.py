"""Does a figure drift over a long run? A straight line through it, and how steep a line noise alone makes.

Pure. Neighbouring points are alike (a process's memory stays where it was, a busy minute is followed by a
busy one), so the textbook's interval of a slope is far too narrow: it takes such noise for a drift in most
runs. Here the interval comes from simulated noise without any drift, x[i] = ρ · x[i-1] + ε, with the largest
ρ that the points around the line may come from: at ρ = 1, a random walk, only what grows from point to point
is a drift.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

LEAST_POINTS = 10
"""Fewer do not tell a drift from noise."""
ALPHA = 0.05
"""Share of the runs without a drift in which one may be seen, in either direction. Also, how seldom noise of
a larger ρ than the one that is used looks as little correlated as the points do."""
WITHIN_NOISE, GROWS = "within noise", "grows"
ROUNDING = 1e-9
"""Smaller than this share of a figure is not a change but arithmetic."""
RHO = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
SIMULATED = 8000
"""Runs for each ρ."""


@dataclass(frozen=True, slots=True)
class Drift:
    """`slope`: units a second; `margin`: half of the interval that it may lie in; `change`: over the whole
    run; `scatter`: standard deviation of the points around the line; `level`: the line in the middle."""

    slope: float
    margin: float
    change: float
    scatter: float
    level: float

    @property
    def within_noise(self) -> bool:
        """The slope may as well be zero."""
        return abs(self.slope) <= self.margin or abs(self.change) <= ROUNDING * abs(self.level)

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.within_noise:
            return WITHIN_NOISE
        return GROWS if self.slope > 0 else "shrinks"


@dataclass(frozen=True, slots=True)
class Lines:
    """Least squares through each of k runs; [k] each. `correlation`: of neighbours around the line."""

    slope: np.ndarray
    level: np.ndarray
    scatter: np.ndarray
    correlation: np.ndarray


def drift(times: ArrayLike, values: ArrayLike, alpha: float = ALPHA) -> Drift | None:
    """The line through (times [n] s, values [n]), NaN left out, with the interval of 1 - `alpha` for its
    slope; None for fewer than `LEAST_POINTS`. Times are to be about evenly spaced. Where several figures are
    looked at, each is to have its part of the alpha."""
    t, y = np.asarray(times, float), np.asarray(values, float)
    known = np.isfinite(y)
    t, y = t[known], y[known]
    if len(t) < LEAST_POINTS or t.max() == t.min():
        return None
    found = fit(t, y[np.newaxis])
    slope, level, scatter = float(found.slope[0]), float(found.level[0]), float(found.scatter[0])
    margin = scatter * _steepest(tuple(t - t[0]), float(found.correlation[0]), alpha)
    return Drift(slope, margin, slope * float(t.max() - t.min()), scatter, level)


def fit(t: np.ndarray, y: np.ndarray) -> Lines:
    """`t` [n] s, `y` [k, n]."""
    n = len(t)
    centred = t - t.mean()
    level = y.mean(axis=1)
    slope = y @ centred / np.square(centred).sum()
    rest = y - level[:, np.newaxis] - np.outer(slope, centred)
    squares = np.square(rest).sum(axis=1)
    alike = (rest[:, 1:] * rest[:, :-1]).sum(axis=1)
    correlation = np.divide(alike, squares, out=np.zeros_like(squares), where=squares > 0)
    return Lines(slope, level, np.sqrt(squares / (n - 2)), correlation)


def noise(rho: float, steps: np.ndarray) -> np.ndarray:
    """x[i] = ρ · x[i-1] + steps[i] for each of k runs; `steps` [k, n] of one variance. It begins as it goes
    on: with the variance that it keeps, where it keeps one."""
    made = steps.copy()
    if rho < 1:
        made[:, 0] /= np.sqrt(1 - rho**2)
    for i in range(1, steps.shape[1]):
        made[:, i] += rho * made[:, i - 1]
    return made


def _steepest(times: tuple[float, ...], correlation: float, alpha: float) -> float:
    """The slope, by the scatter around it, that a share of `alpha` of the runs without a drift exceed."""
    least, steepest = _simulated(times, alpha)
    return float(np.interp(np.interp(correlation, least, RHO), RHO, steepest))


@lru_cache(maxsize=8)
def _simulated(times: tuple[float, ...], alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """For each ρ [r]: the correlation that a share of `alpha` of the runs stay below, and the |slope| /
    scatter that as many exceed. The same noise each time."""
    t = np.asarray(times)
    steps = np.random.default_rng(1).standard_normal((SIMULATED, len(t)))
    made = [fit(t, noise(rho, steps)) for rho in RHO]
    least = [np.quantile(lines.correlation, alpha) for lines in made]
    steepest = [np.quantile(np.abs(lines.slope) / lines.scatter, 1 - alpha) for lines in made]
    return np.array(least), np.array(steepest)


def by_window(
    times: Sequence[float], values: Sequence[float], count: int, begin: float, end: float
) -> list[tuple[float, list[float]]]:
    """The values of each of `count` windows of [begin, end): (its middle, what fell into it)."""
    size = (end - begin) / count
    found: list[tuple[float, list[float]]] = [(begin + (i + 0.5) * size, []) for i in range(count)]
    for at, value in zip(times, values, strict=True):
        if begin <= at < end:
            found[min(count - 1, int((at - begin) / size))][1].append(value)
    return found
