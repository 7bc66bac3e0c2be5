"""The packaged brain's matrices in 8 bits, a scale for each column of a product, and the norms before them.

A matrix is [in, out], as a product takes it; query, key and value are one, and so are a layer's gate and its
other half. What makes them is `converted` (`brain_files.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from voice_app.models.local.brain_smoothing import loudest_columns, smoothing
from voice_app.models.local.brain_weights import GgufBrain


@dataclass(frozen=True, slots=True)
class Matrix:
    """`weight` [in, out] int8; `columns` [out] float32, what a 1 in a column stands for. `gain` [in] float32:
    what its input is multiplied by before it is quantised, column by column: the norm's gain and what
    `smoothing` asks for; None: nothing."""

    name: str
    weight: np.ndarray
    columns: np.ndarray
    gain: np.ndarray | None = None


def names(layer: int) -> tuple[str, str, str, str]:
    """Of a layer's matrices: after its first norm, its attention, its second norm, and the last."""
    return f"qkv-{layer:02}", f"out-{layer:02}", f"gate-up-{layer:02}", f"down-{layer:02}"


HEAD = "head"
"""The name of the last matrix, which gives the logits."""


def matrices(brain: GgufBrain, ids: Sequence[int]) -> Iterator[Matrix]:
    """All of them, in the order in which a row meets them. `ids`: a prompt that shows how loud the columns
    of their inputs get."""
    loudest = loudest_columns(brain, ids)
    for layer in range(brain.shape.layers):
        qkv, out, gate_up, down = names(layer)
        here = f"blk.{layer}"
        query = brain.rotary(f"{here}.attn_q.weight", brain.shape.heads)
        key = brain.rotary(f"{here}.attn_k.weight", brain.shape.kv_heads)
        weight = np.concatenate([query, key, brain.tensor(f"{here}.attn_v.weight")])
        yield _smooth(qkv, weight, next(loudest), brain.tensor(f"{here}.attn_norm.weight"))
        yield quantised(out, brain.tensor(f"{here}.attn_output.weight"))
        gate, up = brain.tensor(f"{here}.ffn_gate.weight"), brain.tensor(f"{here}.ffn_up.weight")
        weight = np.concatenate([gate, up])
        yield _smooth(gate_up, weight, next(loudest), brain.tensor(f"{here}.ffn_norm.weight"))
        yield quantised(down, brain.tensor(f"{here}.ffn_down.weight"))
    yield quantised(HEAD, brain.tensor("token_embd.weight"))


def quantised(name: str, weight: np.ndarray, gain: np.ndarray | None = None) -> Matrix:
    """`weight` [out, in] float32."""
    columns = np.abs(weight).max(axis=1) / 127
    columns[columns == 0] = 1
    whole = np.rint(weight / columns[:, None]).astype(np.int8)
    return Matrix(name, np.ascontiguousarray(whole.T), columns.astype(np.float32), gain)


def _smooth(name: str, weight: np.ndarray, loudest: np.ndarray, gain: np.ndarray) -> Matrix:
    scale = smoothing(loudest, weight)
    return quantised(name, weight * scale, gain / scale)
