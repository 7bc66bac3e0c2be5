"""Sound made in pieces is the sound made at once, for any pieces, for several streams at a time."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from omni_reference import Reference

from voice_app.config import PackConfig
from voice_app.messages import Stage
from voice_app.models.qwen3_omni.code2wav import Code2Wav
from voice_app.models.qwen3_omni.pack import create
from voice_app.models.qwen3_omni.tiny_checkpoint import CODEBOOK, TinyShape
from voice_app.schedulers.base import WaveWindow

# A short sliding window, so that streams soon outgrow it.
SHAPE = TinyShape(sliding_window=9)
FRAMES = 31


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[..., Path]) -> Path:
    return checkpoint(20, SHAPE)


@pytest.fixture(scope="module")
def runner(folder: Path) -> Code2Wav:
    pack = create(PackConfig("qwen3-omni", str(folder)), lambda _: None)
    return cast(Code2Wav, pack.build(Stage.CODE2WAV))


@pytest.fixture(scope="module")
def whole(folder: Path, reference: Callable[[Path], Reference]) -> Callable[[np.ndarray], np.ndarray]:
    model = reference(folder).model.code2wav

    def decode(codes: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(torch.from_numpy(codes.T[None]))[0, 0].numpy()

    return decode


def _codes(seed: int, frames: int = FRAMES) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, CODEBOOK, (frames, SHAPE.code_groups))


def _pieces(sizes: Sequence[int], total: int = FRAMES) -> list[int]:
    pieces: list[int] = []
    while sum(pieces) < total:
        pieces.append(min(sizes[len(pieces) % len(sizes)], total - sum(pieces)))
    return pieces


def _window(state: object, frames: np.ndarray, *, start: bool, end: bool) -> WaveWindow:
    return WaveWindow(state, frames, 0, 0, segment_start=start, segment_end=end)


@pytest.mark.parametrize("sizes", [[1], [2], [3], [7], [10], [1, 1, 2, 4, 8, 16], [FRAMES], [5, 1, 13]])
def test_any_pieces_equal_the_whole(
    sizes: list[int], runner: Code2Wav, whole: Callable[[np.ndarray], np.ndarray]
) -> None:
    codes, state, at = _codes(1), runner.open(), 0
    made: list[np.ndarray] = []
    for size in _pieces(sizes):
        window = _window(state, codes[at : at + size], start=at == 0, end=at + size == FRAMES)
        made += runner.decode([window])
        at += size
    assert np.allclose(np.concatenate(made), whole(codes), rtol=0, atol=1e-4)


def test_streams_of_different_ages_in_one_call(
    runner: Code2Wav, whole: Callable[[np.ndarray], np.ndarray]
) -> None:
    rng = random.Random(2)
    codes = [_codes(seed, frames) for seed, frames in enumerate((31, 6, 17, 17, 24, 1))]
    states = [runner.open() for _ in codes]
    done = [0] * len(codes)
    made: list[list[np.ndarray]] = [[] for _ in codes]
    while any(at < len(own) for at, own in zip(done, codes, strict=True)):
        turns = [i for i, own in enumerate(codes) if done[i] < len(own) and rng.random() < 0.7]
        ends = [min(len(codes[i]), done[i] + rng.choice([1, 2, 2, 4])) for i in turns]
        windows = [
            _window(states[i], codes[i][done[i] : end], start=done[i] == 0, end=end == len(codes[i]))
            for i, end in zip(turns, ends, strict=True)
        ]
        for i, end, samples in zip(turns, ends, runner.decode(windows), strict=True):
            made[i].append(samples)
            done[i] = end
    for own, pieces in zip(codes, made, strict=True):
        assert np.allclose(np.concatenate(pieces), whole(own), rtol=0, atol=1e-4)


def test_a_new_segment_starts_afresh(runner: Code2Wav, whole: Callable[[np.ndarray], np.ndarray]) -> None:
    state = runner.open()
    for seed in (3, 4):
        codes = _codes(seed, 8)
        made = [
            *runner.decode([_window(state, codes[:3], start=True, end=False)]),
            *runner.decode([_window(state, codes[3:], start=False, end=True)]),
        ]
        assert np.allclose(np.concatenate(made), whole(codes), rtol=0, atol=1e-4)


def test_what_the_scheduler_must_know(runner: Code2Wav) -> None:
    assert runner.spec.samples_per_frame == 1920
    assert runner.spec.sample_rate == 24_000
    assert runner.spec.codebook == CODEBOOK
    assert runner.spec.channels == SHAPE.code_groups
