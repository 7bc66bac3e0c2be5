"""Three-axis rope positions of a prompt: time, height, width. Plain numpy.

Text and audio advance all three axes together. A picture holds time still and counts its merged rows
and columns; what follows continues after the largest of them. So a picture of 784 positions moves the
text behind it by only 28.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Run:
    """`count` positions of text or audio, or (`rows` × `columns` = `count`) of a picture."""

    count: int
    rows: int = 0
    columns: int = 0


def rope_positions(runs: Iterable[Run], start: int = 0) -> tuple[np.ndarray, int]:
    """Positions [3, n] int64 of the runs one after another from `start` on, and the position of the next
    token."""
    parts: list[np.ndarray] = []
    at = start
    for run in runs:
        if run.rows:
            part = np.empty((3, run.rows, run.columns), np.int64)
            part[0] = at
            part[1] = at + np.arange(run.rows)[:, None]
            part[2] = at + np.arange(run.columns)
            parts.append(part.reshape(3, -1))
            at += max(run.rows, run.columns)
        else:
            parts.append(np.broadcast_to(at + np.arange(run.count), (3, run.count)))
            at += run.count
    return (np.concatenate(parts, axis=1) if parts else np.empty((3, 0), np.int64)), at
