"""Arrays in payloads: what they are, and how what a stage on a GPU emits instead becomes one."""

from functools import singledispatch

import numpy as np

Array = np.ndarray
"""An array in a payload. A plain alias: shape and dtype stand beside each field."""


@singledispatch
def on_host(value: object) -> Array:
    """The array with the numbers of `value`, as they cross to where there is no GPU. A pack whose stages
    emit tensors registers their type. Raises TypeError for what is neither."""
    raise TypeError(f"{type(value).__name__} cannot cross an edge; send arrays of plain numbers")


@on_host.register
def _(value: np.ndarray) -> Array:
    return value
