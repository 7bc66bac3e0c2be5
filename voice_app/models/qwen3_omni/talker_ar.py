"""The talker's runner: its own prompt, a frame of codes a step, the code predictor inside the step."""

import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from msgspec import structs
from torch import nn

from voice_app.errors import InputError
from voice_app.messages import (
    CodeFrames,
    EdgePayload,
    Embeddings,
    PromptHidden,
    PromptIds,
    PromptParams,
    TokenVector,
    TurnId,
)
from voice_app.models.paged_attention import Chunk, KVPool
from voice_app.models.qwen3_omni.adapter import Module
from voice_app.models.qwen3_omni.arrays import to_tensor
from voice_app.models.qwen3_omni.code_sampler import Row
from voice_app.models.qwen3_omni.facts import TalkerFacts
from voice_app.models.qwen3_omni.graphs import Lane
from voice_app.models.qwen3_omni.positions import Run
from voice_app.models.qwen3_omni.talker_model import Parked, TalkerModel
from voice_app.models.qwen3_omni.talker_prompt import ANSWER_ROWS, TalkerPlan, plan_prompt
from voice_app.models.qwen3_omni.thinker import run_of
from voice_app.schedulers.base import TalkerOutput
from voice_app.schedulers.kv_cache import PagePool, pages_for

GROUP_FRAMES = 10
"""Most frames in one payload. Groups grow 1, 1, 2, 4, 8, 10, … so that sound starts with the first."""
MAX_FED = 8
"""Inputs that wait for the rest of the prompt before they are taken up: a sender's credit for a turn is
limited, and a prompt may have more media than that."""
_SEED_SALT = 0x7461_6C6B_6572
"""Parts the talker's draws from the thinker's, which count from 0 under the same seed."""


@dataclass(slots=True, eq=False)
class _Voice:
    """One turn's state."""

    prompt: PromptIds | None = None
    media: dict[str, Run] = field(default_factory=dict)
    has_picture: bool = False
    heard: torch.Tensor | None = None
    """Hidden states [n, thinker_hidden] at `heard_at` [n]."""
    heard_at: np.ndarray | None = None
    text: deque[torch.Tensor] = field(default_factory=deque)
    """Answer tokens' vectors not spoken yet."""
    text_over: bool = False
    marked: bool = False
    """Whether the end mark was put in behind the text."""
    plan: TalkerPlan | None = None
    fed: int = 0
    """Payloads taken since the last step."""
    slot: int = -1
    """-1: it is parked."""
    pages: list[int] = field(default_factory=list)
    parked: Parked | None = None
    """What was in its slot and pages, until there are others."""
    length: int = 0
    """Positions in the cache; 0: the prompt is still to be computed."""
    seed: int = 0
    frames: int = 0
    max_frames: int = 0
    held: list[np.ndarray] = field(default_factory=list)
    """Frames made and not sent."""
    group: int = 1
    """Frames of the next payload."""
    sent: int = 0


