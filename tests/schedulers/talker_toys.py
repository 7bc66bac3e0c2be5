"""A talker for the scheduler's tests, its clock, and what it is to say."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scheduler_toys import Crash, Tray

from voice_app.messages import CodeFrames, EdgePayload, PromptIds, PromptParams, TokenVector, TurnId
from voice_app.schedulers.base import TalkerOutput


@dataclass(eq=False)
class Speaker:
    """One turn of the toy: a frame is a running hash of the vectors used; two more follow the last."""

    turn: TurnId
    prompt: bool = False
    vectors: list[TokenVector] = field(default_factory=list)
    used: int = 0
    tail: int = 0
    value: int = 0
    parked: bool = False
    memory: bool = False


@dataclass
class ToyTalker:
    """Starts when the prompt, one vector and memory are there; a step uses up one vector."""

    max_states: int = 4
    free_memory: int = 100
    """Turns that can be under way at once."""
    open_states: int = 0
    most_open: int = 0
    sizes: list[int] = field(default_factory=list)
    crash: bool = False
    crash_on: TurnId | None = None
    """Whom it cannot say whether it is ready."""
    says_last: bool = True
    parks: int = 0

    def warm_up(self) -> None:
        pass

    def open(self, turn: TurnId) -> object:
        self.open_states += 1
        self.most_open = max(self.most_open, self.open_states)
        return Speaker(turn)

    def park(self, state: object) -> None:
        assert isinstance(state, Speaker)
        assert not state.parked
        state.parked = True
        self.open_states -= 1
        self.parks += 1
        self._free(state)

    def unpark(self, state: object) -> None:
        assert isinstance(state, Speaker)
        assert state.parked
        state.parked = False
        self.open_states += 1
        self.most_open = max(self.most_open, self.open_states)

    def feed(self, state: object, payload: EdgePayload) -> None:
        assert isinstance(state, Speaker)
        assert not state.parked
        if isinstance(payload, PromptIds):
            state.prompt = True
        else:
            assert isinstance(payload, TokenVector)
            state.vectors.append(payload)

    def ready(self, state: object) -> bool:
        assert isinstance(state, Speaker)
        assert not state.parked
        if state.turn == self.crash_on:
            raise Crash
        if self._wants_memory(state) and self.free_memory:
            self.free_memory -= 1
            state.memory = True
        return self._has_inputs(state) and state.memory

    def lacks_memory(self, state: object) -> bool:
        assert isinstance(state, Speaker)
        assert not state.parked
        return self._wants_memory(state) and not self.free_memory

    def _has_inputs(self, state: Speaker) -> bool:
        return state.prompt and (state.used < len(state.vectors) or state.tail > 0)

    def _wants_memory(self, state: Speaker) -> bool:
        return self._has_inputs(state) and not state.memory

    def _free(self, state: Speaker) -> None:
        self.free_memory += state.memory
        state.memory = False

    def step(self, states: Sequence[object]) -> Sequence[TalkerOutput]:
        assert all(self.ready(state) for state in states)
        if self.crash:
            raise Crash
        self.sizes.append(len(states))
        return [self._advance(state) for state in states if isinstance(state, Speaker)]

    def close(self, state: object) -> None:
        assert isinstance(state, Speaker)
        self.open_states -= not state.parked
        self._free(state)

    def _advance(self, state: Speaker) -> TalkerOutput:
        consumed = 0
        if not state.tail:
            vector = state.vectors[state.used]
            state.used += 1
            consumed = 2 if state.used == 1 else 1  # With the first goes the prompt.
            state.value = _frame(state.value, vector.id)
            if vector.finish_reason:
                state.tail = 3
        state.tail -= state.tail > 0
        done = state.tail == 0 and state.vectors[state.used - 1].finish_reason is not None
        frames = CodeFrames(np.array([[state.value]]), last=done and self.says_last)
        return TalkerOutput(frames, consumed, done)


class Time:
    """The scheduler's clock."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def _frame(value: int, token: int | None) -> int:
    return (value * 31 + (0 if token is None else token + 1)) % 1009


def frames_of(tokens: Sequence[int]) -> list[int]:
    """The toy's frames of a whole answer that ends with an EOS."""
    value, frames = 0, []
    for token in (*tokens, None):
        value = _frame(value, token)
        frames.append(value)
    return [*frames, value, value]


def heard(tray: Tray, turn: TurnId) -> list[int]:
    return [p.frames.item() for p in tray.sent[turn] if isinstance(p, CodeFrames) and len(p.frames)]


def payloads_of(tokens: Sequence[int]) -> list[PromptIds | TokenVector]:
    vectors = [TokenVector(token, np.zeros(2, np.float32)) for token in tokens]
    return [PromptIds((), PromptParams()), *vectors, TokenVector(None, None, "stop")]
