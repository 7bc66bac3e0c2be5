"""How long one step of thinker and talker takes, against the batch."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import cast

import numpy as np

from voice_app import messages as m
from voice_app.bench.report import median
from voice_app.errors import VoiceAppError
from voice_app.messages import Stage
from voice_app.models.qwen3_omni.talker_ar import Talker
from voice_app.models.qwen3_omni.thinker import Thinker
from voice_app.schedulers.base import AnyRunner, OnePassRunner, Prompt, PromptInputs, SequenceStep, StageInput
from voice_app.schedulers.turns import Clock

BATCHES = (1, 2, 4, 8, 16, 32)
STEPS = 20
FRAME_S = 0.08


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Medians, in milliseconds."""

    batch: int
    thinker_ms: float
    talker_ms: float

    @property
    def tokens_per_s(self) -> float:
        return self.batch / self.thinker_ms * 1000

    @property
    def frames_per_s(self) -> float:
        return self.batch / self.talker_ms * 1000

    @property
    def real_time(self) -> float:
        """How much faster than speech each of the batch's voices is made."""
        return FRAME_S * 1000 / self.talker_ms

    def row(self) -> tuple[str, ...]:
        return (
            str(self.batch),
            f"{self.thinker_ms:.2f} ms",
            f"{self.tokens_per_s:,.0f}",
            f"{self.talker_ms:.2f} ms",
            f"{self.frames_per_s:,.0f}",
            f"{self.real_time:.1f}",
        )

    def figures(self) -> dict[str, float]:
        return {**asdict(self), "tokens_per_s": self.tokens_per_s, "frames_per_s": self.frames_per_s}


def step_times(
    runners: dict[Stage, AnyRunner],
    prompt: m.PromptIds,
    batches: Sequence[int] = BATCHES,
    clock: Clock = time.process_time,
) -> list[StepTimes]:
    """For each batch size, over the pack's own runners, without schedulers. `prompt`: text only."""
    thinker = cast(Thinker, runners[Stage.THINKER])
    talker = cast(Talker, runners[Stage.TALKER_AR])
    return [
        StepTimes(size, _thinker(thinker, prompt, size, clock), _talker(talker, prompt, size, clock))
        for size in batches
    ]


def prompt_of(runners: dict[Stage, AnyRunner], words: str) -> m.PromptIds:
    """What preprocessing makes of a written question."""
    request = m.TurnRequest(
        m.TurnId("bench", "steps"),
        (m.Message("user", (m.TextPart(words),)),),
        greedy=True,
        sampling=m.Sampling(max_tokens=4 * STEPS),
        max_frames=4 * STEPS,
    )
    preprocessing = cast(OnePassRunner, runners[Stage.PREPROCESSING])
    (made,) = preprocessing.run([StageInput(request.turn, request, True)])
    assert made is not None
    assert not isinstance(made, VoiceAppError)
    (prompt,) = made
    assert isinstance(prompt, m.PromptIds)
    return prompt


def _thinker(thinker: Thinker, ids: m.PromptIds, size: int, clock: Clock) -> float:
    prompts = [thinker.assemble(PromptInputs(m.TurnId("bench", str(i)), ids, {})) for i in range(size)]
    length = len(prompts[0].keys)
    pages = -(-(length + STEPS + 1) // thinker.page_size)
    tables = [list(range(i * pages, (i + 1) * pages)) for i in range(size)]
    outputs: list[list[int]] = [[] for _ in range(size)]

    def step(start: int, count: int) -> None:
        rows = zip(prompts, outputs, tables, strict=True)
        made = thinker.step([SequenceStep(p, o, start, count, t, sample=True) for p, o, t in rows])
        for own, output in zip(outputs, made, strict=True):
            assert output.token is not None
            own.append(output.token)

    step(0, length)
    times: list[float] = []
    for number in range(STEPS):
        start = clock()
        step(length + number, 1)
        times.append(clock() - start)
    _close(thinker, prompts)
    return median(times) * 1000


def _close(thinker: Thinker, prompts: list[Prompt]) -> None:
    for prompt in prompts:
        thinker.close(prompt)


def _talker(talker: Talker, ids: m.PromptIds, size: int, clock: Clock) -> float:
    width = talker.text_width
    states = [talker.open(m.TurnId("bench", str(i))) for i in range(size)]
    rng = np.random.default_rng(0)
    for state in states:
        talker.feed(state, ids)
        for token in range(STEPS + 2):
            talker.feed(state, m.TokenVector(token, rng.standard_normal(width).astype(np.float32)))
        assert talker.ready(state)
    talker.step(states)
    times: list[float] = []
    for _ in range(STEPS):
        start = clock()
        talker.step(states)
        times.append(clock() - start)
    for state in states:
        talker.close(state)
    return median(times) * 1000
