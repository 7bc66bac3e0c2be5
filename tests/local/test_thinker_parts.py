"""Prompts that come in parts are answered, bit by bit, as if they had come whole."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from thinker_talks import Reply, Talks, by_turns

from voice_app.config import PackConfig
from voice_app.messages import Embeddings, Media, PromptIds, PromptParams, Sampling, Span, ToolSpec
from voice_app.models.local import thinker as thinker_module
from voice_app.models.local.brain import PackagedBrain
from voice_app.models.local.paged_attention import PAGE_SIZE
from voice_app.models.local.prompt import Turn, camera_text, in_parts
from voice_app.models.local.thinker import Thinker
from voice_app.models.local.understanding import Likelihood, Remembered

pytestmark = pytest.mark.models

SPEECH, MUG, DOG = Media("speech", "audio"), Media("mug", "image"), Media("dog", "image")
HISTORY = by_turns("My name is Anna.", "Nice to meet you, Anna!", "What do owls eat?", "Owls eat mice.")
GREEDY = PromptParams(greedy=True)
CALL = ToolSpec("call", "Call somebody", '{"type": "object", "properties": {"who": {"type": "string"}}}')


@pytest.fixture(scope="module")
def brain() -> PackagedBrain:
    torch.set_num_threads(1)
    return PackagedBrain(PackConfig(), lambda _: None)


@pytest.fixture(scope="module")
def whole(brain: PackagedBrain) -> Talks:
    """For prompts that come whole."""
    return Talks(brain.thinker())


@pytest.fixture(scope="module")
def thinker(brain: PackagedBrain) -> Thinker:
    return brain.thinker()


@pytest.fixture(scope="module")
def parted(thinker: Thinker) -> Talks:
    """For prompts that come in parts; a few positions a step, so that the rest may come amidst a part."""
    return Talks(thinker, step_tokens=16)


@dataclass(frozen=True)
class Ask:
    """What is heard and seen with the last of `turns`, and before."""

    words: str
    turns: tuple[Turn, ...] = (*HISTORY, Turn("user", (SPEECH,)))
    params: PromptParams = GREEDY

    def spans(self, brain: PackagedBrain) -> tuple[Span, ...]:
        return brain.frame.spans(self.turns)

    def part(
        self, brain: PackagedBrain, spans: Sequence[Span], *, more: bool = False
    ) -> list[PromptIds | Embeddings]:
        """One part of it, with its media."""
        texts = {SPEECH: self.words, MUG: camera_text("coffee mug"), DOG: camera_text("dog", "STOP")}
        media = {span.media: brain.encode(texts[span.media]) for span in spans if span.media}
        return [
            PromptIds(tuple(spans), self.params, more),
            *(Embeddings(m, brain.embed(ids).reshape(-1, 576), ids=tuple(ids)) for m, ids in media.items()),
        ]


def cut(spans: Sequence[Span], places: Sequence[int]) -> list[list[Span]]:
    """`spans` in parts, cut at places between ids, media and marks."""
    pieces = [p for span in spans for p in ([Span(ids=(i,)) for i in span.ids] if span.ids else [span])]
    return [pieces[start:end] for start, end in pairwise([0, *sorted(places), len(pieces)])]


def answered(
    brain: PackagedBrain,
    talks: Talks,
    ask: Ask,
    parts: Sequence[Sequence[Span]] | None = None,
    steps: int = 100_000,
) -> Reply:
    """To the whole prompt, or to its `parts`, with so many steps before each further one."""
    turn = talks.open(str(len(talks.replies)))
    *begins, last = parts or [ask.spans(brain)]
    for spans in begins:
        talks.tell(turn, *ask.part(brain, spans, more=True))
        talks.run(steps)
        assert talks.replies[turn] == Reply()
    talks.tell(turn, *ask.part(brain, last))
    talks.run()
    assert talks.scheduler.load().waiting == talks.scheduler.load().pages_used == 0
    return talks.replies[turn]


def assert_same(reply: Reply, expected: Reply) -> None:
    assert (reply.ids, reply.finish_reason) == (expected.ids, expected.finish_reason)
    assert str(reply.error) == str(expected.error)
    np.testing.assert_array_equal(np.array(reply.vectors), np.array(expected.vectors))
    assert reply.usage.prompt_tokens == expected.usage.prompt_tokens
    assert reply.usage.output_tokens == expected.usage.output_tokens


def params(*, seed: int | None = None, stop: tuple[str, ...] = (), most: int = 8) -> PromptParams:
    return PromptParams(Sampling(max_tokens=most, seed=seed, stop=stop), greedy=seed is None)


SEEN = (Turn("user", (DOG, "What is this?")), Turn("assistant", ("That is a dog.",)))
ASKS = {
    "a question": Ask("Which bird can not fly?"),
    "no history": Ask("Which bird can not fly?", (Turn("user", (SPEECH,)),)),
    "pictures": Ask("What have I got here?", (*SEEN, Turn("user", (MUG, SPEECH)))),
    "instructions": Ask("Who are you?", (Turn("system", ("You are a pirate.",)), Turn("user", (SPEECH,)))),
    "words before it": Ask("the moon?", (*HISTORY, Turn("user", ("How far away is", SPEECH)))),
    "no sense": Ask("Blue seven running the yesterday cheese."),
    "a sum": Ask("What is twelve times seven?"),
    "what was said before": Ask("What's my name?"),
    "silence": Ask(""),
    "the rest of an answer": Ask("", params=PromptParams(greedy=True, unsaid="and mice eat cheese.")),
    "a demanded call": Ask("Call Ann.", params=PromptParams(tools=(CALL,), tool_choice="required")),
    "a seed": Ask("Tell me a story.", params=params(seed=5)),
    "a stop string": Ask("Tell me a story.", params=params(stop=("e",))),
    "no clock": Ask("What time is it?", params=PromptParams(now="noon")),
}


@pytest.mark.parametrize("name", ASKS)
def test_what_stands_before_the_question_comes_before(
    brain: PackagedBrain, whole: Talks, parted: Talks, name: str
) -> None:
    ask = ASKS[name]
    expected = answered(brain, whole, ask)
    parts = in_parts(ask.spans(brain))
    assert len(parts) == 2
    for steps in (100_000, 0, 1):
        assert_same(answered(brain, parted, ask, parts, steps), expected)


@pytest.mark.parametrize("name", ["pictures", "words before it"])
def test_cut_anywhere(brain: PackagedBrain, whole: Talks, parted: Talks, name: str) -> None:
    """Nothing but the examples is in the cache: each prompt goes on otherwise after them."""
    length, dice = sum(max(1, len(span.ids)) for span in ASKS[name].spans(brain)), random.Random(name)
    for number in range(12):
        first = Turn("system", (f"{name}, {number}.",))
        ask = Ask(ASKS[name].words, (first, *ASKS[name].turns), params(most=3))
        spans = ask.spans(brain)
        places = dice.sample(range(length - 30, length + 4), 1 + number // 6)
        got = answered(brain, parted, ask, cut(spans, places), dice.choice((1, 2, 3, 100_000)))
        assert_same(got, answered(brain, whole, ask))


def test_the_same_words_are_judged(
    brain: PackagedBrain,
    thinker: Thinker,
    whole: Talks,
    parted: Talks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The row right before the question is computed with the question, wherever the pages end."""
    judged: dict[int, float] = {}
    asked: list[Sequence[int]] = []

    class Noted(Likelihood):
        def __init__(self, ids: Sequence[int], positions: Sequence[int], remembered: Remembered) -> None:
            super().__init__(ids, positions, remembered)
            asked.append(list(positions))

        def add(self, start: int, rows: Sequence[int], logits: np.ndarray) -> None:
            super().add(start, rows, logits)
            judged.update(zip((start + row + 1 for row in rows), logits.sum(axis=1).tolist(), strict=True))

    monkeypatch.setattr(thinker_module, "Likelihood", Noted)
    starts = set()
    for length in range(1, 1 + thinker.page_size):
        # None finds another's question in the cache: the words before differ.
        turns = (Turn("system", ("Be " + "very " * length + "brief.",)), Turn("user", (SPEECH,)))
        ask = Ask("Which bird can not fly?", turns, params(most=1))
        found = []
        for talks, parts in ((whole, None), (parted, in_parts(ask.spans(brain)))):
            judged.clear()
            answered(brain, talks, ask, parts)
            assert list(judged) == asked[-1]
            found.append(dict(judged))
        assert found[0] == found[1]
        starts.add(min(judged) % thinker.page_size)
    assert len(starts) == thinker.page_size


