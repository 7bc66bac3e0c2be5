"""EfficientNet-lite0 as an ONNX graph, made once from the published PyTorch weights.

The architecture is Tan & Le's (arXiv 1905.11946) in its "lite" form: no squeeze-and-excitation, ReLU6,
padding as TensorFlow's SAME. Batch normalisation is folded into the convolutions.
"""

import os
import pickle
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

from voice_app.config import home
from voice_app.errors import ModelFileError
from voice_app.models.base import Report

SIDE = 224
"""Rows and columns of the input, in pixels."""

_STAGES = (  # repeats, kernel, stride of the first, expansion, width
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_EPSILON = 1e-3
_VERSION = 1


def converted(weights: Path, report: Report) -> Path:
    """The ONNX file made from the `.pth` file `weights`; makes it where it is not there yet.

    Input `pixels` [n, 3, 224, 224] float32, (value - 127) / 128; output `scores` [n, 1000], softmax.
    Raises ModelFileError if the file is foreign or the result can't be stored."""
    path = home() / "local" / f"{weights.stem}-v{_VERSION}.onnx"
    if not path.exists():
        report("converting the image encoder's weights")
        data = _graph(_read(weights)).SerializeToString()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # A folder of its own: whatever fails, it goes with what is in it.
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".labels-") as folder:
                part = Path(folder) / path.name
                part.write_bytes(data)
                os.replace(part, path)
        except OSError as error:
            raise ModelFileError(
                f"{path}: cannot be written ({error.strerror}); free 20 MB there or set VOICE_APP_HOME"
            ) from error
    return path


def _read(path: Path) -> dict[str, np.ndarray]:
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        return {name: tensor.numpy() for name, tensor in state.items()}
    except (OSError, RuntimeError, pickle.UnpicklingError, AttributeError) as error:
        raise ModelFileError(f"{path}: not PyTorch weights; run `voice-app pull --again`") from error


class _Builder:
    """Adds layers; `top` is the name of the newest output."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self.weights = weights
        self.nodes = []
        self.constants = []
        self.top = "pixels"

    def node(self, kind: str, *inputs: str, **attributes) -> None:
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [self.top, *inputs], [name], **attributes))
        self.top = name

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name))
        return name

    def conv(self, conv: str, norm: str, kernel: int = 1, stride: int = 1, *, active: bool = True) -> None:
        scale = self.weights[f"{norm}.weight"] / np.sqrt(self.weights[f"{norm}.running_var"] + _EPSILON)
        weight = self.weights[f"{conv}.weight"]
        bias = self.weights[f"{norm}.bias"] - self.weights[f"{norm}.running_mean"] * scale
        self.node(
            "Conv",
            self.constant(f"{conv}.w", weight * scale[:, None, None, None]),
            self.constant(f"{conv}.b", bias),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            auto_pad="SAME_UPPER",
            # A depthwise convolution has one input channel a filter.
            group=weight.shape[0] if "depthwise" in conv else 1,
        )
        if active:
            self.node("Clip", "zero", "six")


def _graph(weights: Mapping[str, np.ndarray]):
    build = _Builder(weights)
    build.constant("zero", np.array(0.0))
    build.constant("six", np.array(6.0))
    build.conv("_conv_stem", "_bn0", 3, 2)
    block, width = 0, 32
    for repeats, kernel, first_stride, expansion, out in _STAGES:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            name, start = f"_blocks.{block}", build.top
            if expansion > 1:
                build.conv(f"{name}._expand_conv", f"{name}._bn0")
            build.conv(f"{name}._depthwise_conv", f"{name}._bn1", kernel, stride)
            build.conv(f"{name}._project_conv", f"{name}._bn2", active=False)
            if stride == 1 and width == out:
                build.node("Add", start)
            block, width = block + 1, out
    build.conv("_conv_head", "_bn1")
    build.node("GlobalAveragePool")
    build.node("Flatten", axis=1)
    build.node(
        "Gemm",
        build.constant("fc.w", weights["_fc.weight"]),
        build.constant("fc.b", weights["_fc.bias"]),
        transB=1,
    )
    build.node("Softmax", axis=1)
    build.nodes[-1].output[0] = "scores"
    graph = helper.make_graph(
        build.nodes,
        "efficientnet_lite0",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 1000])],
        build.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    return model
