"""The calls of a pack's runners, timed, with what was in each; and the line through them."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import Any

import msgspec
import numpy as np
from scipy.optimize import nnls

from load.simulation.costs import Line
from load.simulation.shapes import Hearing
from voice_app import messages as m
from voice_app.messages import Stage
from voice_app.models.local.acoustic import AcousticModel, Edges, Utterance
from voice_app.models.local.engine import Chunk
from voice_app.models.local.engine_onnx import OnnxEngine
from voice_app.models.local.phonemes import Phonemes
from voice_app.models.local.whisper import Whisper
from voice_app.models.local.whisper_decoder import WhisperDecoder, Written
from voice_app.schedulers.base import (
    AnyRunner,
    NoAnswer,
    Prompt,
    PromptInputs,
    SequenceStep,
    StageInput,
    WaveWindow,
)

METHODS = {
    Stage.PREPROCESSING: "run",
    Stage.AUDIO_ENCODER: "run",
    Stage.THINKER: "step",
    Stage.TALKER_AR: "step",
    Stage.CODE2WAV: "decode",
}
"""The stages whose calls are timed, and the method that is the call."""


KINDS = {Stage.AUDIO_ENCODER: 2, Stage.THINKER: 1}
"""Stages whose calls are of so many kinds, of which each has its base among the amounts: a step of the
thinker's that makes no pass costs nothing."""
WHISPER_HZ, MEL_HZ = 50, 100
"""Rows a second that Whisper's encoder gives, and takes."""


class Call(msgspec.Struct, frozen=True):
    """One call of a runner: what was in it, seconds, and when it began by `time.perf_counter`."""

    amounts: tuple[float, ...]
    seconds: float
    began: float = 0.0


@dataclass(slots=True)
class _Work:
    """What the models did in one call. `rows` in `passes` of the brain, of so many `chunks`; `judged`: rows
    of which it was asked what is likely next. `begun`: utterances of the voice's, of `whole` frames together;
    `made`: frames, of those and of earlier ones."""

    passes: int = 0
    chunks: int = 0
    rows: int = 0
    judged: int = 0
    hearing: Hearing = field(default_factory=Hearing)
    begun: int = 0
    whole: int = 0
    made: int = 0


@dataclass(slots=True)
class Calls:
    """Of all stages, since the last `clear`."""

    by_stage: dict[Stage, list[Call]] = field(default_factory=lambda: {stage: [] for stage in METHODS})
    assembled_s: list[float] = field(default_factory=list)
    """Seconds of each prompt that the thinker put together."""
    words: int = 0
    """Tokens of the thinker's that the last recording turned out to hold."""
    _work: _Work = field(default_factory=_Work)
    """Since a call began."""

    def clear(self) -> None:
        self.assembled_s.clear()
        for some in self.by_stage.values():
            some.clear()

    def copy(self) -> dict[Stage, list[Call]]:
        return {stage: [*some] for stage, some in self.by_stage.items()}

    def timed(self, stage: Stage, runner: AnyRunner) -> AnyRunner:
        """`runner`, whose calls are noted from now on."""
        if stage not in METHODS:
            return runner
        name = METHODS[stage]
        call, some, amounts = (
            vars(type(runner))[name].__get__(runner),
            self.by_stage[stage],
            self._amounts()[stage],
        )

        def timed(batch: Sequence[Any]) -> Sequence[Any]:
            self._work = _Work()
            begin = time.perf_counter()
            results = call(batch)
            seconds = time.perf_counter() - begin
            some.append(Call(amounts(batch, results), seconds, begin))
            return results

        vars(runner)[name] = timed
        if stage is Stage.THINKER:
            self._time_assembling(runner)
        return runner

    def _time_assembling(self, runner: AnyRunner) -> None:
        assemble = vars(type(runner))["assemble"].__get__(runner)

        def timed(inputs: PromptInputs) -> Prompt | NoAnswer:
            begin = time.perf_counter()
            prompt = assemble(inputs)
            self.assembled_s.append(time.perf_counter() - begin)
            return prompt

        vars(runner)["assemble"] = timed

    def count_work(self) -> None:
        """Let the brains, recognisers and voices of this process tell what they do."""
        judge, forward = OnnxEngine.logits, OnnxEngine.forward
        features, write = Whisper.features, WhisperDecoder.write
        speak, latents = AcousticModel.speak, AcousticModel.latents

        def judged(engine: OnnxEngine, hidden: np.ndarray) -> np.ndarray:
            self._work.judged += len(hidden)
            return judge(engine, hidden)

        def passed(engine: OnnxEngine, x: np.ndarray, chunks: Sequence[Chunk]) -> np.ndarray:
            self._work.passes += 1
            self._work.chunks += len(chunks)
            self._work.rows += len(x)
            return forward(engine, x, chunks)

        def encoded(whisper: Whisper, samples: np.ndarray, least: int = 0) -> np.ndarray:
            made = features(whisper, samples, least)
            self._hear(encodes=1, encoded_s=made.shape[1] / MEL_HZ)
            return made

        def written(
            decoder: WhisperDecoder, encoded: np.ndarray, steps: int, most: int, draft: Sequence[int] = ()
        ) -> Written:
            text = write(decoder, encoded, steps, most, draft)
            right = _alike(text.ids, draft)
            self._hear(writes=1, written_s=len(encoded) / WHISPER_HZ, passes=len(text.ids) + 1 - right)
            return text

        def spoken(
            voice: AcousticModel, phonemes: Phonemes, edges: Edges, speed: float, speaker: int = 0
        ) -> Utterance:
            utterance = speak(voice, phonemes, edges, speed, speaker)
            self._work.begun += 1
            self._work.whole += len(utterance)
            return utterance

        def voiced(voice: AcousticModel, noisy: np.ndarray, start: int, end: int, speaker: int) -> np.ndarray:
            self._work.made += end - start
            return latents(voice, noisy, start, end, speaker)

        type.__setattr__(OnnxEngine, "logits", judged)
        type.__setattr__(OnnxEngine, "forward", passed)
        type.__setattr__(Whisper, "features", encoded)
        type.__setattr__(WhisperDecoder, "write", written)
        type.__setattr__(AcousticModel, "speak", spoken)
        type.__setattr__(AcousticModel, "latents", voiced)

    def _hear(self, **did: float) -> None:
        self._work.hearing = msgspec.structs.replace(self._work.hearing, **did)

    # ------------------------------------------------------------------------------------ what is in a call

    def _amounts(self) -> dict[Stage, Callable[[Sequence[Any], Sequence[Any]], tuple[float, ...]]]:
        """As `Costs` counts them."""
        return {
            Stage.PREPROCESSING: _prepared,
            Stage.AUDIO_ENCODER: self._heard,
            Stage.THINKER: self._thought,
            Stage.TALKER_AR: self._spoken,
            Stage.CODE2WAV: _decoded,
        }

    def _heard(self, _: Sequence[Any], results: Sequence[Any]) -> tuple[float, ...]:
        for result in filter(None, results):
            self.words = sum(len(part.ids) for part in result if isinstance(part, m.Embeddings))
        return msgspec.structs.astuple(self._work.hearing)

    def _thought(self, batch: Sequence[SequenceStep], _: Sequence[Any]) -> tuple[float, ...]:
        # What there was a row for is no chunk of the pass; only an answer's next token is ever such.
        prompts = [step.count for step in batch if not step.outputs or step.count > 1]
        work, prefilled = self._work, sum(prompts)
        decodes = work.chunks - len(prompts)
        return work.passes, decodes, work.rows - decodes - prefilled, prefilled, work.judged

    def _spoken(self, _: Sequence[Any], __: Sequence[Any]) -> tuple[float, ...]:
        return self._work.begun, self._work.whole, self._work.made


