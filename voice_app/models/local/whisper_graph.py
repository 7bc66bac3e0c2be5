"""Whisper's decoder as two ONNX graphs.

`memory_graph` makes of encoded sound the keys and values that the decoder attends to; `pass_graph` takes some
tokens of a text through the decoder. Matrices of a pass are `MatMulNBits` with 8 bits in blocks of 64 and
accuracy level 4 (inputs are quantised to 8 bits too, block by block). With this block size what they make of
a row does not depend on the number of rows (measured: equal to the bit for 1 to 128 rows; with blocks of 128
it is not).
"""

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from voice_app.models.local.whisper_weights import WhisperWeights

_EPSILON = 1e-5
_ORT = "com.microsoft"
BLOCK = 64
_ROUGH_BLOCK = 32
_ROWS = 512
"""Quantised at a time: what is made on the way stays in the processor's cache."""
MEMORY = "memory.key.{}", "memory.value.{}"
PAST, PRESENT = ("past.key.{}", "past.value.{}"), ("key.{}", "value.{}")
"""Names of a layer's inputs and outputs."""


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

    def __init__(self, weights: WhisperWeights) -> None:
        self._weights = weights
        shape = weights.shape
        self.heads, self.dim, self.width = shape.heads, shape.width // shape.heads, shape.width
        self._nodes: list = []
        self._constants: list = []

    def constant(self, name: str, value: np.ndarray) -> str:
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, op: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes) -> str:
        self._nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def linear(self, x: str, y: str, weight: np.ndarray, bias: np.ndarray) -> str:
        """In 8 bits."""
        rows, columns = weight.shape
        q, scale = quantise(weight)
        names = [
            self.constant(f"{y}.{name}", value)
            for name, value in (("q", q), ("scale", scale), ("bias", bias))
        ]
        return self.node(
            "MatMulNBits", [x, *names[:2], "", "", names[2]], [y], _ORT,
            K=columns, N=rows, bits=8, block_size=BLOCK, accuracy_level=4,
        )  # fmt: skip

    def rough_linear(self, x: str, y: str, weight: np.ndarray) -> str:
        """In 4 bits, each block with its least value and a scale."""
        rows, columns = weight.shape
        blocks = weight.reshape(rows, -1, _ROUGH_BLOCK)
        parts = [_rough(blocks[row : row + _ROWS]) for row in range(0, rows, _ROWS)]
        q, scale, zero = (np.concatenate(part) for part in zip(*parts, strict=True))
        names = [
            self.constant(f"{y}.{name}", value)
            for name, value in (("q", q), ("scale", scale), ("zero", zero))
        ]
        return self.node(
            "MatMulNBits", [x, *names], [y], _ORT,
            K=columns, N=rows, bits=4, block_size=_ROUGH_BLOCK, accuracy_level=4,
        )  # fmt: skip

    def float_linear(self, x: str, y: str, weight: np.ndarray, bias: np.ndarray) -> str:
        inputs = [x, self.constant(f"{y}.weight", weight.T), self.constant(f"{y}.bias", bias)]
        return self.node("Gemm", inputs, [y])

    def norm(self, name: str, x: str, y: str) -> str:
        return self.node("LayerNormalization", [x, *self._norm(name)], [y], axis=-1, epsilon=_EPSILON)

    def add_norm(self, name: str, x: str, more: str, y: str, total: str) -> str:
        """`total` = `x` + `more`; `y` = its norm."""
        inputs = [x, more, *self._norm(name)]
        return self.node("SkipLayerNormalization", inputs, [y, "", "", total], _ORT, epsilon=_EPSILON)

    def by_head(self, x: str, y: str, keys: bool = False) -> str:
        """[rows, width] → [heads, rows, dim]; `keys`: [heads, dim, rows]."""
        cut = self.node("Reshape", [x, "cut"], [f"{y}.cut"])
        return self.node("Transpose", [cut], [y], perm=[1, 2, 0] if keys else [1, 0, 2])

    def weighed(self, query: str, key: str, value: str, y: str, mask: str | None = None) -> str:
        """Attention of `query` [heads, rows, dim] over `key` [heads, dim, n] and `value` [heads, n, dim] →
        [rows, width]. The scale is in the query."""
        scores = self.node("MatMul", [query, key], [f"{y}.scores"])
        if mask:
            scores = self.node("Add", [scores, mask], [f"{y}.masked"])
        weights = self.node("Softmax", [scores], [f"{y}.weights"], axis=-1)
        mixed = self.node("MatMul", [weights, value], [f"{y}.mixed"])
        rows = self.node("Transpose", [mixed], [f"{y}.rows"], perm=[1, 0, 2])
        return self.node("Reshape", [rows, "joined"], [y])

    def model(self, inputs: dict[str, list], outputs: dict[str, list]) -> ModelProto:
        def info(name: str, shape: list):
            kind = TensorProto.INT64 if name == "first" else TensorProto.FLOAT
            return helper.make_tensor_value_info(name, kind, shape)

        graph = helper.make_graph(
            self._nodes,
            "whisper",
            [info(*item) for item in inputs.items()],
            [info(*item) for item in outputs.items()],
            self._constants,
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(_ORT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def _norm(self, name: str) -> list[str]:
        gain, shift = (self._weights.tensor(f"{name}/{part}") for part in ("gamma", "beta"))
        return [self.constant(f"{name}.gain", gain), self.constant(f"{name}.shift", shift)]


def memory_graph(weights: WhisperWeights) -> ModelProto:
    """encoded [n, width] → of each layer the keys [heads, dim, n] and the values [heads, n, dim]. In float32:
    it is one pass over many rows, where 8 bits would be no faster."""
    shape = weights.shape
    graph = _Graph(weights)
    graph.constant("cut", np.array([-1, graph.heads, graph.dim]))
    outputs = {}
    for layer in range(shape.layers):
        weight, bias = _parts(weights, f"layer_{layer}/attention/linear_1", 2)
        for i, name in enumerate(MEMORY):
            name = name.format(layer)
            graph.float_linear("encoded", f"{name}.flat", weight[i], bias[i])
            graph.by_head(f"{name}.flat", name, keys=i == 0)
            outputs[name] = [graph.heads, graph.dim, "n"] if i == 0 else [graph.heads, "n", graph.dim]
    return graph.model({"encoded": ["n", shape.width]}, outputs)


def pass_graph(weights: WhisperWeights) -> ModelProto:
    """x [rows, width], embedded tokens that follow on a past of p; of each layer the memory, and the past's
    keys [heads, dim, p] and values [heads, p, dim] → from row `first` on `hidden` [given, width] and rough
    `logits` [given, vocab]; of each layer the keys and values of past and rows. `mask` [rows, p + rows] is
    added to what rows see.

    The logits' matrix is most of the weights. In 4 bits it takes half of the time, and tells which few tokens
    can be the likeliest; whoever reads the logits makes those few's anew from `hidden`."""
    shape = weights.shape
    graph = _Graph(weights)
    graph.constant("cut", np.array([-1, graph.heads, graph.dim]))
    graph.constant("joined", np.array([-1, shape.width]))
    graph.constant("end", np.array([np.iinfo(np.int64).max]))
    inputs: dict[str, list] = {"x": ["rows", shape.width], "mask": ["rows", "all"], "first": [1]}
    outputs: dict[str, list] = {"hidden": ["given", shape.width], "logits": ["given", shape.vocab]}
    x, normed = "x", graph.norm("layer_0/self_attention/layer_norm", "x", "normed")
    for layer in range(shape.layers):
        x, normed = _layer(graph, weights, layer, x, normed)
        for names, length in ((MEMORY, "n"), (PAST, "past"), (PRESENT, "all")):
            key, value = (name.format(layer) for name in names)
            where = outputs if names is PRESENT else inputs
            where |= {key: [graph.heads, graph.dim, length], value: [graph.heads, length, graph.dim]}
    given = graph.node("Slice", [normed, "first", "end"], ["hidden"])
    graph.rough_linear(given, "logits", weights.tensor("embeddings/weight"))
    return graph.model(inputs, outputs)


def _layer(graph: _Graph, weights: WhisperWeights, layer: int, x: str, normed: str) -> tuple[str, str]:
    """The layer's outcome, and what the next layer's first norm (or the last norm) makes of it."""
    shape, at = weights.shape, f"layer_{layer}"
    scale = graph.dim**-0.5

    def linear(name: str, inner: str, y: str, factor: float = 1.0) -> str:
        weight, bias = weights.tensor(f"{at}/{name}/weight"), weights.tensor(f"{at}/{name}/bias")
        return graph.linear(inner, f"{at}.{y}", weight * factor, bias * factor)

    weight, bias = _parts(weights, f"{at}/self_attention/linear_0", 3)
    weight[0] *= scale
    bias[0] *= scale
    qkv = graph.linear(normed, f"{at}.qkv", weight.reshape(-1, shape.width), bias.reshape(-1))
    cut = [f"{at}.{part}" for part in ("q", "k", "v")]
    graph.node("Split", [qkv], cut, num_outputs=3, axis=-1)
    query = graph.by_head(cut[0], f"{at}.query")
    present: list[str] = []
    for i in range(2):
        new = graph.by_head(cut[1 + i], f"{at}.new.{i}", keys=i == 0)
        past, name = PAST[i].format(layer), PRESENT[i].format(layer)
        present.append(graph.node("Concat", [past, new], [name], axis=2 - i))
    mixed = graph.weighed(query, present[0], present[1], f"{at}.heard", "mask")
    more = linear("self_attention/linear_1", mixed, "self")
    normed = graph.add_norm(f"{at}/attention/layer_norm", x, more, f"{at}.normed.1", f"{at}.x.1")
    query = graph.by_head(linear("attention/linear_0", normed, "question", scale), f"{at}.asked")
    key, value = (name.format(layer) for name in MEMORY)
    mixed = graph.weighed(query, key, value, f"{at}.seen")
    more = linear("attention/linear_2", mixed, "cross")
    normed = graph.add_norm(f"{at}/ffn/layer_norm", f"{at}.x.1", more, f"{at}.normed.2", f"{at}.x.2")
    inner = graph.node("Gelu", [linear("ffn/linear_0", normed, "up")], [f"{at}.inner"])
    more = linear("ffn/linear_1", inner, "down")
    following = f"layer_{layer + 1}/self_attention/layer_norm" if layer + 1 < shape.layers else "layer_norm"
    normed = graph.add_norm(following, f"{at}.x.2", more, f"{at}.normed.3", f"{at}.x.3")
    return f"{at}.x.3", normed


def _parts(weights: WhisperWeights, name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Matrices that lie in one, and their biases: [count, out, in] and [count, out]."""
    weight, bias = weights.tensor(f"{name}/weight"), weights.tensor(f"{name}/bias")
    return weight.reshape(count, -1, weight.shape[1]), bias.reshape(count, -1)


def _rough(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[rows, blocks, 32] in 4 bits: two numbers a byte, their scales, and the number that stands for 0."""
    low, high = np.minimum(blocks.min(axis=2), 0), np.maximum(blocks.max(axis=2), 0)
    scale = (high - low) / 15
    scale[scale == 0] = 1
    zero = np.rint(-low / scale)
    q = np.clip(np.rint(blocks / scale[..., None]) + zero[..., None], 0, 15).astype(np.uint8)
    zero = np.pad(zero.astype(np.uint8), ((0, 0), (0, zero.shape[1] % 2)))
    return q[..., ::2] | q[..., 1::2] << 4, scale, zero[:, ::2] | zero[:, 1::2] << 4
