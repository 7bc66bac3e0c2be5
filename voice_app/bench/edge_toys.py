"""A pack for the hand-off of the running pipeline, with as little else as there can be: its thinker gives
vectors, paced as tokens come, and its talker notes how long each took from being sent to being fed to it.

The answer to "N" has N tokens. Its sound is, a sample a token, those times in microseconds.
"""

import time
from collections.abc import Sequence

import numpy as np

from voice_app import messages as m
from voice_app.config import PackConfig
from voice_app.messages import Stage
from voice_app.models.base import Report
from voice_app.pipeline.outlet import Outlet
from voice_app.schedulers.base import (
    AnyRunner,
    NothingToPark,
    Prompt,
    PromptInputs,
    SequenceStep,
    StageInput,
    StepOutput,
    TalkerOutput,
    WaveSpec,
    WaveWindow,
)

STEP_S = 0.003
WIDTH = 1024
"""4 KB of float32."""


class _Warm:
    def warm_up(self) -> None:
        return None


class _Preprocessing(_Warm):
    def run(self, batch: Sequence[StageInput]) -> list[list[m.EdgePayload | m.StageEvent]]:
        return [[self._prompt(item.payload)] for item in batch]

    def _prompt(self, request: m.StagePayload) -> m.PromptIds:
        assert isinstance(request, m.TurnRequest)
        (part,) = request.messages[-1].parts
        assert isinstance(part, m.TextPart)
        return m.PromptIds((m.Span(ids=(int(part.text),)),), m.PromptParams())


class _Encoder(_Warm):
    def run(self, batch: Sequence[StageInput]) -> list[list[m.EdgePayload | m.StageEvent]]:
        return [[] for _ in batch]


class _Thinker(_Warm):
    page_size = 16
    num_pages = 512
    max_positions = 4096
    overlaps = False
    grows = False
    least_part = 1

    def openings(self) -> Sequence[Prompt]:
        return ()

    def assemble(self, inputs: PromptInputs) -> Prompt:
        (count,) = inputs.prompt.spans[0].ids
        return Prompt([1, count], inputs.prompt.request, m.Sampling(), count + 1, frozenset({0}), state=count)

    def step(self, batch: Sequence[SequenceStep]) -> list[StepOutput]:
        time.sleep(STEP_S)
        return [self._one(step) for step in batch]

    def _one(self, step: SequenceStep) -> StepOutput:
        if not step.sample:
            return StepOutput()
        over = len(step.outputs) == step.prompt.state
        return StepOutput(0 if over else 1, np.zeros(WIDTH, np.float32))

    def close(self, prompt: Prompt) -> None:
        return None


class _Decode(_Warm):
    def token_bytes(self, token: int) -> bytes:
        return b"."


class _Talker(NothingToPark, _Warm):
    max_states = 8

    def open(self, turn: m.TurnId) -> list[float]:
        return []

    def feed(self, state: object, payload: m.EdgePayload) -> None:
        now = time.monotonic_ns()
        assert isinstance(state, list)
        if isinstance(payload, m.TokenVector):
            sent = now if payload.vector is None else int(payload.vector.view(np.int64)[0])
            state.append((now - sent) / 1e3 if payload.finish_reason is None else None)
        else:
            state.append(-1.0)

    def ready(self, state: object) -> bool:
        return bool(state)

    def step(self, states: Sequence[object]) -> list[TalkerOutput]:
        return [self._one(state) for state in states]

    def _one(self, state: object) -> TalkerOutput:
        assert isinstance(state, list)
        took = [time for time in state if time is not None and time >= 0]
        done = None in state
        consumed = len(state)
        state.clear()
        frames = np.array(took, np.float32).reshape(-1, 1)
        return TalkerOutput(m.CodeFrames(frames, segment_end=done, last=done), consumed, done)

    def close(self, state: object) -> None:
        return None


class _Code2Wav(_Warm):
    spec = WaveSpec(8000, 1, 0, 0, 1, None, 8, 64)

    def open(self) -> object:
        return object()

    def decode(self, windows: Sequence[WaveWindow]) -> list[np.ndarray]:
        return [window.frames[:, 0].astype(np.float32) for window in windows]

    def close(self, state: object) -> None:
        return None


class _Pack:
    def build(self, stage: Stage) -> AnyRunner:
        match stage:
            case Stage.PREPROCESSING:
                return _Preprocessing()
            case Stage.IMAGE_ENCODER | Stage.AUDIO_ENCODER:
                return _Encoder()
            case Stage.THINKER:
                return _Thinker()
            case Stage.DECODE:
                return _Decode()
            case Stage.TALKER_AR:
                return _Talker()
            case Stage.CODE2WAV:
                return _Code2Wav()


def create(config: PackConfig, report: Report) -> _Pack:
    """The pack. Vectors get the time at which they are sent."""
    send = Outlet.send

    def stamped(self: Outlet, turn: m.TurnId, payload: object) -> None:
        if isinstance(payload, m.TokenVector) and payload.vector is not None:
            payload.vector.view(np.int64)[0] = time.monotonic_ns()
        send(self, turn, payload)

    Outlet.send = stamped
    return _Pack()
