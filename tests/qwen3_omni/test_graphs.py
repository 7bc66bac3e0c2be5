"""Decode steps at fixed addresses give what ordinary steps give. (Their capture itself needs CUDA.)"""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import torch
from harness import Harness
from omni_reference import Expected
from omni_requests import greedy, picture, sound, text, user
from test_equal_to_generate import assert_equal

from voice_app import messages as m
from voice_app.config import PackConfig
from voice_app.messages import Stage
from voice_app.models.qwen3_omni.code2wav import Code2Wav, WindowGraph
from voice_app.models.qwen3_omni.graphs import SIZES, Graph, Lane, size_for
from voice_app.models.qwen3_omni.pack import create
from voice_app.models.qwen3_omni.talker_ar import Talker
from voice_app.models.qwen3_omni.talker_model import FrameGraph
from voice_app.models.qwen3_omni.thinker import DecodeGraph, Thinker
from voice_app.models.qwen3_omni.tiny_checkpoint import TinyShape
from voice_app.schedulers.base import AnyRunner


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[..., Path]) -> Path:
    return checkpoint(40, TinyShape(max_positions=160))


@pytest.fixture(scope="module")
def runners(folder: Path) -> dict[Stage, AnyRunner]:
    pack = create(PackConfig("qwen3-omni", str(folder), kv_bytes=8 * 2**20), lambda _: None)
    made = {stage: pack.build(stage) for stage in Stage}
    cast(Thinker, made[Stage.THINKER]).capture()
    cast(Talker, made[Stage.TALKER_AR]).capture()
    cast(Code2Wav, made[Stage.CODE2WAV]).capture()
    return made


def _requests() -> list[m.TurnRequest]:
    return [
        greedy("fixed text", user(text("How are you?"))),
        greedy("fixed both", user(sound(1), picture(2), text("Well?")), voice="aiden"),
        *(greedy(f"fixed {i}", user(text(f"Number {i}?")), tokens=5 + i, frames=6 + i) for i in range(4)),
    ]


def test_tokens_codes_and_sound_are_the_same(
    folder: Path,
    runners: dict[Stage, AnyRunner],
    expected: Callable[[Path, m.TurnRequest], Expected],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: set[type] = set()
    for kind in (DecodeGraph, FrameGraph, WindowGraph):
        original = kind.run_on

        def watched(self, *inputs, _original=original, _kind=kind):
            used.add(_kind)
            return _original(self, *inputs)

        monkeypatch.setattr(kind, "run_on", watched)
    stages = Harness(runners.__getitem__)
    for request, result in zip(_requests(), stages.run(_requests()), strict=True):
        assert_equal(result, expected(folder, request))
    assert used == {DecodeGraph, FrameGraph, WindowGraph}


def test_the_same_draws(
    folder: Path, runners: dict[Stage, AnyRunner], harness: Callable[..., Harness]
) -> None:
    def request(name: str) -> m.TurnRequest:
        sampling = m.Sampling(temperature=0.9, seed=7, max_tokens=8)
        return m.TurnRequest(m.TurnId("t", name), (user(text("Sing.")),), sampling=sampling, max_frames=10)

    others = [greedy(f"beside {i}", user(text(f"Hum {i}."))) for i in range(2)]
    (plain,) = harness(folder).run([request("plain")])
    results = Harness(runners.__getitem__).run([*others, request("fixed")])
    assert results[2].token_ids == plain.token_ids
    assert results[2].codes.tolist() == plain.codes.tolist()


def test_sizes() -> None:
    assert size_for(1) == 1
    assert size_for(5) == 8
    assert size_for(SIZES[-1]) == SIZES[-1]
    assert size_for(SIZES[-1] + 1) is None


def test_without_cuda_the_call_runs_each_time() -> None:
    inputs = torch.zeros(2)
    graph = Graph(lambda: inputs + 1, Lane(torch.device("cpu")))
    inputs.fill_(3)
    assert graph.run().tolist() == [4, 4]
