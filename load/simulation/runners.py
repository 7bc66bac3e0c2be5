"""Runners that compute nothing: they answer as the turn's shape says and note what the call would cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from weakref import WeakSet

import numpy as np

from load.simulation.costs import Costs
from load.simulation.shapes import Pack, Shape
from voice_app import messages as m
from voice_app.messages import TurnId
from voice_app.schedulers.base import (
    NoAnswer,
    NothingToPark,
    Prompt,
    PromptInputs,
    SequenceStep,
    StepOutput,
    TalkerOutput,
    WaveSpec,
    WaveWindow,
)

_NOTHING = np.zeros((1, 1), np.float32)
_RATE = 24_000


@dataclass(slots=True)
class Meter:
    """Seconds of the call that was just made."""

    seconds: float = 0.0

    def take(self) -> float:
        seconds, self.seconds = self.seconds, 0.0
        return seconds


@dataclass(frozen=True, slots=True)
class Asked:
    """One turn to be answered. `keys`: of its prompt's positions; equal beginnings are computed once.
    `says`: of the answer's tokens. `share`: of the question, what was said of it when the work began."""

    shape: Shape
    keys: list[int]
    says: list[int]
    share: float = 1.0


Lookup = Callable[[TurnId], Asked]


class Silent:
    """What no stub needs to do."""

    def __init__(self, pack: Pack, costs: Costs, asked: Lookup) -> None:
        self.meter = Meter()
        self.pack = pack
        self.costs = costs
        self.asked = asked

    def warm_up(self) -> None:
        return None


@dataclass(slots=True, eq=False)
class _Answer:
    """What the thinker keeps of one prompt. `left` rows from position `start` on were computed ahead by its
    step number `step`, and are of tokens that do come."""

    asked: Asked
    left: int = 0
    start: int = 0
    step: int = 0


class Thinker(Silent):
    """A `ThinkerRunner`. Rows are computed ahead as the local pack's (`voice_app.models.local.thinker`) does:
    of answers that a rule gives, as far as their page goes, where few are in a step; else of guesses, where
    an answer is alone in the step: as many, and as many right, as there were when it was measured."""

    overlaps = False
    grows = False
    least_part = 1
    FEW = 4

    def __init__(self, pack: Pack, costs: Costs, asked: Lookup) -> None:
        super().__init__(pack, costs, asked)
        self.page_size = pack.page_size
        self.num_pages = pack.pages
        self.max_positions = pack.max_positions
        self._steps = 0

    def assemble(self, inputs: PromptInputs) -> Prompt | NoAnswer:
        self.meter.seconds += self.costs.assemble()
        return self._prompt(self.asked(inputs.turn))

    def openings(self) -> Sequence[Prompt]:
        opening = Asked(Shape(0.0, 0, 1, (), ruled=True), list(range(self.pack.shared)), [0])
        return [self._prompt(opening)] if self.pack.shared else []

    def step(self, batch: Sequence[SequenceStep]) -> list[StepOutput]:
        self._steps += 1
        rows = [self._rows(step, len(batch)) for step in batch]
        decodes = sum(_decodes(step) and count > 0 for step, count in zip(batch, rows, strict=True))
        prefilled = sum(step.count for step in batch if not _decodes(step))
        self.meter.seconds += self.costs.thinker(
            int(any(rows)), decodes, sum(rows) - decodes - prefilled, prefilled, sum(map(_judged, batch))
        )
        return [self._output(step) for step in batch]

    def _rows(self, step: SequenceStep, company: int) -> int:
        """How many are computed for it now, `company` steps being in the batch; 0: there is one."""
        answer, end = _answer(step.prompt), step.start + step.count
        there = answer.left and (answer.step, answer.start, 1) == (self._steps - 1, step.start, step.count)
        ahead, right = (0, answer.left - 1) if there else self._ahead(step, company)
        answer.left, answer.start, answer.step = right, end, self._steps
        return 0 if there else step.count + ahead

    def _ahead(self, step: SequenceStep, company: int) -> tuple[int, int]:
        """How many are computed ahead of it, and how many of those are of the tokens that come."""
        end, said, shape = step.start + step.count, len(step.outputs), _asked(step.prompt).shape
        room = min(-end % self.page_size, self.max_positions - end)
        if self.pack.codes or not step.sample:
            return 0, 0
        if shape.ruled:
            known = min(room, shape.tokens - said - 1) if company <= self.FEW else 0
            return known, known
        if company > 1 or said > len(shape.passed):
            return 0, 0
        guessed = min(room, max(0, shape.passed[said - 1] - 1) if said else shape.guessed)
        right = len(list(takewhile(lambda rows: rows == 0, shape.passed[said:])))
        return guessed, min(guessed, right)

    def close(self, prompt: Prompt) -> None:
        return None

    def _prompt(self, asked: Asked) -> Prompt:
        most, state = asked.shape.tokens, _Answer(asked)
        return Prompt(asked.keys, m.PromptParams(), m.Sampling(), most, eos_ids=frozenset(), state=state)

    def _output(self, step: SequenceStep) -> StepOutput:
        if not step.sample:
            return StepOutput()
        place, asked = len(step.outputs), _asked(step.prompt)
        last = place + 1 >= step.prompt.max_tokens
        return StepOutput(asked.says[place], _NOTHING[0], finish_reason="stop" if last else None)


