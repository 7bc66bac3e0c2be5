"""The thinker's runner: prompts from spans, one engine pass a step, and when an answer ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
import numpy as np

from voice_app.errors import InputError
from voice_app.messages import Embeddings, Sampling
from voice_app.models.local.engine_onnx import Chunk, Engine
from voice_app.models.functions import plan
from voice_app.models.local.prompt import MARK, Tokens
from voice_app.schedulers.base import NoAnswer, Prompt, PromptInputs, SequenceStep, StepOutput

MAX_TOKENS = 80
SENTENCES = 2
REPETITION_PENALTY = 1.15
PENALTY_WINDOW = 48


@dataclass(slots=True)
class _Answer:
    """What the runner keeps of one prompt."""

    ids: np.ndarray
    media: list[tuple[int, np.ndarray]]
    """(position, rows [n, width]) of the encoders' embeddings, in order."""
    forced: list[int] = field(default_factory=list)
    """The answer's tokens where a rule gives them; else empty."""


class Thinker:
    """A `ThinkerRunner` over the packaged brain."""

    def __init__(
        self,
        engine: Engine,
        tokens: Tokens,
        embed: Callable[[Sequence[int]], np.ndarray],
        ends: frozenset[int],
    ) -> None:
        self.page_size = engine.page_size
        self.num_pages = engine.num_pages
        self.max_positions = engine.max_positions
        self._engine = engine
        self._tokens = tokens
        self._embed = embed
        # A spoken answer has no second line.
        self._ends = ends | {t for t in range(engine.shape.vocab) if b"\n" in tokens.token_bytes(t)}

    def assemble(self, inputs: PromptInputs) -> Prompt | NoAnswer:
        params = inputs.prompt.request
        keys, media, said = _join(inputs)
        question = self._tokens.decode(said[-1]) if said else ""
        if not question.strip():
            return NoAnswer("silence")
        max_tokens = min(params.sampling.max_tokens or MAX_TOKENS, MAX_TOKENS)
        if len(keys) + max_tokens > self.max_positions:
            raise InputError(
                f"the prompt is {len(keys)} tokens long; at most {self.max_positions - max_tokens} fit: say less",
                param="messages",
            )
        now = datetime.fromisoformat(params.now) if params.now else datetime.now().astimezone()
        result = plan(question, now)
        forced = self._tokens.encode(result.spoken) if result else []
        return Prompt(
            keys=keys,
            params=params,
            sampling=_filled(params.sampling, params.greedy),
            max_tokens=max(max_tokens, len(forced)),
            eos_ids=self._ends,
            state=_Answer(np.array(keys), media, forced),
        )

    def step(self, batch: Sequence[SequenceStep]) -> Sequence[StepOutput]:
        x = np.concatenate([self._inputs(step) for step in batch])
        chunks = [Chunk(step.start, step.count, step.pages) for step in batch]
        hidden = self._engine.forward(x, chunks)
        lasts = np.cumsum([step.count for step in batch]) - 1
        wanted = [i for i, step in enumerate(batch) if step.sample and not _forced(step)]
        picked: dict[int, int] = {}
        if wanted:
            logits = self._engine.logits(hidden[lasts[wanted]])
            picked = {i: self._pick(row, batch[i]) for i, row in zip(wanted, logits, strict=True)}
        return [self._output(step, picked.get(i), hidden[lasts[i]]) for i, step in enumerate(batch)]

    def close(self, prompt: Prompt) -> None:
        prompt.state = None

    def warm_up(self) -> None:
        for count in (1, 16, 64):
            x = np.zeros((count, self._engine.shape.width), np.float32)
            hidden = self._engine.forward(x, [Chunk(0, count, range(-(-count // self.page_size)))])
            self._engine.logits(hidden[-1:])

    def _inputs(self, step: SequenceStep) -> np.ndarray:
        answer, length = _state(step.prompt), len(step.prompt.keys)
        end = step.start + step.count
        ids = [
            *answer.ids[step.start : end],
            *step.outputs[max(0, step.start - length) : max(0, end - length)],
        ]
        rows = self._embed(ids)
        for place, media in answer.media:
            first, last = max(place, step.start), min(place + len(media), end)
            if first < last:
                rows[first - step.start : last - step.start] = media[first - place : last - place]
        return rows

    def _pick(self, logits: np.ndarray, step: SequenceStep) -> int:
        recent = np.array([*step.prompt.keys[-PENALTY_WINDOW:], *step.outputs][-PENALTY_WINDOW:])
        some = logits[recent]
        logits[recent] = np.where(some > 0, some / REPETITION_PENALTY, some * REPETITION_PENALTY)
        if not step.outputs:
            logits[list(self._ends)] = -np.inf
        return int(logits.argmax())

    def _output(self, step: SequenceStep, token: int | None, hidden: np.ndarray) -> StepOutput:
        if not step.sample:
            return StepOutput()
        forced = _forced(step)
        if forced:
            token = forced[len(step.outputs)]
            done = len(step.outputs) + 1 == len(forced)
            return StepOutput(token, hidden.copy(), finish_reason="stop" if done else None)
        assert token is not None
        ended = token not in self._ends and self._said_enough([*step.outputs, token])
        return StepOutput(token, hidden.copy(), finish_reason="stop" if ended else None)

    def _said_enough(self, outputs: list[int]) -> bool:
        if not self._tokens.token_bytes(outputs[-1]).rstrip().endswith((b".", b"!", b"?")):
            return False
        text = self._tokens.decode(outputs)
        return sum(text.count(mark) for mark in ".!?") >= SENTENCES


def _state(prompt: Prompt) -> _Answer:
    assert isinstance(prompt.state, _Answer)
    return prompt.state


def _forced(step: SequenceStep) -> list[int]:
    return _state(step.prompt).forced


def _filled(sampling: Sampling, greedy: bool) -> Sampling:
    penalty = sampling.repetition_penalty
    return msgspec.structs.replace(
        sampling,
        temperature=0.0 if greedy or sampling.temperature is None else sampling.temperature,
        repetition_penalty=REPETITION_PENALTY if penalty is None else penalty,
    )


def _join(inputs: PromptInputs) -> tuple[list[int], list[tuple[int, np.ndarray]], list[list[int]]]:
    """The prompt's ids; its media as (position, rows); and what the user said, as ids turn by turn."""
    keys: list[int] = []
    media: list[tuple[int, np.ndarray]] = []
    said: list[list[int]] = []
    inside = False
    for span in inputs.prompt.spans:
        if span == MARK:
            inside = not inside
            if inside:
                said.append([])
            continue
        ids = span.ids
        if span.media:
            filled: Embeddings = inputs.media[span.media.key]
            ids = filled.ids
            media.append((len(keys), np.array(filled.rows, np.float32)))
        keys += ids
        if inside:
            said[-1] += ids
    return keys, media, said