def _alike(ids: Sequence[int], draft: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(ids, draft, strict=False))))


def _prepared(batch: Sequence[StageInput], _: Sequence[Any]) -> tuple[float, ...]:
    parts = [
        part
        for item in batch
        if isinstance(item.payload, m.TurnRequest)
        for part in item.payload.messages[-1].parts
        if isinstance(part, m.AudioPart)
    ]
    return len(batch), sum(len(part.samples) / part.sample_rate for part in parts)


def _decoded(windows: Sequence[WaveWindow], _: Sequence[Any]) -> tuple[float, ...]:
    return len(windows), sum(len(window.frames) for window in windows)


def line(calls: Sequence[Call], *, base: bool = True) -> Line:
    """The line through the calls, none of its numbers below 0, by what it misses in proportion. Calls with
    nothing in them are left out. `base`: every call costs something of its own, whatever is in it."""
    chosen = [call for call in calls if any(call.amounts)]
    amounts = np.array([(float(base), *call.amounts) for call in chosen])
    seconds = np.array([call.seconds for call in chosen])
    found, *each = nnls(amounts / seconds[:, None], np.ones(len(chosen)))[0]
    return Line(float(found), tuple(map(float, each)))


def beyond(fit: Line, calls: Sequence[Call]) -> float:
    """How many times as long as the line says the calls took, all together."""
    chosen = [call for call in calls if any(call.amounts)]
    return sum(call.seconds for call in chosen) / sum(fit(*call.amounts) for call in chosen)


def pace(lines: Mapping[Stage, Line], calls: Mapping[Stage, Sequence[Call]]) -> float:
    """How many times as long as their lines say the calls of all stages took."""
    (found,) = paces(lines, calls, inf)
    return found


def paces(
    lines: Mapping[Stage, Line], calls: Mapping[Stage, Sequence[Call]], step_s: float
) -> tuple[float, ...]:
    """`pace` of those that began in each `step_s` seconds; in a step without any it is as it was before."""
    known = [
        (call.began, call.seconds, lines[stage](*call.amounts))
        for stage, some in calls.items()
        for call in some
        if any(call.amounts)
    ]
    first = min(began for began, _, _ in known)
    took, should = defaultdict[int, float](float), defaultdict[int, float](float)
    for began, seconds, line_s in known:
        step = int((began - first) / step_s)
        took[step] += seconds
        should[step] += line_s
    found, last = list[float](), 1.0
    for step in range(max(took) + 1):
        last = took[step] / should[step] if should[step] else last
        found.append(last)
    return tuple(found)
