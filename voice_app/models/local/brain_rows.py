"""What the packaged brain does with rows between two products of its matrices, compiled by numba.

A row is quantised by itself, to 8 bits by its own largest value, and products of whole numbers are exact; so
a row's result does not depend on the rows beside it. In what follows a *product* [n, m] int32 is of rows in
8 bits, whose scales are `rows` [n], with a matrix in 8 bits, whose columns' scales are `columns` [m]. `q`
[n, width] uint8, around 128, and `scales` [n] get the rows that the next product takes. `one` is room for a
row of floats. A row may be the sum of two in 8 bits, of which the second holds what the first rounded off;
then all first rows come before all second ones.
"""

import numpy as np

from voice_app.models.local.compiled import exp, fast, loudest

_LEAST = np.float32(1e-30)
"""In the place of a row's largest value where that is 0."""


@fast
def quantise(x, q, scales):
    """The rows `x` [n, width] float32."""
    for row in range(x.shape[0]):
        _quantise(x[row], q[row], scales, row)


@fast
def quantise_sums(x, q, scales):
    """The rows `x` [n, width] float32 as sums of rows: `q` [2 · n, width], `scales` [2 · n]."""
    for row in range(x.shape[0]):
        _quantise_sum(x[row], q, scales, row, x.shape[0])


@fast
def dequantise(product, rows, columns, out):
    """`out` [n, m] float32 = `product`, of rows or of sums of rows."""
    for row in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[row, i] = 0
        _add(product, rows, columns, out, row)


@fast
def norm(x, gain, epsilon, one, q, scales):
    """The root mean square norm of `x` [n, width] float32."""
    for row in range(x.shape[0]):
        _norm(x[row], gain, epsilon, one)
        _quantise(one, q[row], scales, row)


@fast
def add_norm(product, rows, columns, x, gain, epsilon, one, q, scales):
    """`x` [n, width] float32 += `product`, of rows or of sums of rows; its norm."""
    for row in range(x.shape[0]):
        _add(product, rows, columns, x, row)
        _norm(x[row], gain, epsilon, one)
        _quantise(one, q[row], scales, row)


@fast
def add_last_norm(product, rows, columns, x, gain, epsilon, out):
    """`x` += `product`, of rows or of sums of rows; `out` [n, width] float32 = its norm."""
    for row in range(x.shape[0]):
        _add(product, rows, columns, x, row)
        _norm(x[row], gain, epsilon, out[row])


@fast
def gate(product, rows, columns, one, q, scales):
    """SiLU of the first half of `product` [n, 2 · width] times its second half, as sums of rows: `q`
    [2 · n, width], `scales` [2 · n]."""
    width, n = one.shape[0], product.shape[0]
    for row in range(n):
        for i in range(width):
            x = np.float32(product[row, i]) * rows[row] * columns[i]
            up = np.float32(product[row, width + i]) * rows[row] * columns[width + i]
            small = exp(-abs(x))
            one[i] = x * up * ((np.float32(1) if x >= 0 else small) / (np.float32(1) + small))
        _quantise_sum(one, q, scales, row, n)


@fast
def _add(product, rows, columns, x, row):
    for at in range(row, product.shape[0], x.shape[0]):
        for i in range(x.shape[1]):
            x[row, i] += np.float32(product[at, i]) * rows[at] * columns[i]


@fast
def _norm(x, gain, epsilon, out):
    total = np.float32(0)
    for i in range(x.shape[0]):
        total += x[i] * x[i]
    factor = np.float32(1) / np.sqrt(total / np.float32(x.shape[0]) + epsilon)
    for i in range(x.shape[0]):
        out[i] = x[i] * factor * gain[i]


@fast
def _quantise(x, q, scales, row):
    largest = max(loudest(x), _LEAST)
    scales[row] = largest / np.float32(127)
    steps = np.float32(127) / largest
    for i in range(x.shape[0]):
        q[i] = np.uint8(np.int32(np.rint(x[i] * steps)) + np.int32(128))


@fast
def _quantise_sum(x, q, scales, row, n):
    """In rows `row` and `n` + `row`."""
    _quantise(x, q[row], scales, row)
    step = scales[row]
    scales[n + row] = step / np.float32(254)
    steps = np.float32(254) / step
    for i in range(x.shape[0]):
        rest = x[i] - np.float32(np.int32(q[row, i]) - np.int32(128)) * step
        q[n + row, i] = np.uint8(np.int32(np.rint(rest * steps)) + np.int32(128))
