"""From a map of text probability to the lines of text in it: connected regions and the boxes around them."""

import math
from dataclasses import dataclass

import numpy as np

_LEAST_SIDE = 3.0
"""A region thinner than this, in pixels of the map, is no text."""
_SLANTED = 2.5
"""A region this many times longer than high has a direction of its own; a shorter one is taken as level."""


@dataclass(frozen=True, slots=True)
class TextBox:
    """A rectangle around a line of text: its centre, its `width` along the reading direction and its
    `height`, in pixels, and the `angle` of the reading direction in radians, clockwise from level."""

    x: float
    y: float
    width: float
    height: float
    angle: float


def text_boxes(probability: np.ndarray, threshold: float, sure: float, grow: float) -> list[TextBox]:
    """The lines of text in `probability` [rows, columns], largest first.

    A pixel is text from `threshold` on; a region counts if its mean is at least `sure`; its box is widened
    on each side by area · `grow` / perimeter, because the map shows only the core of a line."""
    labels, count = regions(probability > threshold)
    rows, columns = np.nonzero(labels)
    order = np.argsort(labels[rows, columns], kind="stable")
    sizes = np.bincount(labels[rows, columns], minlength=count + 1)[1:]
    boxes = []
    for part in np.split(order, np.cumsum(sizes)[:-1]) if count else []:
        y, x = rows[part], columns[part]
        if float(probability[y, x].mean()) >= sure:
            box = _box(x.astype(float), y.astype(float), grow)
            if box is not None:
                boxes.append(box)
    return sorted(boxes, key=lambda box: -box.width * box.height)


def _box(x: np.ndarray, y: np.ndarray, grow: float) -> TextBox | None:
    angle = _direction(x, y)
    cosine, sine = math.cos(angle), math.sin(angle)
    along, across = x * cosine + y * sine, y * cosine - x * sine
    width, height = float(np.ptp(along)) + 1, float(np.ptp(across)) + 1
    if min(width, height) < _LEAST_SIDE:
        return None
    margin = width * height * grow / (2 * (width + height))
    u = float(along.max() + along.min() + 1) / 2
    v = float(across.max() + across.min() + 1) / 2
    return TextBox(
        u * cosine - v * sine, u * sine + v * cosine, width + 2 * margin, height + 2 * margin, angle
    )


def _direction(x: np.ndarray, y: np.ndarray) -> float:
    """The long axis of the points, in (-45°, 45°]; level for a short region."""
    if len(x) < 2:
        return 0.0
    values, vectors = np.linalg.eigh(np.cov(x, y))
    dx, dy = vectors[:, 1]
    angle = math.atan2(dy, dx) if dx >= 0 else math.atan2(-dy, -dx)
    slanted = values[1] > _SLANTED**2 * max(values[0], 1e-9) and abs(angle) <= math.pi / 4
    return angle if slanted else 0.0


def regions(mask: np.ndarray) -> tuple[np.ndarray, int]:
    """Label the 8-connected regions of `mask` [rows, columns]: int32 of its shape, 0 for none, 1 … count."""
    # Runs of each row, joined with the runs of the row above that they touch.
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    parents = list(range(len(rows)))

    def root(run: int) -> int:
        while parents[run] != run:
            parents[run] = parents[parents[run]]
            run = parents[run]
        return run

    firsts = np.searchsorted(rows, np.arange(mask.shape[0] + 1)).tolist()
    begin, end = starts.tolist(), ends.tolist()
    for row in range(1, mask.shape[0]):
        above, last_above = firsts[row - 1], firsts[row]
        for run in range(firsts[row], firsts[row + 1]):
            while above < last_above and end[above] < begin[run]:
                above += 1
            touching = above
            while touching < last_above and begin[touching] <= end[run]:
                parents[root(touching)] = root(run)
                touching += 1
    roots = np.array([root(run) for run in range(len(parents))], np.int64)
    found, numbers = np.unique(roots, return_inverse=True)
    labels = np.zeros(mask.shape, np.int32)
    labels[mask] = np.repeat(numbers + 1, ends - starts)
    return labels, len(found)
