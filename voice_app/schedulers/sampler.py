"""Picks tokens from logits, each request by its own parameters, equal to transformers' processors.

In transformers' order: logit bias, repetition penalty, then (unless greedy) temperature, top_k, top_p,
min_p and a draw. A draw is a function of (seed, counter) and the row's own logits: it does not depend
on what else is in the batch, on earlier draws, or on the process.

Runners call `sample` for a batch of requests; loops with fixed parameters (a code predictor) build one
`Warp` and call `draw` with `uniforms`.
"""

import math
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from voice_app.messages import Sampling

_TIES = 8
"""Candidates taken beyond the largest top_k: tokens that tie with the k-th stay in, as in transformers."""


def uniforms(seeds: Sequence[int], counters: Sequence[int]) -> Tensor:
    """For each (seed, counter ≥ 0) a number in [0, 1), float64: the counter-th of the SplitMix64 sequence
    (Steele et al. 2014) that starts at the hashed seed. Of a seed the lowest 64 bits count."""
    start = _mix(np.array([seed % 2**64 for seed in seeds], np.uint64))
    return torch.from_numpy(
        (_mix(start + np.array(counters, np.uint64) * _GAMMA) >> np.uint64(11)) * 2.0**-53
    )


_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    x = x + _GAMMA
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class Warp:
    """How rows are warped before a draw: tensors [n, 1] on the logits' device, None for a step that no
    row takes. `top_k` is int64 and at most `max_top_k`; 0 for that means no row has one."""

    temperature: Tensor
    top_k: Tensor | None = None
    max_top_k: int = 0
    top_p: Tensor | None = None
    min_p: Tensor | None = None

    @classmethod
    def of(cls, rows: Sequence[Sampling], device: torch.device | str = "cpu") -> "Warp":
        """For rows that either all have a top_k or all have none."""

        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64, device=device)[:, None]

        top_k = [row.top_k or 0 for row in rows]
        top_p = [1.0 if row.top_p is None else row.top_p for row in rows]
        min_p = [row.min_p or 0.0 for row in rows]
        return cls(
            temperature=column([row.temperature or 1.0 for row in rows]),
            top_k=torch.tensor(top_k, device=device)[:, None] if any(top_k) else None,
            max_top_k=max(top_k),
            top_p=column(top_p) if min(top_p) < 1 else None,
            min_p=column(min_p) if max(min_p) > 0 else None,
        )


def warp(logits: Tensor, how: Warp) -> tuple[Tensor, Tensor | None]:
    """Warped logits [n, candidates] float64, -inf where a token is out, and their token ids
    [n, candidates], None if they stand in order of id. Best first if any step needs the order."""
    ids = None
    if how.top_k is None and how.top_p is None:
        values = logits.double() / how.temperature
    else:
        count = logits.shape[-1]
        if how.top_k is not None:
            count = min(count, how.max_top_k + _TIES)
        values, ids = logits.topk(count, dim=-1)
        values = values.double() / how.temperature
    if how.top_k is not None:
        kth = values.gather(-1, how.top_k.clamp(max=values.shape[-1]) - 1)
        values = values.masked_fill(values < kth, -math.inf)
    if how.top_p is not None:
        probs = values.softmax(-1)
        out = probs.cumsum(-1) - probs >= how.top_p
        out[:, 0] = False
        values = values.masked_fill(out, -math.inf)
    if how.min_p is not None:
        best = values.amax(-1, keepdim=True)
        values = values.masked_fill(values < best + how.min_p.log(), -math.inf)
    return values, ids


def draw(logits: Tensor, how: Warp, uniform: Tensor) -> Tensor:
    """One token id a row, int64 [n], drawn from the warped distribution. `logits`: [n, vocab];
    `uniform`: [n] float64 in [0, 1), on the logits' device. No host sync."""
    values, ids = warp(logits, how)
    # In float64 the sums do not depend on how many candidates other rows of the batch need.
    below = values.softmax(-1).cumsum(-1)
    place = torch.searchsorted(below, uniform[:, None] * below[:, -1:], right=True)
    # Only a row that is not finite goes past the end, and an index out of range would end a CUDA process.
    place = place.clamp(max=below.shape[-1] - 1)
    return (place if ids is None else ids.gather(-1, place))[:, 0]