def _decodes(step: SequenceStep) -> bool:
    """It is one of an answer, not of a prompt."""
    return bool(step.outputs) and step.count == 1


def _judged(step: SequenceStep) -> int:
    """Rows of which it is asked what is likely next: the words of the question, and the last for a token."""
    shape = _asked(step.prompt).shape
    if shape.ruled:
        return 0
    return int(step.sample) + (0 if step.outputs else min(step.count - 1, shape.heard))


def _answer(prompt: Prompt) -> _Answer:
    assert isinstance(prompt.state, _Answer)
    return prompt.state


def _asked(prompt: Prompt) -> Asked:
    return _answer(prompt).asked


class Decoder(Silent):
    """A `TokenDecoder`."""

    def token_bytes(self, token: int) -> bytes:
        return b"x"


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Voice:
    """One turn's. `fed`: tokens; `spoken`: clauses that are over; `given`: the frame up to which the next one
    was given, None: it has not begun."""

    shape: Shape
    prompted: bool = False
    fed: int = 0
    unused: int = 0
    text_over: bool = False
    spoken: int = 0
    given: int | None = None
    frames: int = 0


class _Talker(NothingToPark, Silent):
    """What the two talkers share."""

    def __init__(self, pack: Pack, costs: Costs, asked: Lookup) -> None:
        super().__init__(pack, costs, asked)
        self.max_states = pack.states

    def open(self, turn: TurnId) -> object:
        return _Voice(self.asked(turn).shape)

    def feed(self, state: object, payload: m.EdgePayload) -> None:
        voice = _voice(state)
        voice.unused += 1
        if isinstance(payload, m.PromptIds):
            voice.prompted = True
        elif isinstance(payload, m.TokenVector):
            voice.fed += payload.id is not None
            voice.text_over = voice.text_over or payload.finish_reason is not None

    def close(self, state: object) -> None:
        return None


