"""The packaged brain's dense parts as ONNX graphs with 8-bit weights.

Attention is not in them: it runs over KV pages (`paged_attention.py`). So a graph reaches from one layer's
attention to the next one's, and a step is

    first → attention 0 → between 0 → attention 1 → … → attention last → last → head

Matrices are `MatMulNBits` with 8 bits in blocks of 64 and accuracy level 4 (inputs are quantised to 8 bits
too, block by block). With this block size a row's result does not depend on the number of rows (measured:
equal to the bit for 1 to 128 rows; with blocks of 128 it is not), so an answer does not depend on what else
is in the batch.
"""

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from voice_app.models.local.brain_weights import BrainShape, GgufBrain

BLOCK = 64
_ORT = "com.microsoft"


def quantise(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`weight` [out, in] as uint8 [out, blocks, 64] around 128 and float32 scales [out, blocks]."""
    rows, columns = weight.shape
    blocks = -(-columns // BLOCK)
    padded = np.zeros((rows, blocks * BLOCK), np.float32)
    padded[:, :columns] = weight
    cut = padded.reshape(rows, blocks, BLOCK)
    scale = np.abs(cut).max(axis=2) / 127
    scale[scale == 0] = 1
    return np.rint(cut / scale[..., None] + 128).astype(np.uint8), scale


class _Graph:
    """An ONNX graph under construction: names of values in, names out."""

    def __init__(self, epsilon: float) -> None:
        self._epsilon = epsilon
        self._nodes: list = []
        self._weights: list = []

    def matmul(self, x: str, y: str, weight: np.ndarray) -> str:
        q, scale = quantise(weight)
        self._weights += [numpy_helper.from_array(q, f"{y}.q"), numpy_helper.from_array(scale, f"{y}.scale")]
        rows, columns = weight.shape
        self._node(
            "MatMulNBits", [x, f"{y}.q", f"{y}.scale"], [y], _ORT,
            K=columns, N=rows, bits=8, block_size=BLOCK, accuracy_level=4,
        )  # fmt: skip
        return y

    def norm(self, x: str, y: str, gain: np.ndarray) -> str:
        self._weights.append(numpy_helper.from_array(gain, f"{y}.gain"))
        self._node("SimplifiedLayerNormalization", [x, f"{y}.gain"], [y], "", epsilon=self._epsilon, axis=-1)
        return y

    def add_norm(self, x: str, more: str, y: str, total: str, gain: np.ndarray) -> str:
        """`total` = `x` + `more`; `y` = its norm."""
        self._weights.append(numpy_helper.from_array(gain, f"{y}.gain"))
        inputs, outputs = [x, more, f"{y}.gain"], [y, "", "", total]
        self._node("SkipSimplifiedLayerNormalization", inputs, outputs, _ORT, epsilon=self._epsilon)
        return y

    def gated(self, x: str, y: str, inner: int) -> str:
        """SiLU of the first half times the second half."""
        self._weights.append(numpy_helper.from_array(np.array([inner, inner], np.int64), f"{y}.split"))
        self._node("Split", [x, f"{y}.split"], [f"{y}.gate", f"{y}.up"], "", axis=-1)
        self._node("QuickGelu", [f"{y}.gate"], [f"{y}.silu"], _ORT, alpha=1.0)
        self._node("Mul", [f"{y}.silu", f"{y}.up"], [y], "")
        return y

    def model(self, inputs: dict[str, int], outputs: dict[str, int]) -> ModelProto:
        def info(name: str, width: int):
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", width])

        graph = helper.make_graph(
            self._nodes,
            "brain",
            [info(*item) for item in inputs.items()],
            [info(*item) for item in outputs.items()],
            self._weights,
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(_ORT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def _node(self, op: str, inputs: list[str], outputs: list[str], domain: str, **attributes) -> None:
        self._nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attributes))


def first_graph(brain: GgufBrain) -> ModelProto:
    """x [rows, width] → qkv [rows, (heads + 2 · kv_heads) · head_dim] of layer 0."""
    graph = _Graph(brain.shape.norm_epsilon)
    graph.norm("x", "normed", brain.tensor("blk.0.attn_norm.weight"))
    graph.matmul("normed", "qkv", _qkv(brain, 0))
    return graph.model({"x": brain.shape.width}, {"qkv": _qkv_width(brain.shape)})


def between_graph(brain: GgufBrain, layer: int) -> ModelProto:
    """x and the attention's output of `layer` → x after the layer, and qkv of the next; after the last layer
    the model's normed output `hidden` alone."""
    shape = brain.shape
    graph = _Graph(shape.norm_epsilon)
    name = f"blk.{layer}"
    graph.matmul("attended", "projected", brain.tensor(f"{name}.attn_output.weight"))
    graph.add_norm("x", "projected", "normed", "middle", brain.tensor(f"{name}.ffn_norm.weight"))
    gate, up = brain.tensor(f"{name}.ffn_gate.weight"), brain.tensor(f"{name}.ffn_up.weight")
    graph.matmul("normed", "gate_up", np.concatenate([gate, up]))
    graph.gated("gate_up", "inner", shape.inner)
    graph.matmul("inner", "down", brain.tensor(f"{name}.ffn_down.weight"))
    inputs = {"x": shape.width, "attended": shape.width}
    if layer == shape.layers - 1:
        graph.add_norm("middle", "down", "hidden", "y", brain.tensor("output_norm.weight"))
        return graph.model(inputs, {"hidden": shape.width})
    graph.add_norm("middle", "down", "next", "y", brain.tensor(f"blk.{layer + 1}.attn_norm.weight"))
    graph.matmul("next", "qkv", _qkv(brain, layer + 1))
    return graph.model(inputs, {"y": shape.width, "qkv": _qkv_width(shape)})


def head_graph(brain: GgufBrain) -> ModelProto:
    """hidden [rows, width] → logits [rows, vocab]; the weights are the embedding's."""
    graph = _Graph(brain.shape.norm_epsilon)
    graph.matmul("hidden", "logits", brain.tensor("token_embd.weight"))
    return graph.model({"hidden": brain.shape.width}, {"logits": brain.shape.vocab})


def _qkv(brain: GgufBrain, layer: int) -> np.ndarray:
    name = f"blk.{layer}"
    query = brain.rotary(f"{name}.attn_q.weight", brain.shape.heads)
    key = brain.rotary(f"{name}.attn_k.weight", brain.shape.kv_heads)
    return np.concatenate([query, key, brain.tensor(f"{name}.attn_v.weight")])


def _qkv_width(shape: BrainShape) -> int:
    return (shape.heads + 2 * shape.kv_heads) * shape.head_dim
