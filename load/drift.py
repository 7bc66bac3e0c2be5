"""Does a figure drift over a long run? A straight line through it, with the noise of its slope. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

LEAST_POINTS = 4
ROUNDING = 1e-9
"""Smaller than this share of a figure is not a change but arithmetic."""
_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t, two-sided 95 %, for 1 to 10 degrees of freedom; the table of any textbook."""
_T_95_MANY = ((15, 2.131), (20, 2.086), (30, 2.042), (60, 2.000))


@dataclass(frozen=True, slots=True)
class Drift:
    """`slope`: units a second; `margin`: half of its 95 % interval; `change`: over the whole run; `scatter`:
    standard deviation of the points around the line; `level`: the line in the middle."""

    slope: float
    margin: float
    change: float
    scatter: float
    level: float

    @property
    def within_noise(self) -> bool:
        """The slope may as well be zero. Neighbouring points of a process's memory are alike, so its true
        noise is larger than this one: it rather calls noise a drift than the other way round."""
        return abs(self.slope) <= self.margin or abs(self.change) <= ROUNDING * abs(self.level)


def drift(times: ArrayLike, values: ArrayLike) -> Drift | None:
    """Least squares through (times [n] s, values [n]), NaN left out; None for fewer than `LEAST_POINTS`."""
    t, y = np.asarray(times, float), np.asarray(values, float)
    known = np.isfinite(y)
    t, y = t[known], y[known]
    n = len(t)
    if n < LEAST_POINTS:
        return None
    middle, level = t.mean(), y.mean()
    spread = np.square(t - middle).sum()
    if not spread:
        return None
    slope = float(((t - middle) * (y - level)).sum() / spread)
    rest = y - level - slope * (t - middle)
    scatter = float(np.sqrt(np.square(rest).sum() / (n - 2)))
    margin = students_t(n - 2) * scatter / float(np.sqrt(spread))
    return Drift(slope, margin, slope * float(t.max() - t.min()), scatter, float(level))


def students_t(freedom: int) -> float:
    """The two-sided 95 % quantile, never below the true one."""
    if freedom <= len(_T_95):
        return _T_95[freedom - 1]
    return next((t for least, t in reversed(_T_95_MANY) if freedom >= least), _T_95[-1])


def by_window(
    times: Sequence[float], values: Sequence[float], window_s: float, begin: float, end: float
) -> list[tuple[float, list[float]]]:
    """The values of each whole window of [begin, end): (its middle, what fell into it)."""
    count = int((end - begin) / window_s)
    found: list[tuple[float, list[float]]] = [(begin + (i + 0.5) * window_s, []) for i in range(count)]
    for at, value in zip(times, values, strict=True):
        number = int((at - begin) // window_s)
        if 0 <= number < count:
            found[number][1].append(value)
    return found
