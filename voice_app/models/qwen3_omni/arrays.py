"""Tensors as arrays that cross edges, in the model's own precision, and back.

numpy has no bfloat16; such values travel as the uint16 that holds their bits, so that a thinker's vector
of 2,048 stays 4 KB and nothing is rounded.
"""

import numpy as np
import torch


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """A copy on the host."""
    host = tensor.detach().to("cpu", copy=True)
    if host.dtype == torch.bfloat16:
        host = host.view(torch.uint16)
    return host.numpy()


def to_tensor(array: np.ndarray, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A copy on `device`: the array's space may go back to its sender."""
    tensor = torch.tensor(array)
    if tensor.dtype == torch.uint16:
        tensor = tensor.view(torch.bfloat16)
    return tensor.to(device, dtype)