class ClauseTalker(_Talker):
    """A `TalkerRunner` that speaks clause by clause, as the local pack's does: in a step one clause of the
    turn that has spoken least, a turn's opening, or its first clause without one, in two parts."""

    FIRST_PART = 32
    FEW = 2

    def __init__(self, pack: Pack, costs: Costs, asked: Lookup) -> None:
        super().__init__(pack, costs, asked)
        self._open = WeakSet[_Voice]()

    def open(self, turn: TurnId) -> object:
        voice = _voice(super().open(turn))
        self._open.add(voice)
        return voice

    def close(self, state: object) -> None:
        self._open.discard(_voice(state))
        super().close(state)

    def ready(self, state: object) -> bool:
        voice = _voice(state)
        over = voice.prompted and voice.text_over and voice.spoken == len(voice.shape.clauses)
        return voice.unused > 0 or self._can_speak(voice) or over

    def step(self, states: Sequence[object]) -> list[TalkerOutput]:
        voices = [_voice(state) for state in states]
        able = filter(self._can_speak, voices)
        chosen = min(able, key=lambda voice: (voice.given is None, voice.frames), default=None)
        return [self._advance(voice, voice is chosen) for voice in voices]

    def _can_speak(self, voice: _Voice) -> bool:
        clauses = voice.shape.clauses
        if not voice.prompted or voice.spoken == len(clauses):
            return False
        if clauses[voice.spoken].end is not None and voice.given is None and len(self._open) > self.FEW:
            # No opening in company: the clause, when it is whole.
            return voice.text_over or voice.fed >= clauses[voice.spoken + 1].tokens
        return voice.given is not None or voice.text_over or voice.fed >= clauses[voice.spoken].tokens

    def _advance(self, voice: _Voice, speak: bool) -> TalkerOutput:
        consumed, voice.unused = voice.unused, 0
        frames = None
        if speak:
            clause = voice.shape.clauses[voice.spoken]
            begins = voice.given is None
            start = clause.start if voice.given is None else voice.given
            end = min(clause.over, self.FIRST_PART) if voice.frames == 0 else clause.over
            made = end - start
            self.meter.seconds += self.costs.talker(1, int(begins), begins * clause.frames, made)
            voice.frames += made
            over = end == clause.over
            voice.given, voice.spoken = (None, voice.spoken + 1) if over else (end, voice.spoken)
            whole = over and clause.end is None
            frames = m.CodeFrames(np.zeros((made, 1), np.float32), segment_end=whole)
        if voice.text_over and voice.spoken == len(voice.shape.clauses) and voice.prompted:
            rows = frames.frames if frames else np.zeros((0, 1), np.float32)
            return TalkerOutput(m.CodeFrames(rows, segment_end=True, last=True), consumed, done=True)
        return TalkerOutput(frames, consumed)


class FrameTalker(_Talker):
    """A `TalkerRunner` that makes a frame a step, of the next token while there are any."""

    def ready(self, state: object) -> bool:
        voice = _voice(state)
        return voice.prompted and (voice.text_over or voice.fed > voice.frames)

    def step(self, states: Sequence[object]) -> list[TalkerOutput]:
        self.meter.seconds += self.costs.talker(len(states), 0, 0, len(states))
        return [self._advance(_voice(state)) for state in states]

    def _advance(self, voice: _Voice) -> TalkerOutput:
        voice.frames += 1
        done = voice.frames >= voice.shape.frames
        consumed = voice.unused if done else min(voice.unused, 2 if voice.frames == 1 else 1)
        voice.unused -= consumed
        rows = np.zeros((1, 1), np.float32)
        return TalkerOutput(m.CodeFrames(rows, segment_end=done, last=done), consumed, done)


class Code2Wav(Silent):
    """A `Code2WavRunner`."""

    def __init__(self, pack: Pack, costs: Costs, asked: Lookup) -> None:
        super().__init__(pack, costs, asked)
        self._samples = round(pack.frame_s * _RATE)
        self.spec = WaveSpec(
            sample_rate=_RATE,
            samples_per_frame=self._samples,
            left_context=pack.left_context,
            right_context=pack.right_context,
            channels=1,
            codebook=None,
            first_window=pack.first_window,
            max_window=pack.max_window,
        )

    def open(self) -> object:
        return None

    def decode(self, windows: Sequence[WaveWindow]) -> list[np.ndarray]:
        self.meter.seconds += self.costs.code2wav(len(windows), sum(len(w.frames) for w in windows))
        return [np.zeros((len(w.frames) - w.left - w.right) * self._samples, np.float32) for w in windows]

    def close(self, state: object) -> None:
        return None


def _voice(state: object) -> _Voice:
    assert isinstance(state, _Voice)
    return state
