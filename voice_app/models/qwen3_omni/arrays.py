"""Tensors as what crosses edges, in the model's own precision, and back.

From a GPU they go as they are, for stages on GPUs; on their way to the host they become arrays. numpy has
no bfloat16; such values travel as the uint16 that holds their bits, so that a thinker's vector of 2,048 stays
4 KB and nothing is rounded.
"""

from typing import cast

import torch

from voice_app.arrays import Array, on_host


def to_array(tensor: torch.Tensor) -> Array:
    """A copy to emit: on the host, or a tensor on the GPU where `tensor` is, which other streams can read."""
    tensor = tensor.detach()
    if not tensor.is_cuda:
        return to_host(tensor)
    copy = tensor.clone()
    torch.cuda.current_stream(tensor.device).synchronize()
    return cast(Array, copy)


@on_host.register
def to_host(tensor: torch.Tensor) -> Array:
    """A copy on the host."""
    host = tensor.to("cpu", copy=True)
    if host.dtype == torch.bfloat16:
        host = host.view(torch.uint16)
    return host.numpy()


def to_tensor(array: Array, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """What arrived, on `device`: an array as a copy, for its space may go back to its sender."""
    if isinstance(array, torch.Tensor):
        if array.is_cuda:
            # It was not made on this stream, and may be dropped before the stream has read it.
            array.record_stream(torch.cuda.current_stream(array.device))
        return array.to(device, dtype)
    tensor = torch.tensor(array)
    if tensor.dtype == torch.uint16:
        tensor = tensor.view(torch.bfloat16)
    return tensor.to(device, dtype)