def test_all_but_the_last_position_is_computed_before(brain: PackagedBrain, whole: Talks) -> None:
    """As far as whole pages keep it."""
    turns = (Turn("system", ("Be kind. " * 20,)), Turn("user", (SPEECH,)))
    ask = Ask("Which bird can not fly?", turns)
    first, last = in_parts(ask.spans(brain))
    before = sum(len(span.ids) for span in first)
    turn = whole.open("begun")
    whole.tell(turn, *ask.part(brain, first, more=True))
    whole.run()
    assert (whole.scheduler.load().waiting, whole.scheduler.load().pages_used) == (1, 0)
    other = whole.open("another")
    whole.tell(other, *ask.part(brain, [*first, *last]))
    whole.run()
    cached = whole.replies[other].usage.cached_tokens
    assert cached == (before - 1) // PAGE_SIZE * PAGE_SIZE
    whole.scheduler.cancel(turn)
    assert whole.scheduler.load().waiting == 0


def test_many_at_once_say_what_each_says_alone(brain: PackagedBrain, whole: Talks, parted: Talks) -> None:
    asks = [
        Ask(question, (Turn("system", (f"You are {who}.",)), Turn("user", (SPEECH,))), params())
        for question in ("Why do cats purr?", "How tall is a giraffe?", "What is 2 plus 2?")
        for who in ("a pirate", "a poet", "a cook")
    ]
    dice = random.Random(3)
    late = {}
    for ask in asks:
        first, last = in_parts(ask.spans(brain))
        turn = parted.open(str(len(parted.replies)))
        late[turn] = [ask.part(brain, first, more=True), ask.part(brain, last)]
    turns = list(late)
    while late:
        turn = dice.choice(list(late))
        parted.tell(turn, *late[turn].pop(0))
        if not late[turn]:
            del late[turn]
        parted.run(dice.randrange(4))
    parted.run()
    for ask, turn in zip(asks, turns, strict=True):
        assert_same(parted.replies[turn], answered(brain, whole, ask))
    assert parted.scheduler.load().pages_used == 0


def test_what_is_too_long_by_then_is_refused_at_once(brain: PackagedBrain, parted: Talks) -> None:
    ask = Ask("Hello.", (Turn("system", ("word " * 3000,)), Turn("user", (SPEECH,))))
    first, _ = in_parts(ask.spans(brain))
    turn = parted.open("too long")
    parted.tell(turn, *ask.part(brain, first, more=True))
    parted.run()
    error = parted.replies[turn].error
    assert error is not None
    assert error.param == "messages"
    assert parted.scheduler.load().waiting == 0
