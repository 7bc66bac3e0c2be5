"""The talker by itself: when it is ready, how it ends, what it draws, and its code predictor."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import pytest
import torch
from harness import Harness
from omni_reference import Reference
from omni_requests import greedy, picture, sound, text, user
from transformers.generation.logits_process import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from voice_app import messages as m
from voice_app.config import PackConfig
from voice_app.errors import InputError
from voice_app.messages import Stage, TurnId
from voice_app.models.qwen3_omni.checkpoint import Checkpoint
from voice_app.models.qwen3_omni.code_predictor import CodePredictor
from voice_app.models.qwen3_omni.code_sampler import CodeSampler, Draws, Row
from voice_app.models.qwen3_omni.facts import TalkerFacts
from voice_app.models.qwen3_omni.pack import create
from voice_app.models.qwen3_omni.talker_ar import Talker
from voice_app.models.qwen3_omni.tiny_checkpoint import TinyShape
from voice_app.pipeline.credits import window_limit

DRAWS = 6000


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[..., Path]) -> Path:
    return checkpoint(0, TinyShape(eos_scale=0.0))


@pytest.fixture(scope="module")
def talker(folder: Path) -> Talker:
    pack = create(PackConfig("qwen3-omni", str(folder)), lambda _: None)
    return cast(Talker, pack.build(Stage.TALKER_AR))


def _prompt(folder: Path) -> m.PromptIds:
    config = Checkpoint(str(folder)).config
    start, role = config["im_start_token_id"], config["user_token_id"]
    ids = (start, role, 198, 40, 41, config["im_end_token_id"], 198, start, config["assistant_token_id"], 198)
    params = m.PromptParams(greedy=True, max_frames=5)
    return m.PromptIds((m.Span(ids=cast(tuple[int, ...], ids)),), params)


def _vector(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(64).astype(np.float32)


def test_starts_at_the_first_token_and_waits_for_each_text(talker: Talker, folder: Path) -> None:
    state = talker.open(TurnId("s", "t"))
    assert not talker.ready(state)
    talker.feed(state, _prompt(folder))
    assert not talker.ready(state)
    talker.feed(state, m.TokenVector(5, _vector(1)))
    assert talker.ready(state)
    (output,) = talker.step([state])
    assert output.frames is not None
    assert output.frames.frames.shape == (1, 16)
    assert output.consumed == 2
    assert not talker.ready(state), "the second frame needs the second token"
    talker.feed(state, m.TokenVector(6, _vector(2)))
    assert talker.ready(state)
    talker.step([state])
    talker.feed(state, m.TokenVector(None, None, "stop"))
    frames = 2
    while True:
        assert talker.ready(state), "behind the text's end nothing is waited for"
        (output,) = talker.step([state])
        frames += 0 if output.frames is None else len(output.frames.frames)
        if output.done:
            break
    assert frames == 5
    assert output.frames is not None
    assert output.frames.last
    talker.close(state)


def test_media_beyond_a_senders_credit(talker: Talker) -> None:
    """Before the prompt is there the senders of its media get their credit back, by steps without frames."""
    state = talker.open(TurnId("s", "t"))
    credit = window_limit(Stage.AUDIO_ENCODER, Stage.TALKER_AR)
    held = 0
    for number in range(3 * credit):
        assert held < credit, "the sender waits for credit, and the talker for what is not sent"
        talker.feed(state, m.Embeddings(m.Media(f"m{number}", "audio"), np.zeros((3, 64), np.float32)))
        held += 1
        if talker.ready(state):
            (output,) = talker.step([state])
            assert (output.frames, output.done) == (None, False)
            held -= output.consumed
    talker.close(state)


@pytest.mark.parametrize(
    "ending",
    [m.TokenVector(None, None, "stop"), m.TokenVector(7, _vector(3), "length")],
    ids=["empty", "one token"],
)
def test_an_answer_without_a_token_fed_back_is_silent(
    talker: Talker, folder: Path, ending: m.TokenVector
) -> None:
    state = talker.open(TurnId("s", "t"))
    talker.feed(state, _prompt(folder))
    talker.feed(state, ending)
    assert talker.ready(state)
    (output,) = talker.step([state])
    assert output.done
    assert output.frames is not None
    assert (len(output.frames.frames), output.frames.last) == (0, True)
    talker.close(state)


def test_all_pages_and_slots_come_back(talker: Talker, folder: Path) -> None:
    free = talker._pages.free
    for round_ in range(talker.max_states + 3):
        state = talker.open(TurnId("s", str(round_)))
        talker.feed(state, _prompt(folder))
        talker.feed(state, m.TokenVector(5, _vector(1)))
        assert talker.ready(state)
        talker.step([state])
        talker.close(state)
    assert talker._pages.free == free


def _codes(talker: Talker, folder: Path, *, parked: bool) -> list[list[int]]:
    """A whole drawn reply's; `parked`: after each step others take its slot and pages."""
    prompt = _prompt(folder)
    params = m.PromptParams(sampling=m.Sampling(seed=5), max_frames=40)
    state = talker.open(TurnId("s", "t"))
    talker.feed(state, msgspec.structs.replace(prompt, request=params))
    codes: list[list[int]] = []
    for number in range(40):
        ending = number == 39
        talker.feed(state, m.TokenVector(None, None, "stop") if ending else m.TokenVector(5, _vector(number)))
        assert talker.ready(state)
        (output,) = talker.step([state])
        codes += output.frames.frames.tolist() if output.frames is not None else []
        if output.done:
            break
        if parked:
            talker.park(state)
            other = talker.open(TurnId("s", f"other {number}"))
            talker.feed(other, prompt)
            talker.feed(other, m.TokenVector(5, _vector(1000 + number)))
            assert talker.ready(other)
            talker.step([other])
            talker.unpark(state)
            if number % 2:
                assert talker.ready(state) is False, "its next text is not there"
            talker.close(other)
    talker.close(state)
    return codes


