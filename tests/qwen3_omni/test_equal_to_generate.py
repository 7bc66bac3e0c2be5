"""Greedy answers through our runners and schedulers equal transformers' own `generate`, code by code."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from harness import Harness, Result
from omni_reference import Expected
from omni_requests import greedy, kinds, picture, sound, text, user

from voice_app import messages as m
from voice_app.models.qwen3_omni.tiny_checkpoint import TinyShape

WAVE_TOLERANCE = 1e-4
SHAPES = {
    "published form": (0, TinyShape()),
    "another seed, eager ends": (1, TinyShape(eos_scale=2.5)),
    "more experts, fewer layers": (2, TinyShape(thinker_experts=12, talker_experts=6, thinker_layers=4)),
    "8 code groups, deeper talker": (3, TinyShape(code_groups=8, talker_layers=4, predictor_layers=3)),
    "other accept layer and window": (
        4,
        TinyShape(thinker_layers=7, accept_hidden_layer=5, sliding_window=9),
    ),
    "accept the last layer": (5, TinyShape(accept_hidden_layer=5, thinker_experts_per_token=3)),
}


def assert_equal(result: Result, expected: Expected) -> None:
    assert result.error is None
    assert result.token_ids == expected.token_ids
    if result.request.speech:
        assert result.codes.tolist() == expected.codes.tolist()
        assert result.samples.shape == expected.wave.shape
        assert np.allclose(result.samples, expected.wave, rtol=0, atol=WAVE_TOLERANCE)
    else:
        assert not result.frames
        assert not len(result.samples)


@pytest.mark.parametrize("name", SHAPES)
def test_every_kind_of_request(
    name: str,
    checkpoint: Callable[..., Path],
    harness: Callable[..., Harness],
    expected: Callable[[Path, m.TurnRequest], Expected],
) -> None:
    folder = checkpoint(*SHAPES[name])
    requests = kinds() if name == "published form" else kinds()[3:7]
    stages = harness(folder)
    for request in requests:
        (result,) = stages.run([request])
        assert_equal(result, expected(folder, request))


def test_beyond_300_frames_equal_one_decode(
    checkpoint: Callable[..., Path],
    harness: Callable[..., Harness],
    expected: Callable[[Path, m.TurnRequest], Expected],
) -> None:
    folder = checkpoint(6, TinyShape(eos_scale=0.0))
    request = greedy("long", user(text("Tell me everything.")), tokens=4, frames=305)
    (result,) = harness(folder).run([request])
    assert len(result.codes) > 300
    assert_equal(result, expected(folder, request))


def test_answers_that_end_by_themselves(
    checkpoint: Callable[..., Path],
    harness: Callable[..., Harness],
    expected: Callable[[Path, m.TurnRequest], Expected],
) -> None:
    """Some answers and some voices must meet their EOS, or the ends are not tested."""
    folder = checkpoint(7, TinyShape(eos_scale=3.0))
    stages = harness(folder)
    requests = [greedy(f"end {i}", user(text(f"Question number {i}?")), frames=40) for i in range(8)]
    requests += [greedy(f"end sound {i}", user(sound(20 + i), picture(i)), frames=40) for i in range(4)]
    results = stages.run(requests)
    assert any(result.text_done.finish_reason == "stop" for result in results)
    assert any(0 < len(result.codes) < 40 for result in results)
    for request, result in zip(requests, results, strict=True):
        if len(result.token_ids) > 0 and len(result.codes):
            assert_equal(result, expected(folder, request))
