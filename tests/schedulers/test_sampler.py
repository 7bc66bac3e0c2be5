"""The sampler against transformers' own logits processors, and its independence of the batch."""

import itertools

import numpy as np
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from voice_app.messages import Sampling
from voice_app.schedulers.sampler import RequestSampler, Warp, draw, sample, uniforms, warp

torch.set_num_threads(1)
VOCAB = 200


def logits(rows: int, seed: int = 0, vocab: int = VOCAB) -> torch.Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


def reference(sampling: Sampling, row: torch.Tensor, seen: list[int]) -> torch.Tensor:
    """Probabilities [vocab] by transformers' processors in the order that its generate has."""
    steps = LogitsProcessorList()
    if sampling.logit_bias:
        steps.append(SequenceBiasLogitsProcessor([[[token], added] for token, added in sampling.logit_bias]))
    if sampling.repetition_penalty:
        steps.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.temperature:
        steps.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        steps.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p is not None:
        steps.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p is not None:
        steps.append(MinPLogitsWarper(sampling.min_p))
    return steps(torch.tensor([seen]), row[None].clone())[0].softmax(-1)  # type: ignore[arg-type]


def ours(sampling: Sampling, row: torch.Tensor, seen: list[int]) -> torch.Tensor:
    """The same by the sampler: the distribution that it draws from."""
    processed = RequestSampler(sampling, VOCAB, seen).process(row)
    values, ids = warp(processed[None], Warp.of([sampling]))
    probs = values.softmax(-1)
    return probs[0] if ids is None else torch.zeros(1, VOCAB, dtype=probs.dtype).scatter(1, ids, probs)[0]


PARAMETERS = [
    Sampling(temperature=t, top_k=k, top_p=p, min_p=m, repetition_penalty=r, logit_bias=b)
    for t, k, p, m, r, b in itertools.product(
        (0.3, 1.0, 1.7),
        (None, 1, 50, 500),
        (None, 0.0, 0.2, 0.95),
        (None, 0.05, 1.0),
        (None, 1.3),
        ((), ((3, 4.0), (7, -100.0))),
    )
]


def test_the_distribution_is_transformers_own() -> None:
    rows = logits(8)
    for number, sampling in enumerate(PARAMETERS):
        row = rows[number % 8]
        seen = [int(row.argmax()), 3, 9, 9]
        expected = reference(sampling, row, seen)
        torch.testing.assert_close(ours(sampling, row, seen).float(), expected, atol=2e-6, rtol=0)


def test_tokens_that_tie_with_the_last_of_top_k_stay_in() -> None:
    row = torch.zeros(VOCAB)
    row[[5, 6, 7, 8]] = torch.tensor([3.0, 2.0, 2.0, 2.0])
    sampling = Sampling(temperature=1.0, top_k=2)
    torch.testing.assert_close(ours(sampling, row, []).float(), reference(sampling, row, [0]))


def test_top_p_that_is_met_exactly_takes_no_more() -> None:
    """Four tokens of probability 1/4: which two of equals stay is anybody's choice."""
    row = torch.full((VOCAB,), -torch.inf)
    row[:4] = 0.0
    sampling = Sampling(temperature=1.0, top_p=0.5)
    assert (ours(sampling, row, []) > 0).sum() == (reference(sampling, row, [0]) > 0).sum() == 2


def test_draws_follow_the_distribution() -> None:
    """Chi-square over 20,000 draws; the bound is the 99.99 % point, and the seeds are fixed."""
    row = logits(1, seed=3, vocab=30)[0] / 3
    sampling = Sampling(temperature=0.8, top_k=12, top_p=0.9, seed=11)
    count = 20_000
    drawn = draw(row.expand(count, -1), Warp.of([sampling] * count), uniforms([11] * count, range(count)))
    expected = reference(sampling, row, [0]) * count
    hit = torch.bincount(drawn, minlength=30)
    assert hit[expected == 0].sum() == 0
    inside = expected > 0
    chi2 = ((hit - expected)[inside] ** 2 / expected[inside]).sum()
    degrees = int(inside.sum()) - 1
    assert 5 <= degrees <= 11
    assert chi2 < 37.4  # 11 degrees of freedom; fewer need less.


