"""Products of rows in 8 bits with a matrix in 8 bits, exact: ONNX Runtime's MatMulInteger."""

from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from voice_app.models.local.onnx_session import onnx_session

MIDDLE = 128
"""What stands for 0 in a row."""


def product_graph(weight: np.ndarray) -> ModelProto:
    """rows [n, in] uint8 around `MIDDLE` → product [n, out] int32 with `weight` [in, out] int8."""
    width_in, width_out = weight.shape
    constants = [
        numpy_helper.from_array(weight, "weight"),
        numpy_helper.from_array(np.array(MIDDLE, np.uint8), "middle"),
    ]
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["rows", "weight", "middle"], ["product"])],
        "product",
        [helper.make_tensor_value_info("rows", TensorProto.UINT8, ["n", width_in])],
        [helper.make_tensor_value_info("product", TensorProto.INT32, ["n", width_out])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


class Product:
    """A `product_graph`: rows [n, `inputs`] uint8 → [n, `outputs`] int32."""

    def __init__(self, model: Path | bytes) -> None:
        """Raises ModelFileError."""
        self._session = onnx_session(model, 1, arena=False, signed=_exact())
        self.inputs: int = self._session.get_inputs()[0].shape[1]
        self.outputs: int = self._session.get_outputs()[0].shape[1]

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return cast(np.ndarray, self._session.run(None, {"rows": rows})[0])


@cache
def _exact() -> bool:
    """Whether this processor adds products with signed weights up without overflow. One without VNNI adds
    two of them in 16 bits. ONNX Runtime would go the safe way for one with AMX too, which does not need it
    and is then twice as slow."""
    weight = np.full((64, 64), 127, np.int8)
    rows = np.full((17, 64), 255, np.uint8)
    session = onnx_session(product_graph(weight).SerializeToString(), 1, arena=False, signed=True)
    return all(
        np.array_equal(
            cast(np.ndarray, session.run(None, {"rows": rows[:n]})[0]),
            (rows[:n].astype(np.int32) - MIDDLE) @ weight.astype(np.int32),
        )
        for n in (1, len(rows))
    )
