"""`--brain` over tiny random models of two families, written in transformers' own format."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from thinker_talks import CHAT_TEMPLATE, Talks, by_turns, small_tokenizer
from transformers import (
    GPTNeoXConfig,
    LlamaConfig,
    MambaConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from voice_app.config import PackConfig
from voice_app.errors import ConfigError
from voice_app.messages import Embeddings, Media, PromptIds, PromptParams, Sampling
from voice_app.models.local.brain import Brain, open_brain
from voice_app.models.local.prompt import Turn, in_parts
from voice_app.schedulers.base import ThinkerRunner

SHAPE: dict[str, Any] = {
    "vocab_size": 400,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "eos_token_id": 2,
    "max_position_embeddings": 4096,
}
FAMILIES = {
    "llama": LlamaConfig(**SHAPE),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen3": Qwen3Config(**SHAPE, head_dim=32),
    "neox": GPTNeoXConfig(**{k: v for k, v in SHAPE.items() if k != "num_key_value_heads"}),
}
TALKS = [
    ("what is the cat",),
    ("the dog in the house", "and the cat", "what is the name of the dog"),
    ("a",),
    ("the name of the house and the name of the dog and the name of the cat " * 4,),
]


def write(folder: Path, config: Any) -> Path:
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            # Far apart logits: the best token is never a matter of rounding.
            parameter.mul_(3)
    model.save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=small_tokenizer(), chat_template=CHAT_TEMPLATE, eos_token="<|im_end|>"
    )
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=FAMILIES)
def brain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Brain, Path]:
    folder = write(tmp_path_factory.mktemp(request.param), FAMILIES[request.param])
    config = PackConfig(brain=str(folder), dtype="float32", kv_bytes=2 << 20)
    return open_brain(config, lambda _: None), folder


def generated(folder: Path, ids: list[int], ends: frozenset[int], count: int) -> list[int]:
    """What transformers itself says, up to the first token that ends an answer here."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.set_num_threads(1)
    out = model.generate(
        torch.tensor([ids]),
        do_sample=False,
        max_new_tokens=count,
        eos_token_id=sorted(ends),
        begin_suppress_tokens=sorted(ends),
        pad_token_id=0,
    )
    said = out[0, len(ids) :].tolist()
    return said[:-1] if said[-1] in ends else said


def asked(thinker: ThinkerRunner, brain: Brain, *, staggered: bool, step_tokens: int = 64) -> Talks:
    talks = Talks(thinker, step_tokens=step_tokens)
    for place, turns in enumerate(TALKS):
        talks.ask(str(place), brain.frame.spans(by_turns(*turns)), sampling=Sampling(max_tokens=20))
        if staggered:
            talks.run(steps=3)
    talks.run()
    return talks


def test_a_staggered_batch_says_what_generate_says(brain: tuple[Brain, Path]) -> None:
    opened, folder = brain
    thinker = opened.thinker()
    talks = asked(thinker, opened, staggered=True)
    for place, (reply, turns) in enumerate(zip(talks.replies.values(), TALKS, strict=True)):
        ids = [token for span in opened.frame.spans(by_turns(*turns)) for token in span.ids]
        ends = frozenset({2} | {t for t in range(400) if b"\n" in opened.tokens.token_bytes(t)})
        expected = generated(folder, ids, ends, 20)
        assert reply.ids == expected[: len(reply.ids)], place
        assert reply.finish_reason == "stop" or len(reply.ids) == len(expected) == 20


def test_the_prefix_cache_is_hit_and_changes_nothing(brain: tuple[Brain, Path]) -> None:
    opened, _ = brain
    thinker = opened.thinker()
    first = asked(thinker, opened, staggered=False, step_tokens=1000)
    second = Talks(thinker)
    for name in ("cold", "warm"):
        second.ask(name, opened.frame.spans(by_turns(*TALKS[0])), sampling=Sampling(max_tokens=20))
        second.run()
    cold, warm = second.replies.values()
    examples = sum(len(span.ids) for span in opened.frame.spans(()))
    assert cold.usage.cached_tokens >= examples - 3 * thinker.page_size
    assert warm.usage.cached_tokens >= warm.usage.prompt_tokens - 2 * thinker.page_size
    assert warm.ids == cold.ids == next(iter(first.replies.values())).ids


def test_what_stands_before_speech_comes_before(brain: tuple[Brain, Path]) -> None:
    opened, _ = brain
    thinker, speech = opened.thinker(), Media("speech", "audio")
    params = PromptParams(Sampling(max_tokens=12), greedy=True)
    talks = Talks(thinker, step_tokens=32)
    for place, (*history, question) in enumerate(TALKS):
        spans = opened.frame.spans([*by_turns(*history), Turn("user", (speech,))])
        ids = opened.encode(question)
        heard = Embeddings(speech, opened.embed(ids), ids=tuple(ids))
        parts = in_parts(spans)
        assert len(parts) == 2
        for name, told, steps in (("parts", parts, 1000), ("amidst", parts, 1), ("whole", [spans], 0)):
            *begins, last = told
            turn = talks.open(f"{name} {place}")
            for begin in begins:
                talks.tell(turn, PromptIds(begin, params, more=True))
                talks.run(steps)
            talks.tell(turn, PromptIds(last, params), heard)
            talks.run()
    replies = list(talks.replies.values())
    for first, second, whole in zip(replies[::3], replies[1::3], replies[2::3], strict=True):
        assert first.ids == second.ids == whole.ids != []
    assert talks.scheduler.load().pages_used == 0


