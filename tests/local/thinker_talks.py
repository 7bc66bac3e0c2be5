"""Drives a thinker through its real scheduler; a small tokenizer for tests without models."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from voice_app.errors import VoiceAppError
from voice_app.messages import (
    EdgePayload,
    Embeddings,
    PromptIds,
    PromptParams,
    Sampling,
    Span,
    StageEvent,
    TokenId,
    TokenVector,
    ToolSpec,
    TurnId,
    Usage,
)
from voice_app.models.local.brain import Brain
from voice_app.models.local.prompt import Turn
from voice_app.schedulers.base import StageInput, ThinkerRunner
from voice_app.schedulers.omni import OmniScheduler

DEFAULT = Sampling()
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def small_tokenizer() -> Tokenizer:
    """Byte-level BPE of 400 words, with ChatML's control tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["what is the name of the cat and the dog in the house"] * 20, trainer)
    return made


@dataclass
class Reply:
    """What a turn gave: token ids, vectors, the end."""

    ids: list[int] = field(default_factory=list)
    vectors: list[np.ndarray] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    error: VoiceAppError | None = None


class Talks:
    """A scheduler over `thinker` and what it sent."""

    def __init__(self, thinker: ThinkerRunner, *, step_tokens: int = 256) -> None:
        self.replies: dict[TurnId, Reply] = {}
        self.scheduler = OmniScheduler(thinker, self, step_tokens=step_tokens)

    def ask(
        self,
        name: str,
        spans: Sequence[Span],
        media: Sequence[Embeddings] = (),
        *,
        now: str | None = None,
        sampling: Sampling = DEFAULT,
        unsaid: str = "",
        tools: tuple[ToolSpec, ...] = (),
        tool_choice: str = "auto",
    ) -> TurnId:
        turn = self.open(name)
        params = PromptParams(
            sampling=sampling,
            greedy=sampling == DEFAULT,
            tools=tools,
            tool_choice=tool_choice,
            now=now,
            unsaid=unsaid,
        )
        self.tell(turn, PromptIds(tuple(spans), params), *media)
        return turn

    def open(self, name: str) -> TurnId:
        turn = TurnId(name, name)
        self.replies[turn] = Reply()
        return turn

    def tell(self, turn: TurnId, *payloads: PromptIds | Embeddings) -> None:
        for payload in payloads:
            self.scheduler.receive(StageInput(turn, payload, speech=True))

    def run(self, steps: int = 100_000) -> None:
        while steps and self.scheduler.step():
            steps -= 1

    def emit(self, turn: TurnId, payload: EdgePayload | StageEvent) -> None:
        reply = self.replies[turn]
        if isinstance(payload, TokenId):
            reply.ids += [] if payload.id is None else [payload.id]
            reply.finish_reason, reply.usage = payload.finish_reason, payload.usage
        elif isinstance(payload, TokenVector) and payload.vector is not None:
            reply.vectors.append(payload.vector)

    def has_room(self, turn: TurnId) -> bool:
        return True

    def fail(self, turn: TurnId, error: VoiceAppError) -> None:
        self.replies[turn].error = error

    def finish(self, turn: TurnId) -> None: ...

    def charge(self, turns: Sequence[TurnId], seconds: float) -> None: ...


def say(
    brain: Brain,
    thinker: ThinkerRunner,
    *turns: str,
    now: str | None = None,
    sampling: Sampling = DEFAULT,
) -> str:
    """The answer to the last of `turns`, which are the user's and the assistant's by turns."""
    talks = Talks(thinker)
    turn = talks.ask("say", brain.frame.spans(by_turns(*turns)), now=now, sampling=sampling)
    talks.run()
    return brain.tokens.decode(talks.replies[turn].ids)


def by_turns(*texts: str) -> list[Turn]:
    """A talk: the user begins."""
    return [Turn("assistant" if place % 2 else "user", (text,)) for place, text in enumerate(texts)]
