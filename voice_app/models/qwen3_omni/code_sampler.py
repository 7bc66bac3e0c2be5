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


@dataclass(frozen=True, slots=True)
class Draws:
    """What a step's picks depend on beside logits; on the device."""

    slots: torch.Tensor
    """[n] int64"""
    numbers: torch.Tensor | None
    """[groups, n] float64 in [0, 1); None if nothing is drawn."""
    greedy: torch.Tensor | None
    """[n] bool; None if all are drawn."""

    @staticmethod
    def of(rows: Sequence[Row], groups: int, device: torch.device) -> "Draws":
        slots = torch.tensor([row.slot for row in rows], device=device)
        greedy = [row.greedy for row in rows]
        if all(greedy):
            return Draws(slots, None, None)
        mixed = torch.tensor(greedy, device=device) if any(greedy) else None
        return Draws(slots, numbers_for(rows, groups).to(device), mixed)


def numbers_for(rows: Sequence[Row], groups: int) -> torch.Tensor:
    """[groups, n] float64 in [0, 1), on the host."""
    seeds = [row.seed for _ in range(groups) for row in rows]
    counters = [row.frame * groups + group for group in range(groups) for row in rows]
    return uniforms(seeds, counters).view(groups, len(rows))


class CodeSampler:
    """Holds, for each slot, which first codes the repetition penalty counts. No host sync."""

    def __init__(self, facts: TalkerFacts, slots: int, device: torch.device) -> None:
        self._device = device
        self._facts = facts
        kept = [i for i in range(facts.vocab - SUPPRESSED_TOP) if i != facts.codec_eos]
        self.allowed = torch.tensor([*kept, facts.codec_eos], device=device)
        """Talker ids that may be picked; logits are given for these alone."""
        self._seen = torch.zeros((slots, len(self.allowed)), dtype=torch.bool, device=device)
        self._warps: dict[tuple[Sampling, int], Warp] = {}

    def reset(self, slot: int) -> None:
        """The slot belongs to a new turn."""
        self._seen[slot] = False

    def history(self, slot: int) -> torch.Tensor:
        """A copy on the host of what the slot's turn has made."""
        return self._seen[slot].to("cpu", copy=True)

    def recall(self, slot: int, history: torch.Tensor) -> None:
        """The slot belongs to a turn with this `history`."""
        self._seen[slot] = history.to(self._device)

    def first(self, logits: torch.Tensor, draws: Draws) -> torch.Tensor:
        """Places in `allowed` [n], int64, of the first codes. `logits`: [n, allowed]."""
        penalty = self._facts.sampling.repetition_penalty or 1.0
        logits = logits.float()
        if penalty != 1.0:
            penalised = torch.where(logits < 0, logits * penalty, logits / penalty)
            logits = torch.where(self._seen[draws.slots], penalised, logits)
        places = self._pick(logits, draws, 0, self._facts.sampling)
        if penalty != 1.0:
            self._seen[draws.slots, places] = True
        return places

    def others(self, draws: Draws) -> Pick:
        """How to pick the other codes of this step's frames."""
        return lambda logits, group: self._pick(logits, draws, group, self._facts.predictor_sampling)

    def _pick(self, logits: torch.Tensor, draws: Draws, group: int, sampling: Sampling) -> torch.Tensor:
        if draws.numbers is None or not sampling.temperature:
            return logits.argmax(-1)
        key = (sampling, len(logits))
        if key not in self._warps:
            self._warps[key] = Warp.of([sampling] * len(logits), self._device)
        drawn = draw(logits.float(), self._warps[key], draws.numbers[group])
        return drawn if draws.greedy is None else torch.where(draws.greedy, logits.argmax(-1), drawn)
