"""Prompts that come in parts are answered, token by token and code by code, as if they had come whole."""

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from harness import Harness, Result
from omni_reference import Expected
from omni_requests import greedy, kinds, picture, sound, text, user
from test_crowd import omni, page_bytes
from test_equal_to_generate import assert_equal

from voice_app import messages as m
from voice_app.messages import Stage
from voice_app.schedulers.base import OnePassRunner, StageInput
from voice_app.schedulers.omni import OmniScheduler
from voice_app.schedulers.omni_overlapped import OverlappedOmniScheduler

Expect = Callable[[Path, m.TurnRequest], Expected]
Part = Sequence[m.EdgePayload]
Media = Mapping[m.Media, m.EdgePayload]
LOOPS = [OmniScheduler, OverlappedOmniScheduler]


def _prepared(stages: Harness, request: m.TurnRequest) -> tuple[m.PromptIds, Media]:
    """What preprocessing makes of the request."""
    runner = cast(OnePassRunner, stages.runners[Stage.PREPROCESSING])
    (made,) = runner.run([StageInput(request.turn, request, request.speech)])
    assert isinstance(made, list)
    media = {p.media: p for p in made if isinstance(p, m.MelFrames | m.ImagePatches)}
    (prompt,) = (p for p in made if isinstance(p, m.PromptIds))
    return prompt, media


def _places(prompt: m.PromptIds) -> int:
    """Where the prompt can be cut: between ids and media."""
    return sum(len(span.ids) if span.media is None else 1 for span in prompt.spans)


def _cut(prompt: m.PromptIds, media: Media, cuts: Sequence[int]) -> list[Part]:
    """The prompt in parts, each with its media."""
    pieces = [piece for span in prompt.spans for piece in ([span] if span.media else _single(span))]
    bounds = [0, *sorted(cuts), len(pieces)]
    parts: list[Part] = []
    for number, (first, last) in enumerate(pairwise(bounds), 1):
        spans = tuple(pieces[first:last])
        ids = m.PromptIds(spans, prompt.request, more=number < len(bounds) - 1)
        parts.append([ids, *{span.media: media[span.media] for span in spans if span.media}.values()])
    return parts


def _single(span: m.Span) -> list[m.Span]:
    return [m.Span(ids=(token,)) for token in span.ids]


def _open(stages: Harness, request: m.TurnRequest) -> Result:
    result = stages.results[request.turn] = Result(request)
    return result


def _send(stages: Harness, request: m.TurnRequest, part: Part) -> None:
    for payload in part:
        stages.deliver(Stage.PREPROCESSING, request.turn, payload)


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[..., Path]) -> Path:
    return checkpoint(0)


@pytest.mark.parametrize("loop", LOOPS)
def test_cut_at_every_place(
    loop: type[OmniScheduler], folder: Path, harness: Callable[..., Harness], expected: Expect
) -> None:
    request = greedy(
        "grown", user(text("Hear"), sound(70), text("and see"), picture(71), text("now?")), tokens=5, frames=4
    )
    prompt, media = _prepared(harness(folder), request)
    for cut in range(_places(prompt) + 1):
        stages = harness(folder, schedulers=omni(loop, step_tokens=1 + cut % 40))
        result = _open(stages, request)
        first, second = _cut(prompt, media, [cut])
        _send(stages, request, first)
        for _ in range(cut % 7):
            stages.step()
        assert not result.events, "no token before the prompt is complete"
        _send(stages, request, second)
        stages.run()
        assert_equal(result, expected(folder, request))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("pages", [1000, 12])
def test_grown_at_random_moments_among_a_crowd(
    pages: int, loop: type[OmniScheduler], folder: Path, harness: Callable[..., Harness], expected: Expect
) -> None:
    rng = random.Random(pages)
    requests = [*kinds(), *(greedy(f"few {i}", user(text(f"Number {i}?")), tokens=40) for i in range(5))]
    stages = harness(
        folder, kv_bytes=pages * page_bytes(folder), schedulers=omni(loop, step_tokens=rng.randrange(5, 50))
    )
    late: dict[m.TurnId, tuple[m.TurnRequest, list[Part]]] = {}
    results: list[Result] = []
    for request in requests:
        prompt, media = _prepared(stages, request)
        cuts = rng.sample(range(_places(prompt) + 1), rng.randrange(4))
        late[request.turn] = request, _cut(prompt, media, cuts)
        results.append(_open(stages, request))
    while late:
        turn = rng.choice(list(late))
        request, parts = late[turn]
        _send(stages, request, parts.pop(0))
        if not parts:
            del late[turn]
        for _ in range(rng.randrange(6)):
            stages.step()
    stages.run()
    for request, result in zip(requests, results, strict=True):
        assert_equal(result, expected(folder, request))
