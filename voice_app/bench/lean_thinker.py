"""The thinker under its scheduler against a lean loop over the same weights: what scheduling, paging and
sampling cost.

The lean loop is one sequence with its keys and values in one piece, torch's fused attention, argmax, and
nothing else: it guesses no tokens ahead, which spares the scheduler's side a pass now and then. Both answer
the same questions; only the time after the first token counts, and the two take turns question by question,
so that whatever else the machine does falls on both.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from voice_app.config import PackConfig
from voice_app.errors import VoiceAppError
from voice_app.messages import EdgePayload, PromptIds, PromptParams, StageEvent, TurnId
from voice_app.models.local.brain import MAX_POSITIONS, PackagedBrain
from voice_app.models.local.brain_dense import BrainDense
from voice_app.models.local.brain_files import BrainFiles
from voice_app.models.local.paged_attention import rotary_table
from voice_app.models.local.prompt import Turn
from voice_app.models.local.thinker import Thinker
from voice_app.schedulers.base import StageInput
from voice_app.schedulers.omni import OmniScheduler

QUESTIONS = (
    "Tell me something about whales.",
    "How does a sailing boat move against the wind?",
    "Why do leaves fall in autumn?",
    "What makes bread rise?",
)
"""Answered at length by the packaged brain; no built-in function takes them."""


class LeanLoop:
    """One answer at a time over `files`. Its KV is float32 [layers, kv_heads, positions, head_dim]."""

    def __init__(self, files: BrainFiles, positions: int = MAX_POSITIONS) -> None:
        self._shape = shape = files.shape
        self._table = files.embedding()
        self._dense = BrainDense(files)
        pool = (shape.layers, shape.kv_heads, positions, shape.head_dim)
        self._keys, self._values = torch.zeros(pool), torch.zeros(pool)
        self._cosine, self._sine = (torch.from_numpy(t) for t in rotary_table(shape.rope_base, positions))

    def answer(self, prompt: Sequence[int], count: int) -> tuple[list[int], float]:
        """`count` greedy tokens after `prompt`, and the seconds that all but the first took."""
        with torch.inference_mode():
            hidden = self._forward(prompt, 0)
            tokens = [int(self._dense.logits(hidden[-1:]).argmax())]
            begun = time.perf_counter()
            for place in range(len(prompt), len(prompt) + count - 1):
                tokens.append(int(self._dense.logits(self._forward(tokens[-1:], place)).argmax()))
            return tokens, time.perf_counter() - begun

    def logits(self, prompt: Sequence[int], said: Sequence[int]) -> np.ndarray:
        """float32 [len(said), vocab]: what each token of the answer `said` was picked from."""
        with torch.inference_mode():
            hidden = self._forward([*prompt, *said[:-1]], 0)
            return self._dense.logits(hidden[len(prompt) - 1 :])

    def _forward(self, ids: Sequence[int], start: int) -> np.ndarray:
        x = self._table[np.asarray(ids)].astype(np.float32)
        qkv = self._dense.first(x)
        for layer in range(self._shape.layers):
            qkv = self._dense.between(layer, x, self._attended(torch.from_numpy(qkv), layer, start))
        return qkv

    def _attended(self, qkv: torch.Tensor, layer: int, start: int) -> np.ndarray:
        rows, end, shape = len(qkv), start + len(qkv), self._shape
        heads = qkv.view(rows, -1, shape.head_dim).transpose(0, 1)
        query, key, value = heads.split([shape.heads, shape.kv_heads, shape.kv_heads])
        keys, values = self._keys[layer], self._values[layer]
        keys[:, start:end] = self._turned(key, start)
        values[:, start:end] = value
        groups = self._turned(query, start).view(shape.kv_heads, -1, rows, shape.head_dim)
        mask = None if rows == 1 else torch.ones(rows, end, dtype=torch.bool).tril(start)
        out = F.scaled_dot_product_attention(
            groups.flatten(0, 1)[None], keys[None, :, :end], values[None, :, :end], mask, enable_gqa=True
        )
        return out[0].transpose(0, 1).reshape(rows, -1).numpy()

    def _turned(self, x: torch.Tensor, start: int) -> torch.Tensor:
        cosine, sine = (table[start : start + x.shape[1]] for table in (self._cosine, self._sine))
        low, high = x.chunk(2, dim=-1)
        return torch.cat((low * cosine - high * sine, high * cosine + low * sine), dim=-1)


class _Tokens:
    """An outbox that only knows whether there has been a token."""

    any = False

    def emit(self, turn: TurnId, payload: EdgePayload | StageEvent) -> None:
        self.any = True

    def has_room(self, turn: TurnId) -> bool:
        return True

    def fail(self, turn: TurnId, error: VoiceAppError) -> None:
        raise error

    def finish(self, turn: TurnId) -> None: ...

    def charge(self, turns: Sequence[TurnId], seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tokens a second of one answer at a time."""

    scheduled: float
    lean: float

    @property
    def ratio(self) -> float:
        return self.scheduled / self.lean


def compare(config: PackConfig, rounds: int = 3) -> Comparison:
    """Measure both, `rounds` times over all questions. Raises ModelFileError."""
    brain = PackagedBrain(config, lambda _: None)
    thinker = brain.thinker()
    thinker.warm_up()
    lean = LeanLoop(brain.files)
    tokens, scheduled_seconds, lean_seconds = 0, 0.0, 0.0
    for turn in range(rounds * len(QUESTIONS)):
        prompt = PromptIds(
            brain.frame.spans([Turn("user", (QUESTIONS[turn % len(QUESTIONS)],))]), PromptParams(greedy=True)
        )
        count, seconds = _scheduled(thinker, prompt)
        tokens += count
        scheduled_seconds += seconds
        lean_seconds += lean.answer([token for span in prompt.spans for token in span.ids], count + 1)[1]
    return Comparison(tokens / scheduled_seconds, tokens / lean_seconds)


def _scheduled(thinker: Thinker, prompt: PromptIds) -> tuple[int, float]:
    """Answer `prompt`: how many tokens followed the first (an end of turn counts), and their seconds."""
    outbox = _Tokens()
    scheduler = OmniScheduler(thinker, outbox)
    scheduler.receive(StageInput(TurnId("lean", "0"), prompt, speech=False))
    following: int | None = None
    begun = time.perf_counter()
    while scheduler.step():
        if following is None:
            begun, following = time.perf_counter(), 0 if outbox.any else None
        else:
            following += 1
    return following or 0, time.perf_counter() - begun


if __name__ == "__main__":
    found = compare(PackConfig())
    print(f"scheduled {found.scheduled:.1f} tok/s, lean {found.lean:.1f} tok/s, ratio {found.ratio:.2f}")
