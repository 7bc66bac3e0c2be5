"""The packaged brain's dense parts: all but its attention, which runs over KV pages (`paged_attention.py`).

    first → attention 0 → between 0 → attention 1 → … → attention last → between last → logits

Rows and matrices are multiplied as whole numbers of 8 bits (`integer_product.py`), what lies between two
products is in float32 (`brain_rows.py`). A row is the same bit for bit whatever else is computed with it.
"""

from dataclasses import dataclass

import numpy as np

from voice_app.errors import ModelFileError
from voice_app.models.local.brain_files import BrainFiles
from voice_app.models.local.brain_matrices import HEAD, names
from voice_app.models.local.brain_rows import (
    add_last_norm,
    add_norm,
    dequantise,
    gate,
    norm,
    quantise,
    quantise_sums,
)
from voice_app.models.local.integer_product import Product

_NO_GAIN = np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A matrix: `times` takes rows in 8 bits."""

    times: Product
    columns: np.ndarray
    gain: np.ndarray


class BrainDense:
    """All dense parts, computed by one thread: a product is too small to be divided. Not for two at once."""

    def __init__(self, files: BrainFiles) -> None:
        """Raises ModelFileError."""
        factors = files.factors()

        def load(name: str, inputs: int, outputs: int, gain: np.ndarray = _NO_GAIN) -> _Loaded:
            try:
                times, columns = Product(files.matrix(name)), factors.columns[name]
            except (ModelFileError, KeyError) as error:
                raise files.damaged() from error
            fits = (times.inputs, times.outputs, len(columns)) == (inputs, outputs, outputs)
            if not fits or len(gain) not in (0, inputs):
                raise files.damaged()
            return _Loaded(times, columns, gain)

        def load_layer(layer: int) -> tuple[_Loaded, _Loaded, _Loaded, _Loaded]:
            qkv, out, gate_up, down = names(layer)
            try:
                gains = factors.gains[qkv], factors.gains[gate_up]
            except KeyError as error:
                raise files.damaged() from error
            return (
                load(qkv, shape.width, (shape.heads + 2 * shape.kv_heads) * shape.head_dim, gains[0]),
                load(out, shape.heads * shape.head_dim, shape.width),
                load(gate_up, shape.width, 2 * shape.inner, gains[1]),
                load(down, shape.inner, shape.width),
            )

        self._shape = shape = files.shape
        self._epsilon = np.float32(shape.norm_epsilon)
        self._layers = [load_layer(layer) for layer in range(shape.layers)]
        self._head = load(HEAD, shape.width, shape.vocab)
        self._last_gain = factors.last_gain
        if len(self._last_gain) != shape.width:
            raise files.damaged()
        self._row = np.empty(files.shape.width, np.float32)
        self._inner_row = np.empty(files.shape.inner, np.float32)

    def first(self, x: np.ndarray) -> np.ndarray:
        """`x` [n, width] float32 → qkv [n, (heads + 2 · kv_heads) · head_dim] of layer 0."""
        q, scales = self._rows(len(x), self._shape.width)
        qkv = self._layers[0][0]
        norm(x, qkv.gain, self._epsilon, self._row, q, scales)
        return _floats(qkv, len(x), q, scales)

    def between(self, layer: int, x: np.ndarray, attended: np.ndarray) -> np.ndarray:
        """From the attention's output of `layer` to the next layer's qkv, after the last layer to the model's
        normed output [n, width]. `x` [n, width] is what has been added up so far, and becomes more."""
        shape, epsilon, n = self._shape, self._epsilon, len(x)
        _, out, gate_up, down = self._layers[layer]
        q, scales = self._rows(n, attended.shape[1])
        quantise(attended, q, scales)
        after, after_scales = self._rows(n, shape.width)
        add_norm(out.times(q), scales, out.columns, x, gate_up.gain, epsilon, self._row, after, after_scales)
        # Rounded to 8 bits, the inner rows would do the answers more harm than all other rounding together.
        q, scales = self._rows(2 * n, shape.inner)
        gate(gate_up.times(after), after_scales, gate_up.columns, self._inner_row, q, scales)
        made = down.times(q)
        if layer == shape.layers - 1:
            hidden = np.empty_like(x)
            add_last_norm(made, scales, down.columns, x, self._last_gain, epsilon, hidden)
            return hidden
        following = self._layers[layer + 1][0]
        add_norm(made, scales, down.columns, x, following.gain, epsilon, self._row, after, after_scales)
        return _floats(following, n, after, after_scales)

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """float32 [n, vocab] for rows of the model's normed output."""
        q, scales = self._rows(2 * len(hidden), self._shape.width)
        quantise_sums(hidden, q, scales)
        return _floats(self._head, len(hidden), q, scales)

    @staticmethod
    def _rows(n: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Room for rows in 8 bits and their scales."""
        return np.empty((n, width), np.uint8), np.empty(n, np.float32)


def _floats(matrix: _Loaded, n: int, q: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Of `n` rows or sums of rows."""
    made = matrix.times(q)
    out = np.empty((n, made.shape[1]), np.float32)
    dequantise(made, scales, matrix.columns, out)
    return out
