"""The packaged brain's dense parts: whole numbers exact, and each row the same whatever is beside it."""

from pathlib import Path

import numpy as np
import pytest

from voice_app.config import PackConfig
from voice_app.errors import ModelFileError
from voice_app.models.local import brain_rows
from voice_app.models.local.brain import PackagedBrain
from voice_app.models.local.brain_dense import BrainDense
from voice_app.models.local.brain_files import BrainFiles
from voice_app.models.local.brain_matrices import Matrix, quantised
from voice_app.models.local.brain_smoothing import smoothing
from voice_app.models.local.integer_product import MIDDLE, Product, product_graph

INNER = 1536
"""Columns of the widest rows that the brain multiplies."""


def with_extremes(rng: np.random.Generator, shape: tuple[int, int], least: int, most: int) -> np.ndarray:
    """Whole numbers from `least` to `most`; some rows and columns hold nothing but one of the two."""
    made = rng.integers(least, most + 1, shape)
    made[:1], made[1:2] = most, least
    made[:, -1:], made[:, -2:-1] = most, least
    return made


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 16, 17])
@pytest.mark.parametrize(("width", "out"), [(576, 960), (INNER, 576), (65, 3), (1, 1)])
def test_products_are_exact_at_the_extremes(rows: int, width: int, out: int) -> None:
    rng = np.random.default_rng(0)
    weight = with_extremes(rng, (width, out), -127, 127).astype(np.int8)
    q = with_extremes(rng, (rows, width), 0, 255).astype(np.uint8)
    times = Product(product_graph(weight).SerializeToString())
    np.testing.assert_array_equal(times(q), (q.astype(np.int64) - MIDDLE) @ weight.astype(np.int64))


def quantise(x: np.ndarray, *, sums: bool) -> tuple[np.ndarray, np.ndarray]:
    count = len(x) * (2 if sums else 1)
    q, scales = np.empty((count, x.shape[1]), np.uint8), np.empty(count, np.float32)
    (brain_rows.quantise_sums if sums else brain_rows.quantise)(x, q, scales)
    return q, scales


def meant(x: np.ndarray, *, sums: bool) -> np.ndarray:
    """float64: what the 8 bits of `x` stand for."""
    q, scales = quantise(x, sums=sums)
    rows = (q.astype(np.float64) - MIDDLE) * scales[:, None]
    return rows.reshape(-1, *x.shape).sum(axis=0)


@pytest.mark.parametrize("sums", [False, True])
def test_rows_in_8_bits_are_within_half_a_step(*, sums: bool) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((40, 101)) * 10.0 ** rng.integers(-12, 12, (40, 1))).astype(np.float32)
    x[0], x[1, 1:], x[2] = 0, 0, x[2, 0]
    step = np.abs(x).max(axis=1, keepdims=True) / 127 / (254 if sums else 1)
    assert (np.abs(meant(x, sums=sums) - x) <= step * 0.505).all()
    assert not meant(x[:1], sums=sums).any()


@pytest.mark.parametrize("wrong", [np.nan, -np.nan, np.inf, -np.inf])
def test_what_is_no_number_spoils_its_own_row_only(wrong: float) -> None:
    x = np.random.default_rng(0).standard_normal((3, 100)).astype(np.float32)
    _, right = quantise(x, sums=False)
    x[1, 7] = wrong
    _, scales = quantise(x, sums=False)
    assert not np.isfinite(scales[1])
    np.testing.assert_array_equal(scales[[0, 2]], right[[0, 2]])


def test_powers_of_two_leave_the_product_as_it_was() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((50, 200)).astype(np.float32)
    # A few columns are many times as loud as the others, one is silent, one meets nothing.
    loudest = np.where(np.arange(200) < 5, 60, 1).astype(np.float32)
    loudest[10], weight[:, 11] = 0, 0
    scale = smoothing(loudest, weight)
    assert np.isfinite(scale).all()
    np.testing.assert_array_equal(np.frexp(scale)[0], 0.5)
    x = (rng.standard_normal((9, 200)) * loudest).astype(np.float32)
    # Powers of two change no digit: only the order of a sum may round otherwise.
    np.testing.assert_array_equal((x / scale) * (weight[3] * scale), x * weight[3])
    np.testing.assert_allclose((x / scale) @ (weight * scale).T, x @ weight.T, rtol=1e-5, atol=1e-3)
    error, smoothed = (
        np.abs(_in_8_bits(x / by, quantised("some", weight * by)) - x @ weight.T).mean() for by in (1, scale)
    )
    assert smoothed < error / 2


def _in_8_bits(x: np.ndarray, matrix: Matrix) -> np.ndarray:
    return meant(x.astype(np.float32), sums=False) @ (matrix.weight * matrix.columns.astype(np.float64))


@pytest.fixture(scope="module")
def files() -> BrainFiles:
    return PackagedBrain(PackConfig(), lambda _: None).files


@pytest.mark.models
def test_a_row_alone_is_the_row_among_others_to_the_bit(files: BrainFiles) -> None:
    """Among a silent row, a loud one, and none: in a product of another shape."""
    dense, shape = BrainDense(files), files.shape
    rng = np.random.default_rng(0)
    x = files.embedding()[rng.integers(0, shape.vocab, 19)].astype(np.float32)
    attended = rng.standard_normal((19, shape.heads * shape.head_dim)).astype(np.float32)
    x[3], attended[3], x[4] = 0, 0, 1000 * x[4]

    def parts(some: slice) -> list[np.ndarray]:
        added = x[some].copy()
        first = dense.first(added)
        between = dense.between(0, added, attended[some])
        hidden = dense.between(shape.layers - 1, added, attended[some])
        return [first, between, hidden, added, dense.logits(hidden)]

    together = parts(slice(0, 19))
    assert all(np.isfinite(part).all() for part in together)
    for some in (slice(0, 1), slice(3, 4), slice(4, 6), slice(2, 19)):
        for alone, among in zip(parts(some), together, strict=True):
            np.testing.assert_array_equal(alone, among[some])
    assert dense.logits(np.empty((0, shape.width), np.float32)).shape == (0, shape.vocab)


@pytest.mark.models
@pytest.mark.parametrize("name", ["factors.npz", "qkv-00.onnx"])
@pytest.mark.parametrize("content", [None, b"", b"x" * 1000, "half"])
def test_a_damaged_file_is_named(
    files: BrainFiles, tmp_path: Path, name: str, content: bytes | str | None
) -> None:
    for path in files.folder.iterdir():
        if path.name != name:
            (tmp_path / path.name).symlink_to(path)
        elif content is not None:
            whole = path.read_bytes()
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else whole[: len(whole) // 2])
    with pytest.raises(ModelFileError, match=str(tmp_path)):
        BrainDense(BrainFiles(tmp_path))
