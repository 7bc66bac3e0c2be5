"""A Piper voice's ONNX graph, cut into three: text half, flow, decoder.

    phoneme ids ─[text]─▶ durations, mean, log scale ─(repeat, add noise)─▶ z_p ─[flow]─▶ z ─[decoder]─▶ PCM

The two places between the parts are where an assistant wants to reach in: the durations give each word's
time and let pauses be set; the noise becomes ours, so the same text always gives the same sound; the
decoder runs over windows of z, so sound leaves before a clause is finished. The cuts are found by the
graph's structure and not by tensor names, which differ between exports.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.shape_inference
import onnx.utils

from voice_app.errors import ModelFileError


@dataclass(frozen=True, slots=True)
class Cuts:
    """The tensors at which a graph is cut. [B, C, T] float32 unless said."""

    duration_noise: str
    """[1, 2, phonemes]: the duration predictor's noise."""
    durations: str
    """[1, 1, phonemes]: frames a phoneme, whole numbers."""
    mean: str
    log_scale: str
    """[1, channels, phonemes] each: the prior of each phoneme's frames."""
    noisy: str
    """[1, channels, frames]: z_p, a sample of that prior."""
    mask: str
    """[1, 1, frames]: which frames there are."""
    latent: str
    """[1, channels, frames]: z, what the decoder reads."""
    samples_per_frame: int


class _Graph:
    """Who makes and who reads each tensor."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes = list(model.graph.node)
        self.maker = {output: node for node in self.nodes for output in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def only(self, op: str, why: str) -> onnx.NodeProto:
        found = [node for node in self.nodes if node.op_type == op]
        if len(found) != 1:
            raise _Foreign(f"has {len(found)} {op} nodes where {why} has one")
        return found[0]

    def reader(self, tensor: str, op: str) -> onnx.NodeProto:
        found = [node for node in self.readers.get(tensor, []) if node.op_type == op]
        if len(found) != 1:
            raise _Foreign(f"{tensor} is read by {len(found)} {op} nodes instead of one")
        return found[0]

    def made_by(self, tensor: str, *ops: str) -> onnx.NodeProto:
        node = self.maker.get(tensor)
        if node is None or node.op_type not in ops:
            raise _Foreign(f"{tensor} is made by {node.op_type if node else 'nothing'}, not {'/'.join(ops)}")
        return node

    def reaches(self, start: str, end: str) -> bool:
        """Whether `end` is computed from `start`."""
        seen, todo = {start}, [start]
        while todo:
            for node in self.readers.get(todo.pop(), []):
                for output in node.output:
                    if output == end:
                        return True
                    if output not in seen:
                        seen.add(output)
                        todo.append(output)
        return False


class _Foreign(Exception):
    """The graph is not built as Piper exports VITS; says where it differs."""


def find_cuts(model: onnx.ModelProto) -> Cuts:
    """Where to cut `model`. Raises ModelFileError if it is not built as Piper exports VITS."""
    try:
        return _find(_Graph(model), model)
    except _Foreign as error:
        raise ModelFileError(
            f"the voice's graph is not one that Piper exports ({error}); give a Piper voice in ONNX form",
            param="voice",
        ) from error


def _find(graph: _Graph, model: onnx.ModelProto) -> Cuts:
    durations = graph.only("Ceil", "a duration predictor").output[0]
    before, after = [], []
    for node in graph.nodes:
        if node.op_type == "RandomNormalLike":
            (before if graph.reaches(node.output[0], durations) else after).append(node.output[0])
    if len(before) != 1 or len(after) != 1:
        raise _Foreign(f"{len(before)} + {len(after)} noise sources instead of 1 + 1")

    # z_p = mean + noise · exp(log_scale) · noise_scale
    scaled = graph.reader(after[0], "Mul")
    log_scale = _unrepeated(graph, graph.made_by(_other(scaled, after[0]), "Exp").input[0])
    weighted = graph.reader(scaled.output[0], "Mul")
    noisy = graph.reader(weighted.output[0], "Add")
    mean = _unrepeated(graph, _other(noisy, weighted.output[0]))

    # The decoder's first convolution comes before its first upsampling.
    upsamplings = [node for node in graph.nodes if node.op_type == "ConvTranspose"]
    if not upsamplings:
        raise _Foreign("no ConvTranspose: no HiFi-GAN decoder")
    into = graph.made_by(upsamplings[0].input[0], "LeakyRelu").input[0]
    latent = _first_convolved(graph, into)
    masked = graph.made_by(latent, "Mul")
    mask = next(name for name in masked.input if graph.made_by(name, "Cast", "Concat").op_type == "Cast")
    return Cuts(
        duration_noise=before[0],
        durations=durations,
        mean=mean,
        log_scale=log_scale,
        noisy=noisy.output[0],
        mask=mask,
        latent=latent,
        samples_per_frame=math.prod(_stride(node) for node in upsamplings),
    )


def _first_convolved(graph: _Graph, tensor: str) -> str:
    """What the convolution that makes `tensor` reads; one of several speakers is added to what it makes."""
    made = graph.made_by(tensor, "Conv", "Add")
    for name in [tensor] if made.op_type == "Conv" else made.input:
        node = graph.maker.get(name)
        source = graph.maker.get(node.input[0]) if node is not None and node.op_type == "Conv" else None
        if node is not None and source is not None and source.op_type == "Mul":
            return node.input[0]
    raise _Foreign("the decoder does not begin with a convolution of masked frames")


def _other(node: onnx.NodeProto, known: str) -> str:
    (rest,) = [name for name in node.input if name != known]
    return rest


def _unrepeated(graph: _Graph, repeated: str) -> str:
    """Before the alignment repeats it: repeated = transpose(path @ transpose(x)) → x."""
    matmul = graph.made_by(graph.made_by(repeated, "Transpose").input[0], "MatMul")
    return graph.made_by(matmul.input[1], "Transpose").input[0]


def _stride(node: onnx.NodeProto) -> int:
    return next(attribute.ints[0] for attribute in node.attribute if attribute.name == "strides")


def cut(model: onnx.ModelProto, cuts: Cuts, folder: Path) -> None:
    """Write text.onnx, flow.onnx and decoder.onnx into `folder`. A voice of several speakers reads `sid` in
    each of them."""
    extractor = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(model))
    inputs = [value.name for value in model.graph.input]
    speaker = [name for name in inputs if name == "sid"]
    output = model.graph.output[0].name
    for name, into, out in (
        ("text", [*inputs, cuts.duration_noise], [cuts.durations, cuts.mean, cuts.log_scale]),
        ("flow", [cuts.noisy, cuts.mask, *speaker], [cuts.latent]),
        ("decoder", [cuts.latent, *speaker], [output]),
    ):
        onnx.save(extractor.extract_model(into, out), folder / f"{name}.onnx")
