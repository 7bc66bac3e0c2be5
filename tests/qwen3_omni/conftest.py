"""Tiny checkpoints and what transformers makes of them, each built once a session."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from harness import Harness, MakeScheduler
from omni_reference import Expected, Reference

from voice_app import messages as m
from voice_app.config import PackConfig
from voice_app.messages import Stage
from voice_app.models.qwen3_omni.pack import create
from voice_app.models.qwen3_omni.tiny_checkpoint import TinyShape, make_tiny_checkpoint

torch.set_num_threads(1)

MakeCheckpoint = Callable[..., Path]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> MakeCheckpoint:
    """(seed, shape) → folder."""

    @lru_cache
    def make(seed: int = 0, shape: TinyShape | None = None) -> Path:
        return make_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), seed, shape)

    return make


@pytest.fixture(scope="session")
def reference() -> Callable[[Path], Reference]:
    return lru_cache(Reference)


@pytest.fixture(scope="session")
def expected(reference: Callable[[Path], Reference]) -> Callable[[Path, m.TurnRequest], Expected]:
    """What `generate()` gives for a greedy request with its own bounds."""
    known: dict[tuple[Path, str], Expected] = {}

    def run(folder: Path, request: m.TurnRequest) -> Expected:
        key = (folder, request.turn.turn)
        if key not in known:
            tokens, frames = request.sampling.max_tokens, request.max_frames
            assert tokens is not None
            assert frames is not None
            known[key] = reference(folder).run(request, tokens, frames)
        return known[key]

    return run


@pytest.fixture(scope="session")
def harness() -> Callable[..., Harness]:
    """(folder, kv_bytes, schedulers) → the stages, fresh schedulers around runners built once a folder."""

    @lru_cache
    def runners(folder: Path, kv_bytes: int, dtype: str) -> dict[Stage, object]:
        pack = create(PackConfig("qwen3-omni", str(folder), kv_bytes=kv_bytes, dtype=dtype), lambda _: None)
        return {stage: pack.build(stage) for stage in Stage}

    def make(
        folder: Path,
        kv_bytes: int = 32 * 2**20,
        schedulers: dict[Stage, MakeScheduler] | None = None,
        dtype: str = "float32",
    ) -> Harness:
        return Harness(runners(folder, kv_bytes, dtype).__getitem__, schedulers)  # pyright: ignore[reportArgumentType]

    return make
