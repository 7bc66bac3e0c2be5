"""How likely a question is, gathered in any chunks and over a prefix cache. No models."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_app.models.local.understanding import FEWEST, UNLIKELY, Likelihood, Remembered

VOCAB = 50


def logits_after(ids: list[int], position: int) -> np.ndarray:
    """What a made-up model gives after `ids[: position + 1]`: a function of all of them."""
    return np.random.default_rng([position, *ids[: position + 1]]).normal(0, 3, VOCAB).astype(np.float32)


def prefill(question: Likelihood, ids: list[int], cuts: list[int]) -> None:
    for start, end in pairwise(cuts):
        rows = question.rows(start, end - start)
        if rows:
            question.add(start, rows, np.stack([logits_after(ids, start + row) for row in rows]))


def mean_of(ids: list[int], positions: range) -> float:
    values = []
    for position in positions:
        given_logits = logits_after(ids, position - 1).astype(np.float64)
        values.append(given_logits[ids[position]] - np.log(np.exp(given_logits).sum()))
    return float(np.mean(values))


ids_of = st.lists(st.integers(0, VOCAB - 1), min_size=12, max_size=12)


@given(ids_of, st.sets(st.integers(1, 11)))
def test_any_chunks_give_the_same_verdict(ids: list[int], cuts: set[int]) -> None:
    question = Likelihood(ids, range(4, 10), Remembered(100))
    prefill(question, ids, [0, *sorted(cuts), 12])
    expected = mean_of(ids, range(4, 10))
    if abs(expected - UNLIKELY) > 1e-4:
        assert question.unlikely == (expected < UNLIKELY)


@given(ids_of, st.integers(0, 11))
def test_what_the_prefix_cache_holds_is_remembered(ids: list[int], cached: int) -> None:
    remembered = Remembered(100)
    first = Likelihood(ids, range(4, 10), remembered)
    prefill(first, ids, [0, 12])
    again = Likelihood(ids, range(4, 10), remembered)
    prefill(again, ids, [cached, 12])
    assert again.unlikely == first.unlikely
    assert again.rows(0, 12) == []


def test_other_words_before_make_it_another_question() -> None:
    remembered = Remembered(100)
    prefill(Likelihood([1] * 12, range(4, 10), remembered), [1] * 12, [0, 12])
    assert Likelihood([2, *[1] * 11], range(4, 10), remembered).rows(0, 12) == [3, 4, 5, 6, 7, 8]


def test_few_words_say_nothing() -> None:
    logits = np.zeros((FEWEST, VOCAB), np.float32)
    logits[:, 0] = 100
    ids = [1] * (FEWEST + 1)
    short, long = (Likelihood(ids, range(1, 1 + count), Remembered(100)) for count in (FEWEST - 1, FEWEST))
    short.add(0, range(FEWEST - 1), logits[: FEWEST - 1])
    long.add(0, range(FEWEST), logits)
    assert not short.unlikely
    assert long.unlikely


@pytest.mark.parametrize("size", [1, 3])
def test_memory_is_bounded(size: int) -> None:
    remembered = Remembered(size)
    for prefix in range(10):
        remembered.put(prefix, 0.0)
    assert [remembered.get(prefix) is not None for prefix in range(10)].count(True) == size
