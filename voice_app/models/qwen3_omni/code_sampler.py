"""Picks a frame's codes: the first from the talker's logits, the others from the predictor's.

As transformers does: the first is drawn with a repetition penalty over the first codes already made,
from the codebook and the EOS; the others by top_k 50 and top_p 0.8. Each draw is a function of
(seed, frame, group), so a turn's codes do not depend on what else is in the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from voice_app.messages import Sampling
from voice_app.models.qwen3_omni.code_predictor import Pick
from voice_app.models.qwen3_omni.facts import SUPPRESSED_TOP, TalkerFacts
from voice_app.schedulers.sampler import Warp, draw, uniforms


@dataclass(frozen=True, slots=True)
class Row:
    """One request in a step. `slot`: its place in the tables; `frame`: the one being made."""

    slot: int
    frame: int
    seed: int
    greedy: bool


class CodeSampler:
    """Holds, for each slot, which first codes the repetition penalty counts."""

    def __init__(self, facts: TalkerFacts, slots: int, device: torch.device) -> None:
        self._device = device
        self._facts = facts
        kept = [i for i in range(facts.vocab - SUPPRESSED_TOP) if i != facts.codec_eos]
        self.allowed = torch.tensor([*kept, facts.codec_eos], device=device)
        """Talker ids that may be picked, EOS last; logits are given for these alone."""
        self.eos_place = len(kept)
        self._seen = torch.zeros((slots, len(self.allowed)), dtype=torch.bool, device=device)
        self._warps: dict[tuple[Sampling, int], Warp] = {}

    def reset(self, slot: int) -> None:
        """The slot belongs to a new turn."""
        self._seen[slot] = False

    def first(self, logits: torch.Tensor, rows: Sequence[Row]) -> torch.Tensor:
        """Places in `allowed` [n], int64, of the first codes. `logits`: [n, allowed]."""
        slots = torch.tensor([row.slot for row in rows], device=self._device)
        penalty = self._facts.sampling.repetition_penalty or 1.0
        logits = logits.float()
        if penalty != 1.0:
            penalised = torch.where(logits < 0, logits * penalty, logits / penalty)
            logits = torch.where(self._seen[slots], penalised, logits)
        places = self._pick(logits, rows, self._numbers(rows), 0, self._facts.sampling)
        if penalty != 1.0:
            self._seen[slots, places] = True
        return places

    def others(self, rows: Sequence[Row]) -> Pick:
        """How to pick the other codes of this step's frames."""
        numbers = self._numbers(rows)
        return lambda logits, group: self._pick(logits, rows, numbers, group, self._facts.predictor_sampling)

    def _numbers(self, rows: Sequence[Row]) -> torch.Tensor | None:
        """[groups, n] in [0, 1); None if nothing is drawn."""
        if all(row.greedy for row in rows):
            return None
        groups = self._facts.groups
        seeds = [row.seed for _ in range(groups) for row in rows]
        counters = [row.frame * groups + group for group in range(groups) for row in rows]
        return uniforms(seeds, counters).view(groups, len(rows)).to(self._device)

    def _pick(
        self,
        logits: torch.Tensor,
        rows: Sequence[Row],
        numbers: torch.Tensor | None,
        group: int,
        sampling: Sampling,
    ) -> torch.Tensor:
        best = logits.argmax(-1)
        if numbers is None or not sampling.temperature:
            return best
        key = (sampling, len(rows))
        if key not in self._warps:
            self._warps[key] = Warp.of([sampling] * len(rows), self._device)
        drawn = draw(logits.float(), self._warps[key], numbers[group])
        if not any(row.greedy for row in rows):
            return drawn
        greedy = torch.tensor([row.greedy for row in rows], device=self._device)
        return torch.where(greedy, best, drawn)