def test_a_parked_voice_goes_on_in_another_slot_as_if_it_had_never_been(talker: Talker, folder: Path) -> None:
    free = talker._pages.free
    codes = _codes(talker, folder, parked=False)
    assert len(codes) > 20
    assert _codes(talker, folder, parked=True) == codes
    assert talker._pages.free == free
    assert sorted(talker._slots) == list(range(talker.max_states))


def test_a_parked_voice_waits_for_pages(talker: Talker, folder: Path) -> None:
    """They may all be taken when it gets its slot back."""
    state = talker.open(TurnId("s", "t"))
    talker.feed(state, _prompt(folder))
    talker.feed(state, m.TokenVector(5, _vector(1)))
    assert talker.ready(state)
    talker.step([state])
    talker.feed(state, m.TokenVector(6, _vector(2)))
    talker.park(state)
    taken = talker._pages.allocate(talker._pages.free)
    talker.unpark(state)
    assert not talker.ready(state)
    assert talker.lacks_memory(state)
    talker.park(state)
    talker.unpark(state)
    talker._pages.release(taken)
    assert not talker.lacks_memory(state)
    assert talker.ready(state)
    talker.step([state])
    talker.close(state)


def test_a_voice_that_has_not_begun_lacks_memory_once_its_inputs_are_there(
    talker: Talker, folder: Path
) -> None:
    taken = talker._pages.allocate(talker._pages.free)
    state = talker.open(TurnId("s", "t"))
    talker.feed(state, _prompt(folder))
    assert not talker.ready(state)
    assert not talker.lacks_memory(state), "its text is not there"
    talker.feed(state, m.TokenVector(5, _vector(1)))
    assert not talker.ready(state)
    assert talker.lacks_memory(state)
    talker._pages.release(taken)
    assert not talker.lacks_memory(state)
    assert talker.ready(state)
    assert not talker.lacks_memory(state)
    talker.close(state)


def test_an_unknown_speaker_names_the_known_ones(folder: Path, harness: Callable[..., Harness]) -> None:
    (result,) = harness(folder).run([greedy("who", user(text("Hi")), voice="Bob")])
    assert isinstance(result.error, InputError)
    assert result.error.param == "voice"
    assert "aiden, chelsie, ethan" in result.error.message


def test_speakers_sound_different(folder: Path, harness: Callable[..., Harness]) -> None:
    requests = [
        greedy(f"voice {v}", user(text("Hello.")), voice=v) for v in ("Ethan", "Chelsie", "AIDEN", None)
    ]
    codes = [result.codes.tolist() for result in harness(folder).run(requests)]
    assert codes[0] == codes[3], "Ethan is the default, as in generate()"
    assert codes[0] != codes[1] != codes[2] != codes[0]


