"""Answers without speech, empty ones, one token, stop strings, the longest prompt and one too long."""

from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness
from msgspec import structs
from omni_reference import Expected, Reference
from omni_requests import greedy, kinds, picture, sound, text, user
from test_equal_to_generate import assert_equal

from voice_app import messages as m
from voice_app.errors import InputError
from voice_app.messages import Stage
from voice_app.models.qwen3_omni.tiny_checkpoint import TinyShape


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[..., Path]) -> Path:
    return checkpoint(0)


def _biased(request: m.TurnRequest, token: int, logit: float) -> m.TurnRequest:
    sampling = structs.replace(request.sampling, logit_bias=((token, logit),))
    return structs.replace(request, sampling=sampling)


def test_text_only_enters_no_stage_of_the_voice(folder: Path, harness: Callable[..., Harness]) -> None:
    stages = harness(folder)
    (result,) = stages.run([greedy("silent", user(sound(1), picture(2)), speech=False)])
    assert result.text
    assert not result.frames
    assert not {Stage.TALKER_AR, Stage.CODE2WAV} & result.done


def test_an_empty_answer(
    folder: Path, harness: Callable[..., Harness], reference: Callable[[Path], Reference]
) -> None:
    end = reference(folder).model.config.im_end_token_id
    request = _biased(greedy("empty", user(sound(1), text("Say nothing."))), end, 1e4)
    (result,) = harness(folder).run([request])
    assert result.over
    assert (result.text, result.token_ids, result.text_done.finish_reason) == ("", [], "stop")
    assert m.AudioDone(0) in result.events
    assert not len(result.samples)


@pytest.mark.parametrize("tokens", [1, 2])
def test_the_shortest_answers(
    tokens: int, folder: Path, harness: Callable[..., Harness], expected: Callable[..., Expected]
) -> None:
    """One token is never fed back, so nothing is spoken (generate() crashes there); two are."""
    request = greedy(f"{tokens} tokens", user(text("Yes or no?")), tokens=tokens)
    (result,) = harness(folder).run([request])
    assert result.over
    assert len(result.token_ids) == tokens
    assert result.text_done.finish_reason == "length"
    if tokens == 1:
        assert m.AudioDone(0) in result.events
    else:
        assert_equal(result, expected(folder, request))


def test_a_stop_string_ends_text_and_voice(folder: Path, harness: Callable[..., Harness]) -> None:
    request = greedy("stop", user(text("Hello there, what time is it?")), tokens=16)
    stages = harness(folder)
    (full,) = stages.run([request])
    where = next(i for i in range(4, len(full.text)) if full.text[i].isascii() and full.text[i].isalpha())
    stop = full.text[where : where + 2]
    sampling = structs.replace(request.sampling, stop=(stop,))
    (cut,) = stages.run([structs.replace(request, turn=m.TurnId("test", "cut"), sampling=sampling)])
    assert cut.text == full.text[: full.text.index(stop)]
    assert cut.text_done.finish_reason == "stop"
    assert 0 < len(cut.token_ids) < len(full.token_ids)


def test_logit_bias_and_penalties_reach_the_sampler(folder: Path, harness: Callable[..., Harness]) -> None:
    stages = harness(folder)
    plain, banned = greedy("plain", user(text("Go."))), greedy("banned", user(text("Go.")))
    (first,) = stages.run([plain])
    (other,) = stages.run([_biased(banned, first.token_ids[0], -1e4)])
    assert other.token_ids[0] != first.token_ids[0]


@pytest.fixture(scope="module")
def narrow(checkpoint: Callable[..., Path]) -> Path:
    """A model of 96 positions."""
    return checkpoint(30, TinyShape(max_positions=96))


def _words(count: int, **settings: bool) -> m.TurnRequest:
    # A digit is a token by itself.
    return greedy(f"words {count} {settings}", user(text("1" * count)), **settings)  # pyright: ignore[reportArgumentType]


def test_the_longest_prompt_and_one_more(narrow: Path, harness: Callable[..., Harness]) -> None:
    stages = harness(narrow)
    (short,) = stages.run([_words(10, speech=False)])
    around = short.text_done.usage.prompt_tokens - 10
    longest = 95 - around
    (most,) = stages.run([_words(longest, speech=False)])
    assert most.error is None
    assert (len(most.token_ids), most.text_done.finish_reason) == (1, "length")
    (over,) = stages.run([_words(longest + 1, speech=False)])
    assert isinstance(over.error, InputError)
    assert "96 tokens" in over.error.message
    assert "95" in over.error.message


def test_too_long_for_the_talker_alone(narrow: Path, harness: Callable[..., Harness]) -> None:
    """The talker's prompt has nine positions that the thinker's has not."""
    stages = harness(narrow)
    (result,) = stages.run([_words(84)])
    assert isinstance(result.error, InputError)
    assert "talker" in result.error.message
    (after,) = stages.run([_words(20)])
    assert after.error is None
    assert len(after.samples)


def test_every_kind_at_once_in_written_form(folder: Path, harness: Callable[..., Harness]) -> None:
    spoken = harness(folder).run(kinds())
    written = harness(folder).run(
        [structs.replace(r, turn=m.TurnId("w", r.turn.turn), speech=False) for r in kinds()]
    )
    assert [r.token_ids for r in spoken] == [r.token_ids for r in written]
