"""Sixteen requests that join and leave a running batch get what each gets alone, however the batch is cut."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from harness import Harness, MakeScheduler, Result
from omni_reference import Expected
from omni_requests import assistant, greedy, kinds, picture, sound, system, text, user
from test_equal_to_generate import assert_equal

from voice_app import messages as m
from voice_app.messages import Stage
from voice_app.models.qwen3_omni.checkpoint import Checkpoint
from voice_app.models.qwen3_omni.facts import ThinkerFacts
from voice_app.models.qwen3_omni.pack import PAGE_SIZES
from voice_app.models.qwen3_omni.thinker import Thinker
from voice_app.schedulers.base import SequenceStep, StepOutput
from voice_app.schedulers.omni import OmniScheduler
from voice_app.schedulers.omni_overlapped import OverlappedOmniScheduler

Expect = Callable[[Path, m.TurnRequest], Expected]


def _sixteen() -> list[m.TurnRequest]:
    words = [greedy(f"crowd {i}", user(text(f"Question number {i}?")), tokens=6 + i % 5) for i in range(7)]
    return [*kinds(), *words]


def omni(loop: type[OmniScheduler], step_tokens: int = 256) -> dict[Stage, MakeScheduler]:
    return {
        Stage.THINKER: lambda runner, outbox: loop(cast(Thinker, runner), outbox, step_tokens=step_tokens)
    }


def page_bytes(folder: Path) -> int:
    return Thinker.page_bytes(ThinkerFacts.of(Checkpoint(str(folder))), PAGE_SIZES[0], torch.float32)


def _staggered(stages: Harness, requests: Sequence[m.TurnRequest], seed: int) -> list[Result]:
    """Submit one after another with random pauses, while the others run."""
    rng = random.Random(seed)
    results: list[Result] = []
    for request in requests:
        results.append(stages.submit(request))
        for _ in range(rng.randrange(4)):
            stages.step()
    stages.run()
    return results


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[..., Path]) -> Path:
    return checkpoint(0)


@pytest.mark.parametrize("loop", [OmniScheduler, OverlappedOmniScheduler])
def test_joining_and_leaving_at_random(
    loop: type[OmniScheduler], folder: Path, harness: Callable[..., Harness], expected: Expect
) -> None:
    requests = _sixteen()
    random.Random(1).shuffle(requests)
    stages = harness(folder, schedulers=omni(loop))
    for request, result in zip(requests, _staggered(stages, requests, seed=2), strict=True):
        assert_equal(result, expected(folder, request))


@pytest.mark.parametrize("step_tokens", [1, 2, 3, 7, 16, 50])
def test_every_chunk_size(
    step_tokens: int, folder: Path, harness: Callable[..., Harness], expected: Expect
) -> None:
    requests = kinds()[2:6]
    loop = OverlappedOmniScheduler if step_tokens % 2 else OmniScheduler
    stages = harness(folder, schedulers=omni(loop, step_tokens))
    for request, result in zip(requests, stages.run(requests), strict=True):
        assert_equal(result, expected(folder, request))


@pytest.mark.parametrize("loop", [OmniScheduler, OverlappedOmniScheduler])
def test_preemption_with_few_pages(
    loop: type[OmniScheduler],
    folder: Path,
    harness: Callable[..., Harness],
    expected: Expect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again: list[int] = []
    step = Thinker.step

    def watched(self: Thinker, batch: Sequence[SequenceStep]) -> Sequence[StepOutput]:
        again.extend(s.count for s in batch if s.outputs and s.count > 1)
        return step(self, batch)

    monkeypatch.setattr(Thinker, "step", watched)
    requests = [
        greedy(
            f"growing {i}", user(text(f"Count to {i}."), *([sound(i)] if i == 2 else [])), tokens=40, frames=4
        )
        for i in range(6)
    ]
    stages = harness(folder, kv_bytes=10 * page_bytes(folder), schedulers=omni(loop))
    results = _staggered(stages, requests, seed=3)
    assert again, "no request was preempted and computed again"
    for request, result in zip(requests, results, strict=True):
        assert_equal(result, expected(folder, request))


def test_a_second_turn_takes_the_first_from_the_prefix_cache(
    folder: Path, harness: Callable[..., Harness], expected: Expect
) -> None:
    """History with sound and picture comes out of the cache, and the talker still hears both."""
    first = greedy("history 1", system("Be brief."), user(sound(40), picture(41), text("What is it?")))
    stages = harness(folder)
    (one,) = stages.run([first])
    second = greedy("history 2", *first.messages, assistant(one.text), user(text("And what else?")))
    (two,) = stages.run([second])
    assert two.text_done.usage.cached_tokens > 30
    assert_equal(one, expected(folder, first))
    assert_equal(two, expected(folder, second))
    # The same again, all of it cached but for its end.
    (three,) = stages.run([greedy("history 2 again", *second.messages)])
    assert three.text_done.usage.cached_tokens > two.text_done.usage.cached_tokens
    assert three.codes.tolist() == two.codes.tolist()


def test_a_prefix_hit_inside_a_picture(
    folder: Path, harness: Callable[..., Harness], expected: Expect
) -> None:
    """Two pictures of one text share no page of the picture; one picture with two texts shares it, and a
    hit that ends inside it goes on from there."""
    stages = harness(folder)
    requests = [
        greedy("inside 1", user(picture(50, 256, 256), text("What?"))),
        greedy("inside 2", user(picture(50, 256, 256), text("Where?"))),
        greedy("inside 3", user(picture(51, 256, 256), text("What?"))),
    ]
    results = [stages.run([request])[0] for request in requests]
    cached = [result.text_done.usage.cached_tokens for result in results]
    assert cached[0] == 0
    # 64 positions of picture behind 4 of text: the hit ends on a page border within the picture or behind.
    assert cached[1] >= 64
    assert cached[2] == 0
    for request, result in zip(requests, results, strict=True):
        assert_equal(result, expected(folder, request))
    assert not np.array_equal(results[0].codes, results[2].codes)


def test_a_cancelled_turn_leaves_nothing(
    folder: Path, harness: Callable[..., Harness], expected: Expect
) -> None:
    stages = harness(folder)
    for rounds in (1, 2, 4, 9):
        doomed = greedy(f"cancelled {rounds}", user(sound(60), text("Never mind.")))
        kept = kinds()[1]
        stages.submit(doomed)
        result = stages.submit(kept)
        for _ in range(rounds):
            stages.step()
        stages.cancel(doomed.turn)
        stages.run()
        assert_equal(result, expected(folder, kept))
        for scheduler in stages.schedulers.values():
            load = scheduler.load()
            assert (load.waiting, load.running, load.pages_used) == (0, 0, 0)