def test_the_fused_predictor_equals_generate(folder: Path, reference: Callable[[Path], Reference]) -> None:
    module = reference(folder).model.talker.code_predictor
    predictor = CodePredictor(module, 16)
    torch.manual_seed(0)
    hidden, first = torch.randn(2, 9, 48).unbind(0)
    with torch.inference_mode():
        codes, total = predictor.predict(hidden, first, lambda logits, _: logits.argmax(-1))
        expected = module.generate(
            inputs_embeds=torch.stack((hidden, first), dim=1), max_new_tokens=15, do_sample=False
        )
        embeddings = [table(codes[:, i]) for i, table in enumerate(module.model.codec_embedding)]
    assert codes.tolist() == expected.tolist()
    assert torch.allclose(total, first + sum(embeddings), atol=1e-4)


def _drawn(probabilities: np.ndarray, counts: np.ndarray) -> bool:
    """Whether counts fit: each within five standard deviations, none where there is no probability."""
    expected = probabilities * counts.sum()
    spread = np.sqrt(expected * (1 - probabilities))
    return bool((np.abs(counts - expected) <= 5 * spread + 1e-9).all())


def test_codes_are_drawn_as_transformers_would(folder: Path) -> None:
    """First codes: penalty on those made, no special ids, temperature, top_k. Others: top_k, top_p."""
    facts = TalkerFacts.of(Checkpoint(str(folder)))
    sampler = CodeSampler(facts, slots=1, device=torch.device("cpu"))
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(facts.vocab, generator=generator) * 2
    past = torch.tensor([[3, 9, 3]])
    suppressed = [i for i in range(facts.vocab - 1024, facts.vocab) if i != facts.codec_eos]
    processors = LogitsProcessorList(
        [
            RepetitionPenaltyLogitsProcessor(1.05),
            SuppressTokensLogitsProcessor(suppressed),
            TemperatureLogitsWarper(0.9),
            TopKLogitsWarper(50),
        ]
    )
    wanted = processors(past, logits[None].clone()).softmax(-1)[0, sampler.allowed].numpy()  # pyright: ignore[reportArgumentType]
    kept = logits[sampler.allowed]
    for code in past[0].tolist():
        sampler._seen[0, code] = True
    counts = np.zeros(len(kept))
    seen = sampler._seen.clone()
    for frame in range(DRAWS):
        sampler._seen.copy_(seen)
        draws = Draws.of([Row(0, frame, 77, greedy=False)], facts.groups, torch.device("cpu"))
        counts[int(sampler.first(kept[None], draws)[0])] += 1
    assert _drawn(wanted, counts)

    other = torch.randn(facts.codebook, generator=generator)
    warped = LogitsProcessorList([TopKLogitsWarper(50), TopPLogitsWarper(0.8)])(past, other[None].clone())  # pyright: ignore[reportArgumentType]
    counts = np.zeros(facts.codebook)
    for frame in range(DRAWS):
        pick = sampler.others(Draws.of([Row(0, frame, 78, greedy=False)], facts.groups, torch.device("cpu")))
        counts[int(pick(other[None], 4)[0])] += 1
    assert _drawn(warped.softmax(-1)[0].numpy(), counts)


def _sampled(name: str, seed: int, *parts: m.Part) -> m.TurnRequest:
    return m.TurnRequest(
        m.TurnId("test", name),
        (user(*parts),),
        sampling=m.Sampling(temperature=0.8, top_k=20, top_p=0.9, seed=seed, max_tokens=8),
        max_frames=12,
    )


def test_same_seed_same_codes_alone_and_in_a_crowd(folder: Path, harness: Callable[..., Harness]) -> None:
    parts = (sound(70), picture(71), text("Well?"))
    (alone,) = harness(folder).run([_sampled("alone", 5, *parts)])
    crowd = [_sampled(f"other {i}", 100 + i, text(f"Something else {i}")) for i in range(9)]
    fresh = harness(folder, kv_bytes=31 * 2**20)  # other runners: as after a restart
    results = fresh.run([*crowd[:5], _sampled("crowded", 5, *parts), *crowd[5:]])
    crowded = results[5]
    assert crowded.token_ids == alone.token_ids
    assert crowded.codes.tolist() == alone.codes.tolist()
    (another,) = fresh.run([_sampled("another", 6, *parts)])
    assert another.codes.tolist() != alone.codes.tolist()
    unseeded = [
        m.TurnRequest(
            m.TurnId("test", f"free {i}"), (user(*parts),), sampling=m.Sampling(max_tokens=8), max_frames=12
        )
        for i in range(2)
    ]
    free = fresh.run(unseeded)
    assert free[0].codes.tolist() != free[1].codes.tolist(), "without a seed voices differ"
