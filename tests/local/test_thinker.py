"""The packaged brain under its scheduler: right weights, exact batching, prefix cache, what it says."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from thinker_talks import Reply, Talks, by_turns, say
from transformers import LlamaConfig, LlamaForCausalLM

from voice_app.bench.lean_thinker import LeanLoop
from voice_app.config import PackConfig
from voice_app.messages import Embeddings, Media, Sampling, ToolSpec
from voice_app.models.local.assets import ensure
from voice_app.models.local.brain import PackagedBrain
from voice_app.models.local.brain_weights import GgufBrain
from voice_app.models.local.engine import Chunk
from voice_app.models.local.engine_onnx import OnnxEngine
from voice_app.models.local.paged_attention import PAGE_SIZE
from voice_app.models.local.prompt import UNCLEAR, Turn, camera_text
from voice_app.models.local.thinker import Thinker

pytestmark = pytest.mark.models

TEXT = (
    "The old lighthouse stood on a rocky hill above the sea. Every evening the keeper climbed the stairs and "
    "lit the lamp, so that ships could find their way into the harbour. One night a storm came up, and the "
    "waves were higher than he had ever seen. He stayed awake until morning, and every ship came home."
)
QUESTIONS = (
    "What do owls eat?",
    "How does a kite fly?",
    "Which metal is liquid at room temperature?",
    "Tell me about volcanoes.",
    "Who invented the telephone?",
    "What is the largest desert?",
    "Why do cats purr?",
    "Name a musical instrument with strings.",
    "What is cheese made of?",
    "How tall is a giraffe?",
    "What should I pack for the beach?",
    "Where do penguins live?",
)


@pytest.fixture(scope="module")
def brain() -> PackagedBrain:
    torch.set_num_threads(1)
    return PackagedBrain(PackConfig(), lambda _: None)


@pytest.fixture(scope="module")
def engine(brain: PackagedBrain) -> OnnxEngine:
    return OnnxEngine(brain.files, kv_bytes=64 << 20, max_positions=512)


@pytest.fixture(scope="module")
def thinker(brain: PackagedBrain) -> Thinker:
    return brain.thinker()


def pages_of(engine: OnnxEngine, positions: int) -> range:
    return range(-(-positions // engine.page_size))


def forward(engine: OnnxEngine, ids: Sequence[int], cuts: Sequence[int], pages: Sequence[int]) -> np.ndarray:
    return np.concatenate(
        [
            engine.forward(engine.embed(ids[start:end]), [Chunk(start, end - start, pages)])
            for start, end in pairwise(cuts)
        ]
    )


def reference(gguf: GgufBrain) -> LlamaForCausalLM:
    """transformers' own Llama in float32 with the file's weights."""
    shape = gguf.shape
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=shape.vocab,
            hidden_size=shape.width,
            intermediate_size=shape.inner,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            rms_norm_eps=shape.norm_epsilon,
            rope_parameters={"rope_type": "default", "rope_theta": shape.rope_base},
            tie_word_embeddings=True,
        )
    )
    state = {"model.norm.weight": gguf.tensor("output_norm.weight")}
    state["model.embed_tokens.weight"] = state["lm_head.weight"] = gguf.tensor("token_embd.weight")
    for layer in range(shape.layers):
        ours, theirs = f"blk.{layer}", f"model.layers.{layer}"
        state[f"{theirs}.self_attn.q_proj.weight"] = gguf.rotary(f"{ours}.attn_q.weight", shape.heads)
        state[f"{theirs}.self_attn.k_proj.weight"] = gguf.rotary(f"{ours}.attn_k.weight", shape.kv_heads)
        for name, part in (
            ("self_attn.v_proj", "attn_v"),
            ("self_attn.o_proj", "attn_output"),
            ("mlp.gate_proj", "ffn_gate"),
            ("mlp.up_proj", "ffn_up"),
            ("mlp.down_proj", "ffn_down"),
            ("input_layernorm", "attn_norm"),
            ("post_attention_layernorm", "ffn_norm"),
        ):
            state[f"{theirs}.{name}.weight"] = gguf.tensor(f"{ours}.{part}.weight")
    model.load_state_dict({name: torch.tensor(weight) for name, weight in state.items()})
    return model.eval()


def test_agrees_with_transformers_in_float32(brain: PackagedBrain, engine: OnnxEngine) -> None:
    ids = brain.encode(TEXT)
    with torch.inference_mode():
        expected = reference(GgufBrain(ensure("smollm2")))(torch.tensor([ids])).logits[0].numpy()
    logits = engine.logits(forward(engine, ids, (0, len(ids)), pages_of(engine, len(ids))))
    assert (logits.argmax(1) == expected.argmax(1)).mean() >= 0.9
    # The right next word of a plain text is likely for both, not merely the same.
    assert np.corrcoef(logits.ravel(), expected.ravel())[0, 1] > 0.99


def test_chunks_pages_and_company_change_no_bit(brain: PackagedBrain, engine: OnnxEngine) -> None:
    ids = brain.encode(TEXT)
    first = pages_of(engine, len(ids))
    whole = forward(engine, ids, (0, len(ids)), first)
    scattered = np.random.default_rng(0).permutation(engine.num_pages - 8)[: len(first)].tolist()
    others = range(engine.num_pages - 8, engine.num_pages)
    np.testing.assert_array_equal(forward(engine, ids, (0, 1, 18, 50, 51, 52, len(ids)), scattered), whole)
    # One position at a time, each beside another sequence's prefill of another length.
    other = brain.encode("Something else is said at the same time. " * 10)
    rows = []
    for place in range(40):
        count = 1 + place % 7
        x = np.concatenate([engine.embed(other[:count]), engine.embed(ids[place : place + 1])])
        batch = [Chunk(0, count, others), Chunk(place, 1, scattered)]
        rows.append(engine.forward(x, batch)[-1])
    np.testing.assert_array_equal(np.stack(rows), whole[:40])


def test_the_head_gives_each_row_the_same_alone(brain: PackagedBrain, engine: OnnxEngine) -> None:
    hidden = forward(engine, brain.encode(TEXT)[:12], (0, 12), pages_of(engine, 12))
    alone = np.concatenate([engine.logits(hidden[row : row + 1]) for row in range(12)])
    np.testing.assert_array_equal(engine.logits(hidden), alone)


def test_says_what_a_plain_loop_over_the_engine_says(
    brain: PackagedBrain, engine: OnnxEngine, thinker: Thinker
) -> None:
    """Token for token: schedules, pages, prefixes and rows ahead change nothing."""
    for question in QUESTIONS[:6]:
        spans = brain.frame.spans(by_turns(question))
        talks = Talks(thinker)
        turn = talks.ask("one", spans, sampling=Sampling(repetition_penalty=1.0))
        talks.run()
        said = talks.replies[turn].ids
        ids = [token for span in spans for token in span.ids]
        pages, start, expected = pages_of(engine, len(ids) + len(said)), 0, list[int]()
        for _ in said:
            hidden = engine.forward(engine.embed(ids[start:]), [Chunk(start, len(ids) - start, pages)])
            expected.append(int(engine.logits(hidden[-1:]).argmax()))
            start, ids = len(ids), [*ids, expected[-1]]
        assert said == expected


def test_finds_likely_what_the_lean_loop_finds_likely(brain: PackagedBrain, thinker: Thinker) -> None:
    """Both have the same weights; where they add up in another order, a row is rounded to 8 bits in another
    way now and then, and of two tokens that are nearly as likely the other one wins."""
    lean = LeanLoop(brain.files)
    same, count = 0, 0
    for question in QUESTIONS[:6]:
        spans = brain.frame.spans(by_turns(question))
        talks = Talks(thinker)
        turn = talks.ask("one", spans, sampling=Sampling(repetition_penalty=1.0))
        talks.run()
        ids = talks.replies[turn].ids
        logits = lean.logits([token for span in spans for token in span.ids], ids)
        below = logits.max(axis=1) - logits[range(len(ids)), ids]
        assert below.max() < 1.0
        same += int((below == 0).sum())
        count += len(ids)
    assert same / count > 0.85


def test_twelve_at_once_say_what_each_says_alone(brain: PackagedBrain, thinker: Thinker) -> None:
    alone = [say(brain, thinker, question) for question in QUESTIONS]
    talks = Talks(thinker, step_tokens=64)
    for place, question in enumerate(QUESTIONS):
        talks.ask(str(place), brain.frame.spans(by_turns(question)))
        talks.run(steps=place % 4)
    talks.run()
    together = [brain.tokens.decode(reply.ids) for reply in talks.replies.values()]
    assert together == alone
    assert len(set(alone)) == len(QUESTIONS)
    assert talks.scheduler.load().pages_used == 0


def test_a_budget_smaller_than_the_load_queues(brain: PackagedBrain) -> None:
    page = 2 * 4 * PAGE_SIZE * 30 * 3 * 64
    room = 720 // PAGE_SIZE
    small = PackagedBrain(PackConfig(kv_bytes=room * page), lambda _: None).thinker()
    assert small.num_pages == room
    talks = Talks(small)
    for place, question in enumerate(QUESTIONS):
        talks.ask(str(place), brain.frame.spans(by_turns(question)))
    talks.run()
    assert all(reply.finish_reason == "stop" and not reply.error for reply in talks.replies.values())


def test_the_example_turns_are_computed_once_and_history_is_reused(
    brain: PackagedBrain, thinker: Thinker
) -> None:
    talks = Talks(thinker)

    def ask(*turns: str) -> Reply:
        turn = talks.ask(str(len(talks.replies)), brain.frame.spans(by_turns(*turns)))
        talks.run()
        return talks.replies[turn]

    first = ask("Tell me about volcanoes.")
    answer = brain.tokens.decode(first.ids)
    other = ask("What do owls eat?")
    examples = len(brain.frame.spans(())[0].ids)
    assert min(first.usage.cached_tokens, other.usage.cached_tokens) >= examples - 2 * thinker.page_size
    follow_up = ask("Tell me about volcanoes.", answer, "Are they dangerous?")
    known = first.usage.prompt_tokens + first.usage.output_tokens
    assert follow_up.usage.cached_tokens >= known - thinker.page_size
    assert brain.tokens.decode(follow_up.ids) == say(
        brain, thinker, "Tell me about volcanoes.", answer, "Are they dangerous?"
    )


def test_speech_is_read_from_its_embeddings(brain: PackagedBrain, thinker: Thinker) -> None:
    """The rows count, not only the ids that they come with."""
    speech = Media("speech", "audio")
    spans = brain.frame.spans([Turn("user", (speech,))])
    asked, other = brain.encode("What do owls eat?"), brain.encode("What do cats eat?")
    assert len(asked) == len(other)

    def heard(rows: np.ndarray) -> str:
        talks = Talks(thinker)
        turn = talks.ask("one", spans, [Embeddings(speech, rows, ids=tuple(asked))])
        talks.run()
        return brain.tokens.decode(talks.replies[turn].ids)

    assert heard(brain.embed(asked)) == say(brain, thinker, "What do owls eat?")
    assert heard(brain.embed(other)) == say(brain, thinker, "What do cats eat?") != heard(brain.embed(asked))


def test_every_token_has_a_vector(brain: PackagedBrain, thinker: Thinker) -> None:
    talks = Talks(thinker)
    turn = talks.ask("one", brain.frame.spans(by_turns("What do owls eat?")))
    talks.run()
    reply = talks.replies[turn]
    assert len(reply.vectors) == len(reply.ids) > 0
    assert {vector.shape for vector in reply.vectors} == {(576,)}


def test_silence_is_not_answered(brain: PackagedBrain, thinker: Thinker) -> None:
    speech, picture = Media("speech", "audio"), Media("picture", "image")
    mug = tuple(brain.encode(camera_text("coffee mug")))
    talks = Talks(thinker)
    turn = talks.ask(
        "one",
        brain.frame.spans([Turn("user", (picture, speech))]),
        [
            Embeddings(picture, brain.embed(mug), ids=mug),
            Embeddings(speech, np.zeros((0, 576), np.float32)),
        ],
    )
    talks.run()
    assert talks.replies[turn] == Reply(finish_reason="silence")


@pytest.mark.parametrize(("words", "resumed"), [("", True), ("What is two plus two?", False)])
def test_a_sound_without_words_lets_the_answer_go_on(
    brain: PackagedBrain, thinker: Thinker, words: str, resumed: bool
) -> None:
    speech, rest = Media("speech", "audio"), "and the moon follows it around the sun."
    heard = tuple(brain.encode(words))
    talks = Talks(thinker)
    turn = talks.ask(
        "one",
        brain.frame.spans([*by_turns("Tell me of the earth.", "The earth turns,"), Turn("user", (speech,))]),
        [Embeddings(speech, brain.embed(heard) if words else np.zeros((0, 576), np.float32), ids=heard)],
        unsaid=rest,
    )
    talks.run()
    reply = talks.replies[turn]
    assert brain.tokens.decode(reply.ids) == (rest if resumed else "2 plus 2 is 4.")
    assert reply.finish_reason == "stop"
    assert len(reply.vectors) == len(reply.ids), "the talker speaks it"


def test_too_much_at_once_is_refused(brain: PackagedBrain, thinker: Thinker) -> None:
    talks = Talks(thinker)
    turn = talks.ask("one", brain.frame.spans(by_turns("word " * 3000)))
    talks.run()
    error = talks.replies[turn].error
    assert error is not None
    assert error.code == "invalid_input"
    assert error.param == "messages"


def test_a_clock_that_is_none_is_refused(brain: PackagedBrain, thinker: Thinker) -> None:
    talks = Talks(thinker)
    turn = talks.ask("one", brain.frame.spans(by_turns("What time is it?")), now="noon")
    talks.run()
    error = talks.replies[turn].error
    assert error is not None
    assert error.param == "now"


def test_a_long_talk_goes_on(brain: PackagedBrain, thinker: Thinker) -> None:
    talk = ["Tell me a long story about a lighthouse.", TEXT] * 40
    assert say(brain, thinker, *talk, "What is the capital of Norway?")


@pytest.mark.parametrize(
    ("talk", "held"),
    [
        (("What is twelve times seven?",), "84"),
        (("What time is it?",), "9:05 PM"),
        (("What day is it today?",), "Sunday, November 29"),
        (
            ("My name is Anna.", "Nice to meet you, Anna!", "What do owls eat?", "Mice.", "What's my name?"),
            "Anna",
        ),
        (("[camera: street sign; text: EXIT]\nWhat does the sign say?",), "EXIT"),
    ],
)
def test_what_a_rule_gets_right(
    brain: PackagedBrain, thinker: Thinker, talk: tuple[str, ...], held: str
) -> None:
    assert held in say(brain, thinker, *talk, now="2026-11-29T21:05:00+00:00")


@pytest.mark.parametrize("step_tokens", [16, 256])
def test_words_that_make_no_sense_are_not_answered(
    brain: PackagedBrain, thinker: Thinker, step_tokens: int
) -> None:
    talks = Talks(thinker, step_tokens=step_tokens)
    for place in range(2):  # The second finds its words in the prefix cache.
        talks.ask(str(place), brain.frame.spans(by_turns("Blue seven running the yesterday cheese.")))
        talks.run()
    answers = {brain.tokens.decode(reply.ids) for reply in talks.replies.values()}
    assert answers == {"Sorry, I didn't understand that. Could you say it again?"}


def test_speech_that_was_not_understood_is_asked_for_again(brain: PackagedBrain, thinker: Thinker) -> None:
    assert say(brain, thinker, "What do owls eat?", "Owls eat mice.", UNCLEAR).startswith("Sorry, I didn't")


@pytest.mark.parametrize(("words", "called"), [("Call Ann.", True), (UNCLEAR, False)])
def test_nothing_is_called_for_speech_that_was_not_understood(
    brain: PackagedBrain, thinker: Thinker, words: str, called: bool
) -> None:
    schema = '{"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}'
    talks = Talks(thinker)
    turn = talks.ask(
        "one",
        brain.frame.spans(by_turns(words)),
        tools=(ToolSpec("call", "Call somebody", schema),),
        tool_choice="required",
    )
    talks.run()
    reply = talks.replies[turn]
    assert reply.finish_reason == ("tool_call" if called else "stop")
    assert brain.tokens.decode(reply.ids).startswith("Sorry, I didn't") is not called


def test_an_answer_is_one_or_two_speakable_sentences(brain: PackagedBrain, thinker: Thinker) -> None:
    for question in QUESTIONS:
        answer = say(brain, thinker, question)
        assert answer.strip()
        assert "\n" not in answer
        assert len(brain.encode(answer)) <= 80


def test_a_stop_string_ends_the_answer(brain: PackagedBrain, thinker: Thinker) -> None:
    whole = say(brain, thinker, "Tell me about volcanoes.")
    # Where a token begins: one that holds more before it would still be in the ids.
    ids = brain.encode(whole)
    stop = brain.tokens.decode(ids[len(ids) // 2 :])[:4]
    talks = Talks(thinker)
    turn = talks.ask(
        "one", brain.frame.spans(by_turns("Tell me about volcanoes.")), sampling=Sampling(stop=(stop,))
    )
    talks.run()
    said = brain.tokens.decode(talks.replies[turn].ids)
    assert said
    assert whole.startswith(said)
    assert stop not in said
    assert talks.replies[turn].finish_reason == "stop"


def test_seeded_sampling_is_the_requests_own(brain: PackagedBrain, thinker: Thinker) -> None:
    sampling = Sampling(temperature=1.0, seed=5)
    alone = say(brain, thinker, "Tell me about volcanoes.", sampling=sampling)
    talks = Talks(thinker)
    turns = [
        talks.ask(name, brain.frame.spans(by_turns("Tell me about volcanoes.")), sampling=how)
        for name, how in (("a", Sampling(temperature=1.0, seed=6)), ("b", sampling))
    ]
    talks.run()
    other, same = (brain.tokens.decode(talks.replies[turn].ids) for turn in turns)
    assert same == alone != other
