"""Rows computed ahead change nothing but how many engine passes an answer takes."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from thinker_talks import Reply, Talks, by_turns

from voice_app.config import PackConfig
from voice_app.messages import Sampling, TurnId
from voice_app.models.local.brain import STYLE, PackagedBrain
from voice_app.models.local.engine import Chunk
from voice_app.models.local.engine_onnx import OnnxEngine
from voice_app.models.local.paged_attention import PAGE_SIZE
from voice_app.models.local.thinker import Thinker

pytestmark = pytest.mark.models

PAGE_BYTES = 2 * 4 * PAGE_SIZE * 30 * 3 * 64
SAMPLED = Sampling(temperature=0.8, seed=7, max_tokens=24)
ASKED: tuple[tuple[tuple[str, ...], Sampling], ...] = (
    (("What is the capital of Italy?",), Sampling()),
    (("What is the tallest mountain in the world?",), Sampling()),
    (("Why do cats purr?",), Sampling()),
    (("What is the opposite of big?",), Sampling(repetition_penalty=1.0)),
    (("What do owls eat?", "Owls eat mice.", "What do mice eat?"), Sampling()),
    (("What is twelve times seven?",), Sampling()),
    (("Blue seven running the yesterday cheese.",), Sampling()),
    (("What is the longest river in the world?",), SAMPLED),
    (("Tell me about volcanoes.",), SAMPLED),
    (("What is twelve times eight?",), Sampling(max_tokens=4)),
    (("Who was the first man on the moon?",), Sampling(max_tokens=6)),
    (("What is the boiling point of water?",), Sampling(stop=("100",))),
)


class Counted(OnnxEngine):
    """Notes the rows of each pass, and of each time that the head is read."""

    def __init__(self, brain: PackagedBrain, pages: int, *, exact: bool = True) -> None:
        super().__init__(brain.files, pages * PAGE_BYTES, max_positions=1024)
        self.exact = exact
        self.passes: list[int] = []
        self.heads: list[int] = []

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        self.heads.append(len(hidden))
        return super().logits(hidden)

    def forward(self, x: np.ndarray, chunks: Sequence[Chunk]) -> np.ndarray:
        self.passes.append(len(x))
        return super().forward(x, chunks)


class Jammed(Talks):
    """Now and then an answer has no room for its next token."""

    def __init__(self, thinker: Thinker, dice: random.Random, *, step_tokens: int = 256) -> None:
        self._dice = dice
        super().__init__(thinker, step_tokens=step_tokens)

    def has_room(self, turn: TurnId) -> bool:
        return self._dice.random() < 0.8

    def finish_all(self) -> int:
        """How often an answer's pages were taken back: it waits again."""
        found, load = 0, self.scheduler.load()
        while load.running or load.waiting:
            self.scheduler.step()
            before, load = load, self.scheduler.load()
            found += load.waiting > before.waiting
        return found


@pytest.fixture(scope="module")
def brain() -> PackagedBrain:
    torch.set_num_threads(1)
    return PackagedBrain(PackConfig(), lambda _: None)


@pytest.fixture(scope="module")
def engine(brain: PackagedBrain) -> Counted:
    return Counted(brain, 1200)


@pytest.fixture(scope="module")
def expected(brain: PackagedBrain) -> list[Reply]:
    """Each answer alone, nothing computed ahead."""
    talks = Talks(made(brain, Counted(brain, 1200, exact=False)))
    return [alone(brain, talks, *asked) for asked in ASKED]


def made(brain: PackagedBrain, engine: Counted) -> Thinker:
    ends = frozenset(brain.tokens.id(name) for name in ("<|im_end|>", "<|endoftext|>"))
    return Thinker(engine, brain.tokens, ends, STYLE, brain.frame.spans(()))


def begin(brain: PackagedBrain, talks: Talks, talk: Sequence[str], sampling: Sampling) -> TurnId:
    return talks.ask(str(len(talks.replies)), brain.frame.spans(by_turns(*talk)), sampling=sampling)


def alone(brain: PackagedBrain, talks: Talks, talk: Sequence[str], sampling: Sampling) -> Reply:
    turn = begin(brain, talks, talk, sampling)
    talks.run()
    return talks.replies[turn]


def assert_same(reply: Reply, other: Reply) -> None:
    assert not reply.error
    assert (reply.ids, reply.finish_reason) == (other.ids, other.finish_reason)
    assert len(reply.vectors) == len(other.vectors) > 0
    np.testing.assert_array_equal(np.array(reply.vectors), np.array(other.vectors))
    assert reply.usage.output_tokens == other.usage.output_tokens