class RequestSampler:
    """One request's sampling: its parameters, its seed, and the tokens it has seen.

    `sampling.temperature` None or 0 is greedy. Without a seed in `sampling` a fresh one is drawn.
    `seen`: the tokens that a repetition penalty counts from the start (a prompt's ids, or none)."""

    def __init__(
        self,
        sampling: Sampling,
        vocab: int,
        seen: Iterable[int] = (),
        device: torch.device | str = "cpu",
    ) -> None:
        self.sampling = sampling
        self.greedy = not sampling.temperature
        self.seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        self._bias: tuple[Tensor, Tensor] | None = None
        if sampling.logit_bias:
            tokens, added = zip(*sampling.logit_bias, strict=True)
            self._bias = (torch.tensor(tokens, device=device), torch.tensor(added, device=device))
        self._seen: Tensor | None = None
        if sampling.repetition_penalty not in (None, 1.0):
            self._seen = torch.zeros(vocab, dtype=torch.bool, device=device)
        self.count_prompt(seen)

    @property
    def plain(self) -> bool:
        """Whether the logits are taken as they are."""
        return self._bias is None and self._seen is None

    def count_prompt(self, tokens: Iterable[int]) -> None:
        """More tokens that a repetition penalty counts, before the first is sampled."""
        if self._seen is not None:
            self._seen[torch.tensor(list(tokens), dtype=torch.int64, device=self._seen.device)] = True

    def observe(self, token: int) -> None:
        """The token was sampled; to be called once for each."""
        if self._seen is not None:
            self._seen[token] = True

    def process(self, row: Tensor) -> Tensor:
        """`row` [vocab] with bias and penalty; a new tensor."""
        if self._bias is not None:
            tokens, added = self._bias
            row = row.index_add(0, tokens, added.to(row.dtype))
        if self._seen is not None:
            penalty = self.sampling.repetition_penalty
            assert penalty is not None
            row = torch.where(self._seen, torch.where(row < 0, row * penalty, row / penalty), row)
        return row


def sample(logits: Tensor, samplers: Sequence[RequestSampler], counters: Sequence[int]) -> list[int]:
    """The next token of each request. `logits`: [n, vocab] float, not changed; `counters`: how many
    tokens each request has sampled before. The requests' `observe` is called."""
    if not all(sampler.plain for sampler in samplers):
        rows = zip(samplers, logits.float(), strict=True)
        logits = torch.stack([sampler.process(row) for sampler, row in rows])
    groups: dict[tuple[bool, bool, bool], list[int]] = {}
    for index, sampler in enumerate(samplers):
        groups.setdefault(_kind(sampler), []).append(index)
    tokens = [0] * len(samplers)
    for (greedy, _, _), rows in groups.items():
        mine = logits if len(groups) == 1 else logits[rows]
        if greedy:
            picked = mine.argmax(-1)
        else:
            how = Warp.of([samplers[row].sampling for row in rows], logits.device)
            numbers = uniforms([samplers[row].seed for row in rows], [counters[row] for row in rows])
            picked = draw(mine.float(), how, numbers.to(logits.device))
        for row, token in zip(rows, picked.tolist(), strict=True):
            tokens[row] = token
            samplers[row].observe(token)
    return tokens


def _kind(sampler: RequestSampler) -> tuple[bool, bool, bool]:
    """Rows of one kind go through `draw` together: its candidates' order depends on the kind alone."""
    if sampler.greedy:
        return (True, False, False)
    top_p = sampler.sampling.top_p
    return (False, bool(sampler.sampling.top_k), top_p is not None and top_p < 1)
