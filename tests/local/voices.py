"""Voices made from the packaged one, for tests."""

from pathlib import Path

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from voice_app.models.local import assets


def packaged() -> Path:
    """The packaged voice's .onnx."""
    return assets.ensure("voice")


def with_settings(folder: Path, **changes) -> Path:
    """The packaged voice with other settings."""
    path = folder / "en_US-changed-medium.onnx"
    path.symlink_to(packaged())
    settings = msgspec.json.decode(Path(f"{packaged()}.json").read_bytes()) | changes
    Path(f"{path}.json").write_bytes(msgspec.json.encode(settings))
    return path


def of_two_speakers(folder: Path) -> Path:
    """The packaged voice with an embedding of the speaker added where Piper adds it in the decoder: nothing
    for Anna, something for Bert."""
    model = onnx.load(packaged())
    graph = model.graph
    _rename(graph, "sid", "phonemes")
    maker = {output: node for node in graph.node for output in node.output}
    first_up = next(node for node in graph.node if node.op_type == "ConvTranspose")
    relu = maker[first_up.input[0]]
    before = maker[relu.input[0]]
    weights = {tensor.name: tensor for tensor in graph.initializer}
    channels = weights[before.input[1]].dims[0]
    rng = np.random.default_rng(7)
    table = np.stack([np.zeros((channels, 1)), rng.normal(0, 0.5, (channels, 1))]).astype(np.float32)
    graph.input.append(helper.make_tensor_value_info("sid", TensorProto.INT64, [1]))
    graph.initializer.append(numpy_helper.from_array(table, "speakers"))
    place = list(graph.node).index(relu)
    graph.node.insert(place, helper.make_node("Gather", ["speakers", "sid"], ["speaker"], axis=0))
    graph.node.insert(place + 1, helper.make_node("Add", [before.output[0], "speaker"], ["with_speaker"]))
    relu.input[0] = "with_speaker"
    path = folder / "two.onnx"
    onnx.save(model, path)
    settings = msgspec.json.decode(Path(f"{packaged()}.json").read_bytes())
    settings |= {"num_speakers": 2, "speaker_id_map": {"anna": 0, "bert": 1}}
    Path(f"{path}.json").write_bytes(msgspec.json.encode(settings))
    return path


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Rename a weight (the packaged voice's phoneme embedding is called "sid")."""
    for tensor in graph.initializer:
        tensor.name = new if tensor.name == old else tensor.name
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = new if name == old else name