def write_gguf(path: Path, folder: Path) -> None:
    """The tiny Llama in `folder` as a GGUF file in float32."""
    state = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    config, vocabulary = FAMILIES["llama"], json.loads((folder / "tokenizer.json").read_text())["model"]
    out = GGUFWriter(path, "llama")
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_rope_freq_base(config.rope_parameters["rope_theta"])
    out.add_rope_dimension_count(config.head_dim)
    out.add_vocab_size(config.vocab_size)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("default")
    words = sorted(vocabulary["vocab"], key=vocabulary["vocab"].__getitem__)
    out.add_token_list(words)
    out.add_token_types([3 if word.startswith("<|") else 1 for word in words])
    out.add_token_merges([" ".join(merge) for merge in vocabulary["merges"]])
    out.add_eos_token_id(2)
    out.add_bos_token_id(1)
    out.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in state.items():
        values, heads = tensor.numpy(), {"q": config.num_attention_heads, "k": config.num_key_value_heads}
        if found := re.search(r"self_attn\.([qk])_proj", name):
            # GGUF keeps the two rotary halves of each head interleaved.
            halves = values.reshape(heads[found[1]], 2, -1, values.shape[1])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        for theirs, ours in GGUF_NAMES:
            name = name.replace(theirs, ours)
        out.add_tensor(name, np.ascontiguousarray(values))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


GGUF_NAMES = (
    ("model.embed_tokens", "token_embd"), ("model.layers", "blk"), ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"),
    ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"),
    ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"),
    ("model.norm", "output_norm"), ("lm_head", "output"),
)  # fmt: skip


def test_a_gguf_file_says_what_its_folder_says(tmp_path: Path) -> None:
    folder = write(tmp_path / "folder", FAMILIES["llama"])
    write_gguf(tmp_path / "brain.gguf", folder)
    said = []
    for name in (folder, tmp_path / "brain.gguf"):
        opened = open_brain(PackConfig(brain=str(name), dtype="float32", kv_bytes=2 << 20), lambda _: None)
        replies = asked(opened.thinker(), opened, staggered=False).replies.values()
        said.append([reply.ids for reply in replies])
    assert said[0] == said[1]
    assert any(said[0])


def test_embeddings_are_the_models_own(brain: tuple[Brain, Path]) -> None:
    opened, folder = brain
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    expected = model.get_input_embeddings().weight[[5, 7, 5]].detach().numpy()
    np.testing.assert_array_equal(opened.embed([5, 7, 5]), expected)


def test_a_model_with_another_kind_of_memory_is_refused(tmp_path: Path) -> None:
    config = MambaConfig(vocab_size=400, hidden_size=32, num_hidden_layers=2, state_size=4)
    folder = write(tmp_path / "mamba", config)
    with pytest.raises(ConfigError, match="--brain"):
        open_brain(PackConfig(brain=str(folder), dtype="float32"), lambda _: None).thinker()


@pytest.mark.parametrize("what", ["/no/such/folder", "not/found/anywhere", "/no/such/file.gguf"])
def test_what_is_not_there(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match=f"--brain {what}: ") as caught:
        open_brain(PackConfig(brain=what), lambda _: None)
    assert "\n" not in str(caught.value)


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, FAMILIES["llama"])
    with pytest.raises(ConfigError, match="device cuda:99: torch sees"):
        open_brain(PackConfig(brain=str(folder), devices={"thinker": "cuda:99"}), lambda _: None)


def test_the_layout_says_where_the_brain_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, FAMILIES["llama"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    opened = open_brain(PackConfig(brain=str(folder), dtype="float32"), lambda _: None)
    assert opened.embed([5]).shape[0] == 1


def short_llama(positions: int) -> LlamaConfig:
    config = LlamaConfig(**SHAPE)
    config.max_position_embeddings = positions
    return config


def test_a_long_talk_fits_a_short_context(tmp_path: Path) -> None:
    folder = write(tmp_path, short_llama(1500))
    opened = open_brain(PackConfig(brain=str(folder), dtype="float32", kv_bytes=2 << 20), lambda _: None)
    talks = Talks(opened.thinker())
    for count in range(1, 62, 6):
        turns = by_turns(*["the name of the dog in the house and the cat"] * count)
        talks.ask(str(count), opened.frame.spans(turns), sampling=Sampling(max_tokens=2))
    talks.run()
    assert [reply.error for reply in talks.replies.values()] == [None] * len(talks.replies)


def test_a_context_without_room_for_the_examples_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, short_llama(512))
    with pytest.raises(ConfigError, match="its context of 512 positions is"):
        open_brain(PackConfig(brain=str(folder)), lambda _: None)


def test_a_model_that_is_no_chat_model(tmp_path: Path) -> None:
    write(tmp_path, FAMILIES["llama"])
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="no chat template"):
        open_brain(PackConfig(brain=str(tmp_path)), lambda _: None)