def test_an_answer_alone(brain: PackagedBrain, engine: Counted, expected: list[Reply]) -> None:
    talks = Talks(made(brain, engine))
    spared = []
    for asked, reply in zip(ASKED, expected, strict=True):
        engine.passes.clear()
        assert_same(alone(brain, talks, *asked), reply)
        ended = reply.finish_reason == "stop" and len(reply.ids) > 1
        spared.append(len(reply.ids) + ended - len(engine.passes))
    assert spared[0] >= 2, "the capital of Italy"
    assert sum(count > 0 for count in spared) >= 6


def test_the_head_is_read_once_for_a_token(brain: PackagedBrain, engine: Counted) -> None:
    """With the first for the question's words too."""
    talks = Talks(made(brain, engine))
    engine.heads.clear()
    reply = alone(brain, talks, ("Which fish live in the cold sea?",), Sampling())
    first, *rest = engine.heads
    assert first > 1
    assert set(rest) == {1}
    assert len(engine.heads) in (len(reply.ids), len(reply.ids) + 1), "the last may be the end's"


def test_known_answers_take_a_pass_a_page(brain: PackagedBrain, engine: Counted) -> None:
    talks = Talks(made(brain, engine))
    for number in range(20, 20 + PAGE_SIZE):
        engine.passes.clear()
        question = "Please, " * (number - 19) + f"What is {number} times 12?"
        reply = alone(brain, talks, (question,), Sampling())
        prefill, *rest = engine.passes
        assert brain.tokens.decode(reply.ids) == f"{number} times 12 is {number * 12}."
        # The last token needs no row, and the prompt's own last page has up to three places.
        assert len(rest) <= -(-(len(reply.ids) - 1) // PAGE_SIZE)
        assert max(rest) <= PAGE_SIZE < prefill
        assert sum(rest) < len(reply.ids)


def test_nothing_is_guessed_in_company(brain: PackagedBrain, engine: Counted) -> None:
    talks = Talks(made(brain, engine))
    for number in range(3):
        begin(brain, talks, (f"What is the capital of {('Italy', 'Spain', 'Japan')[number]}?",), Sampling())
    talks.run(steps=3)
    engine.passes.clear()
    talks.run(steps=3)
    assert engine.passes == [3, 3, 3]


@pytest.mark.parametrize("step_tokens", [16, 256])
def test_in_a_batch(brain: PackagedBrain, engine: Counted, expected: list[Reply], step_tokens: int) -> None:
    """They come and go, and some have no room for a while: what was computed ahead is then too old."""
    thinker = made(brain, engine)
    for seed in range(2):
        dice = random.Random(seed)
        talks = Jammed(thinker, dice, step_tokens=step_tokens)
        order = dice.sample(range(len(ASKED)), len(ASKED))
        turns = {}
        for place in order:
            turns[place] = begin(brain, talks, *ASKED[place])
            for _ in range(dice.choice((0, 1, 5, 12))):
                talks.scheduler.step()
        talks.finish_all()
        for place, turn in turns.items():
            assert_same(talks.replies[turn], expected[place])
        assert talks.scheduler.load().pages_used == 0


def test_pages_that_were_taken_back(brain: PackagedBrain, expected: list[Reply]) -> None:
    """With room for few, answers lose their pages in the middle and get others, or the same."""
    prompts = [brain.frame.spans(by_turns(*talk)) for talk, _ in ASKED]
    longest = max(sum(len(span.ids) for span in spans) for spans in prompts)
    thinker = made(brain, Counted(brain, -(-(longest + 24) // PAGE_SIZE)))
    for seed in range(3):
        dice = random.Random(seed)
        talks = Jammed(thinker, dice)
        turns = {p: begin(brain, talks, *ASKED[p]) for p in dice.sample(range(len(ASKED)), len(ASKED))}
        assert talks.finish_all() >= 2
        for place, turn in turns.items():
            assert_same(talks.replies[turn], expected[place])


def test_cancelled_answers_leave_a_clean_cache(
    brain: PackagedBrain, engine: Counted, expected: list[Reply]
) -> None:
    """What was guessed is in a page that is cached, or filled anew, after the cancel."""
    talks = Talks(made(brain, engine))
    fresh = Talks(made(brain, Counted(brain, 1200, exact=False)))
    for place in (0, 5):
        talk, sampling = ASKED[place]
        follow_up = *talk, brain.tokens.decode(expected[place].ids), "Why?"
        after = alone(brain, fresh, follow_up, Sampling(max_tokens=4))
        for steps in range(2, 2 + PAGE_SIZE):
            turn = begin(brain, talks, talk, sampling)
            talks.run(steps)
            assert len(talks.replies[turn].ids) < len(expected[place].ids)
            talks.scheduler.cancel(turn)
            assert_same(alone(brain, talks, talk, sampling), expected[place])
            assert_same(alone(brain, talks, follow_up, Sampling(max_tokens=4)), after)