class Talker:
    """A `TalkerRunner`. Pages for the longest reply that a turn may make are set aside as it starts;
    until they are free the turn is not ready."""

    def __init__(
        self,
        talker: Module,
        text_embedding: nn.Embedding,
        facts: TalkerFacts,
        pool: KVPool,
        max_states: int,
        default_voice: str | None = None,
    ) -> None:
        self.max_states = max_states
        self._facts = facts
        self._default_voice = default_voice
        self._pool = pool
        self._pages = PagePool(pool.pages)
        self._lane = Lane(pool.device)
        self._model = TalkerModel(talker, text_embedding, facts, pool, max_states)
        self._slots = list(range(max_states - 1, -1, -1))

    @property
    def text_width(self) -> int:
        """Width of the vectors that the thinker sends."""
        return self._model.embed_text.embedding_dim

    # ------------------------------------------------------------------------------------------ states

    def open(self, turn: TurnId) -> object:
        return _Voice(slot=self._slots.pop(), seed=secrets.randbits(63))

    def close(self, state: object) -> None:
        self._leave(_voice(state))

    @torch.inference_mode()
    def park(self, state: object) -> None:
        voice = _voice(state)
        if voice.length and voice.pages:
            with self._lane():
                voice.parked = self._model.take_out(voice.slot, voice.pages, voice.length)
        self._leave(voice)

    def unpark(self, state: object) -> None:
        # Pages follow as it gets ready: they may all be taken now.
        _voice(state).slot = self._slots.pop()

    def _leave(self, voice: _Voice) -> None:
        if voice.slot >= 0:
            self._slots.append(voice.slot)
            voice.slot = -1
        self._pages.release(voice.pages)
        voice.pages = []

    @torch.inference_mode()
    def feed(self, state: object, payload: EdgePayload) -> None:
        voice = _voice(state)
        voice.fed += 1
        with self._lane():
            self._take(voice, payload)

    def _take(self, voice: _Voice, payload: EdgePayload) -> None:
        if isinstance(payload, PromptIds):
            self._take_prompt(voice, payload)
        elif isinstance(payload, Embeddings):
            voice.media[payload.media.key] = run_of(payload, self._facts.merge)
            voice.has_picture |= payload.grid is not None
        elif isinstance(payload, PromptHidden):
            voice.heard = to_tensor(payload.rows, self._model.dtype, self._model.device)
            voice.heard_at = payload.positions.copy()
        elif isinstance(payload, TokenVector):
            # The last token of an answer is never fed to the thinker, so it is not spoken either.
            voice.text_over |= payload.finish_reason is not None
            if payload.vector is not None and payload.finish_reason is None:
                voice.text.append(to_tensor(payload.vector, self._model.dtype, self._model.device))

    def _take_prompt(self, voice: _Voice, payload: PromptIds) -> None:
        """The prompt, or the next part of it; its own is made of the whole."""
        if voice.prompt is not None:
            spans = voice.prompt.spans + payload.spans
            voice.prompt = structs.replace(voice.prompt, spans=spans, more=payload.more)
            return
        params = payload.request
        self._facts.speaker(params.voice or self._default_voice)
        voice.prompt = payload
        if params.sampling.seed is not None:
            voice.seed = params.sampling.seed ^ _SEED_SALT

    def ready(self, state: object) -> bool:
        voice = _voice(state)
        return self._can_speak(voice) or (voice.fed >= MAX_FED and not self._has_inputs(voice))

    def _has_inputs(self, voice: _Voice) -> bool:
        """Whether the whole prompt is there, with all its media."""
        if voice.prompt is None or voice.prompt.more:
            return False
        wanted = {span.media.key for span in voice.prompt.spans if span.media is not None}
        return wanted <= voice.media.keys()

    def _can_speak(self, voice: _Voice) -> bool:
        """Whether the next frame can be made; without one to make, that the voice is over."""
        if voice.length:
            return (bool(voice.text) or voice.text_over) and self._is_back(voice)
        if not (voice.text or voice.text_over) or not self._has_inputs(voice):
            return False
        if self._silent(voice):
            return True
        with torch.inference_mode(), self._lane():
            return self._reserve(voice)

    def _silent(self, voice: _Voice) -> bool:
        """Nothing is to be said: the answer was empty, or one token that the thinker never took back."""
        return not voice.length and voice.text_over and not voice.text

    def _reserve(self, voice: _Voice) -> bool:
        if voice.pages:
            return True
        if voice.plan is None:
            assert voice.prompt is not None
            voice.plan = plan_prompt(
                voice.prompt.spans, voice.media, self._facts.tokens, has_picture=voice.has_picture
            )
            voice.text.extendleft(
                reversed(self._model.embed_text(self._model.ids(voice.plan.ahead)).unbind(0))
            )
            voice.max_frames = self._bound(voice.prompt.request, len(voice.plan.ids) + ANSWER_ROWS)
        if not self._take_pages(voice, voice.plan):
            return False
        self._model.sampler.reset(voice.slot)
        return True

    def lacks_memory(self, state: object) -> bool:
        voice = _voice(state)
        # `ready` planned it, with text and all inputs there, or it is back from being parked.
        if voice.plan is None or voice.pages or not (voice.text or voice.text_over):
            return False
        return self._needed(voice, voice.plan) > self._pages.free

    def _needed(self, voice: _Voice, plan: TalkerPlan) -> int:
        """Pages for its prompt and the longest reply."""
        return pages_for(plan.positions.shape[1] + voice.max_frames, self._pool.page_size)

    def _take_pages(self, voice: _Voice, plan: TalkerPlan) -> bool:
        need = self._needed(voice, plan)
        if need > self._pages.free:
            return False
        voice.pages = self._pages.allocate(need)
        return True

    def _is_back(self, voice: _Voice) -> bool:
        """Whether a turn that had begun has its cache, which was put aside as it was parked."""
        if voice.parked is None:
            return True
        assert voice.plan is not None
        if not self._take_pages(voice, voice.plan):
            return False
        with torch.inference_mode(), self._lane():
            self._model.put_back(voice.slot, voice.pages, voice.parked)
        voice.parked = None
        return True

    def _bound(self, params: PromptParams, rows: int) -> int:
        """Most frames of a reply after a prompt of `rows`."""
        most = min(self._facts.decoder.max_positions, self._pages.total * self._pool.page_size) - rows
        if most < 1:
            raise InputError(
                f"the user's turns are {rows} positions long for the talker; at most {rows + most - 1} fit: "
                "send a shorter history",
                param="messages",
            )
        return min(most, params.max_frames or self._facts.max_frames)

    # -------------------------------------------------------------------------------------------- step

    @torch.inference_mode()
    def step(self, states: Sequence[object]) -> Sequence[TalkerOutput]:
        voices = [_voice(state) for state in states]
        consumed = [voice.fed for voice in voices]
        for voice in voices:
            voice.fed = 0
        able = {id(voice) for voice in voices if self._can_speak(voice)}
        speaking = [voice for voice in voices if id(voice) in able and not self._silent(voice)]
        # Frames fed back first, one row each; then prompts.
        speaking.sort(key=lambda voice: voice.length == 0)
        with self._lane():
            codes = self._frame(speaking) if speaking else np.empty((0, 0), np.int64)
        frames = {id(voice): row for voice, row in zip(speaking, codes, strict=True)}
        return [
            self._output(voice, frames.get(id(voice)), count)
            if id(voice) in able
            else TalkerOutput(consumed=count)
            for voice, count in zip(voices, consumed, strict=True)
        ]

    @torch.inference_mode()
    def capture(self) -> None:
        """From now on make frames that follow on frames at fixed addresses, captured if there is CUDA."""
        with self._lane():
            self._model.capture(self._lane, self._facts.decoder.max_positions)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Capture, if the attention kernel can be; then a prompt and frames of every batch size, in powers
        of two."""
        if self._pool.use_varlen:
            self.capture()
        size = 1
        while size <= self.max_states:
            voices = [self._blank(slot) for slot in range(size)]
            with self._lane():
                for _ in range(2):
                    self._frame(voices)
            size *= 2
        for slot in range(self.max_states):
            self._model.sampler.reset(slot)

    def _blank(self, slot: int) -> _Voice:
        rows = 2 + ANSWER_ROWS
        plan = TalkerPlan(
            ids=np.zeros(2, np.int64),
            heard=np.full(2, -1),
            header=(0, 0, 0),
            ahead=(),
            positions=np.zeros((3, rows), np.int64),
            next_position=rows,
        )
        text = deque(self._model.embed_text(self._model.ids([0])).unbind(0))
        pages = list(range(pages_for(rows + 2, self._pool.page_size)))
        prompt = PromptIds((), PromptParams())
        return _Voice(plan=plan, text=text, text_over=True, slot=slot, pages=pages, prompt=prompt)

    def _frame(self, voices: list[_Voice]) -> np.ndarray:
        """Codes [n, groups] int64 of each voice's next frame; those fed back stand first."""
        backs = [voice for voice in voices if voice.length]
        prompts = [self._prompt_rows(voice) for voice in voices[len(backs) :]]
        chunks = [Chunk(voice.pages, voice.length, 1) for voice in backs]
        positions = [np.array([_next_position(voice) for voice in backs], np.int64)[None].repeat(3, axis=0)]
        for voice in voices[len(backs) :]:
            assert voice.plan is not None
            positions.append(voice.plan.positions)
            chunks.append(Chunk(voice.pages, 0, voice.plan.positions.shape[1]))
        rows = [Row(voice.slot, voice.frames, voice.seed, _is_greedy(voice)) for voice in voices]
        text = self._next_text(backs)
        codes = self._model.frames(prompts, text, chunks, np.concatenate(positions, axis=1), rows)
        for voice, chunk in zip(voices, chunks, strict=True):
            voice.length += chunk.count
        return codes

    def _next_text(self, voices: list[_Voice]) -> torch.Tensor:
        """[n, hidden]: each voice's next text, the mark of its end, or a pad."""
        saying = [voice for voice in voices if voice.text]
        spoken: dict[int, torch.Tensor] = {}
        if saying:
            rows = self._model.text_rows([voice.text.popleft() for voice in saying])
            spoken = {id(voice): row for voice, row in zip(saying, rows.unbind(0), strict=True)}
        rows = [spoken[id(v)] if id(v) in spoken else self._after_text(v) for v in voices]
        return torch.stack(rows) if rows else self._model.text_pad.new_empty((0, len(self._model.text_pad)))

    def _after_text(self, voice: _Voice) -> torch.Tensor:
        row = self._model.text_pad if voice.marked else self._model.text_end
        voice.marked = True
        return row

    def _prompt_rows(self, voice: _Voice) -> torch.Tensor:
        plan = voice.plan
        assert plan is not None
        assert voice.prompt is not None
        heard = self._model.text_pad.new_empty((0, 0))
        wanted = plan.heard[plan.heard >= 0]
        if len(wanted):
            assert voice.heard is not None
            assert voice.heard_at is not None
            heard = voice.heard[self._model.ids(np.searchsorted(voice.heard_at, wanted))]
        speaker = self._facts.speaker(voice.prompt.request.voice or self._default_voice)
        return self._model.prompt_rows(plan, speaker, heard, voice.text.popleft())

    def _output(self, voice: _Voice, frame: np.ndarray | None, consumed: int) -> TalkerOutput:
        if frame is None or frame[0] == self._facts.codec_eos:
            return TalkerOutput(self._release(voice, last=True), consumed, done=True)
        voice.held.append(frame)
        voice.frames += 1
        last = voice.frames >= voice.max_frames
        if last or len(voice.held) >= voice.group or not self._can_speak(voice):
            return TalkerOutput(self._release(voice, last), consumed, done=last)
        return TalkerOutput(consumed=consumed)

    def _release(self, voice: _Voice, last: bool) -> CodeFrames:
        frames = np.array(voice.held, np.int64).reshape(-1, self._facts.groups)
        voice.held = []
        voice.sent += len(frames)
        voice.group = min(GROUP_FRAMES, max(1, voice.sent))
        return CodeFrames(frames, segment_end=last, last=last)


def _next_position(voice: _Voice) -> int:
    """The rope position of a frame fed back, the same on all three axes."""
    assert voice.plan is not None
    return voice.plan.next_position + voice.length - voice.plan.positions.shape[1]


def _is_greedy(voice: _Voice) -> bool:
    assert voice.prompt is not None
    return voice.prompt.request.greedy


def _voice(state: object) -> _Voice:
    assert isinstance(state, _Voice)
    return state
