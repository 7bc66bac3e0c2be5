"""How this pack opens an ONNX graph."""

from pathlib import Path

import onnxruntime

# ONNX Runtime's errors share no base below Exception, and this module is the only place that names them.
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
)

from voice_app.errors import ModelFileError


def onnx_session(
    model: Path | bytes, threads: int, *, arena: bool = True, signed: bool = False
) -> onnxruntime.InferenceSession:
    """Load `model`, a file or its content, for the CPU, each call on `threads` threads. `arena`: the session
    keeps its largest call's memory for the next one; a model of many sessions does without. `signed`: 8-bit
    weights stay signed on any processor. Raises ModelFileError."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Spinning threads would take the core from the other worker.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Processors without VNNI add products of signed 8-bit weights up in 16 bits, which overflow: an 8-bit
    # model is another one there. This makes the weights unsigned on such processors; nothing overflows then.
    options.add_session_config_entry("session.x64quantprecision", "0" if signed else "1")
    options.enable_cpu_mem_arena = arena
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except (Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile) as error:
        what = model if isinstance(model, Path) else "a graph made of the model's weights"
        raise ModelFileError(
            f"{what}: not a model that ONNX Runtime {onnxruntime.__version__} can load"
        ) from error
