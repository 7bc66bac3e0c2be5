"""Whether the user's words make sense: how likely the model itself finds them.

A small model answers anything, also what a recogniser misheard or nobody meant. The prompt's own rows tell,
at the cost of the head over the question's positions, how likely each word was after the ones before it.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

UNLIKELY = -5.5
"""Mean log-probability of a question's tokens below which it is not answered. Measured on the packaged brain:
50 plain questions and remarks lay at -4.9 or above, 8 of 12 kinds of nonsense at -5.5 or below."""
FEWEST = 4
"""Fewer tokens than this say nothing."""
SORRY = "Sorry, I didn't understand that. Could you say it again?"


class Remembered:
    """Log-probabilities found before, by what they followed: positions that the prefix cache holds are not
    computed again. `size` is best above the positions that the cache can hold."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._found: OrderedDict[int, float] = OrderedDict()

    def get(self, prefix: int) -> float | None:
        return self._found.get(prefix)

    def put(self, prefix: int, value: float) -> None:
        self._found[prefix] = value
        if len(self._found) > self._size:
            self._found.popitem(last=False)


class Likelihood:
    """Log-probabilities of one question's tokens, gathered while its prompt is prefilled in any chunks."""

    def __init__(self, ids: Sequence[int], positions: Sequence[int], remembered: Remembered) -> None:
        """`ids`: the prompt's; `positions`: those of the question's own words, ascending."""
        self._ids = ids
        self._remembered = remembered
        self._prefixes = _prefixes(ids, positions)
        self._found: dict[int, float] = {}
        for position, prefix in self._prefixes.items():
            if (value := remembered.get(prefix)) is not None:
                self._found[position] = value

    def rows(self, start: int, count: int) -> list[int]:
        """Which rows of a chunk at `start` are wanted: those right before a word that is not known yet."""
        places = range(start + 1, start + count + 1)
        return [p - start - 1 for p in places if p in self._prefixes and p not in self._found]

    def add(self, start: int, rows: Sequence[int], logits: np.ndarray) -> None:
        """Take the logits [len(rows), vocab] of the rows that `rows` named."""
        for row, given in zip(rows, logits, strict=True):
            position = start + row + 1
            best = given.max()
            value = float(given[self._ids[position]] - best - np.log(np.exp(given - best).sum()))
            self._found[position] = value
            self._remembered.put(self._prefixes[position], value)

    @property
    def unlikely(self) -> bool:
        return len(self._found) >= FEWEST and sum(self._found.values()) / len(self._found) < UNLIKELY


def _prefixes(ids: Sequence[int], positions: Sequence[int]) -> dict[int, int]:
    """For each position a number that stands for all ids up to and including it."""
    wanted, found, running = set(positions), {}, 0
    for position in range(positions[-1] + 1 if positions else 0):
        running = hash((running, ids[position]))
        if position in wanted:
            found[position] = running
    return found