def test_uniforms_are_uniform_and_not_correlated() -> None:
    u = uniforms([7] * 4096, range(4096)).numpy()
    v = uniforms([8] * 4096, range(4096)).numpy()
    w = uniforms(range(4096), [0] * 4096).numpy()
    for numbers in (u, v, w):
        assert numbers.min() >= 0
        assert numbers.max() < 1
        # Kolmogorov-Smirnov distance, 99.99 % point 2.23 / sqrt(n).
        assert np.abs(np.sort(numbers) - np.arange(4096) / 4096).max() < 2.23 / 64
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 4 / 64
    assert abs(np.corrcoef(u, v)[0, 1]) < 4 / 64
    assert len({*u, *v}) == 8192
    assert uniforms([-1, 2**64 - 1, 2**70], [3, 3, 3]).unique().numel() == 2


def test_draws_at_the_ends_stay_inside() -> None:
    row = torch.tensor([[-np.inf, 0.0, -np.inf, 0.0, -np.inf]], dtype=torch.float32)
    how = Warp.of([Sampling(temperature=1.0)])
    assert draw(row, how, torch.tensor([0.0], dtype=torch.float64)).item() == 1
    assert draw(row, how, torch.tensor([1 - 2**-53], dtype=torch.float64)).item() == 3


MIXED = [
    Sampling(),
    Sampling(temperature=0.0, repetition_penalty=1.2),
    Sampling(temperature=1.0, seed=1),
    Sampling(temperature=0.7, top_k=50, seed=2),
    Sampling(temperature=0.7, top_k=5, top_p=0.8, seed=3),
    Sampling(temperature=1.2, top_p=0.9, seed=4),
    Sampling(temperature=1.2, min_p=0.1, seed=5, repetition_penalty=1.05),
    Sampling(temperature=1.0, top_k=50, seed=6, logit_bias=((4, 2.0),)),
]


def walk(rows: list[int], order: list[int]) -> dict[int, list[int]]:
    """40 tokens of each request in `rows`, its logits a function of its own tokens, batched in `order`."""
    samplers = {row: RequestSampler(MIXED[row], VOCAB) for row in rows}
    said: dict[int, list[int]] = {row: [] for row in rows}
    for step in range(40):
        batch = [row for row in order if row in rows]
        table = torch.stack([logits(1, seed=hash((row, *said[row])) % 2**31)[0] for row in batch])
        tokens = sample(table, [samplers[row] for row in batch], [step] * len(batch))
        for row, token in zip(batch, tokens, strict=True):
            said[row].append(token)
    return said


def test_same_seed_same_tokens_alone_and_in_a_crowd() -> None:
    everyone = list(range(len(MIXED)))
    crowd = walk(everyone, everyone)
    assert walk(everyone, everyone[::-1]) == crowd
    for row in everyone:
        assert walk([row], [row])[row] == crowd[row]
    assert len({tuple(tokens) for tokens in crowd.values()}) == len(MIXED)


def test_seeds_differ_and_a_missing_one_is_drawn() -> None:
    flat = torch.zeros(1, 50_000)

    def first(seed: int | None) -> int:
        return sample(flat, [RequestSampler(Sampling(temperature=1.0, seed=seed), 50_000)], [0])[0]

    assert first(5) == first(5)
    assert len({first(seed) for seed in (5, 6, -1, 2**70)}) == 4
    assert len({first(None) for _ in range(4)}) > 1


def test_the_penalty_counts_what_was_sampled() -> None:
    row = torch.zeros(1, 10)
    row[0, 4], row[0, 6] = 1.0, 0.9
    sampler = RequestSampler(Sampling(repetition_penalty=2.0), 10)
    assert [sample(row, [sampler], [n])[0] for n in range(3)] == [4, 6, 4]


def test_greedy_takes_half_precision_and_leaves_the_logits_alone() -> None:
    rows = logits(3).bfloat16()
    before = rows.clone()
    samplers = [RequestSampler(s, VOCAB) for s in (Sampling(), Sampling(temperature=0.0), Sampling())]
    assert sample(rows, samplers, [0, 0, 0]) == rows.argmax(-1).tolist()
    mixed = [*samplers[:2], RequestSampler(MIXED[6], VOCAB)]
    sample(rows, mixed, [0, 0, 0])
    assert torch.equal(rows, before)
