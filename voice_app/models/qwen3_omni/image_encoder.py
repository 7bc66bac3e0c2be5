"""The image encoder's runner: patches to embeddings, with the extra vision layers' features."""

from collections.abc import Sequence

import numpy as np
import torch

from voice_app.errors import VoiceAppError
from voice_app.messages import EdgePayload, Embeddings, ImagePatches, StageEvent
from voice_app.models.qwen3_omni.adapter import Module
from voice_app.models.qwen3_omni.arrays import to_array
from voice_app.schedulers.base import StageInput


class ImageEncoder:
    """A `OnePassRunner` over `thinker.visual`. Attention stays within a picture, so a batch is exact."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._merge = int(module.spatial_merge_size) ** 2
        config = module.config
        self._patch_values = int(config.in_channels * config.temporal_patch_size * config.patch_size**2)
        weight: torch.Tensor = module.pos_embed.weight
        self._dtype, self._device = weight.dtype, weight.device

    @torch.inference_mode()
    def run(
        self, batch: Sequence[StageInput]
    ) -> Sequence[Sequence[EdgePayload | StageEvent] | VoiceAppError]:
        pictures = [item.payload for item in batch if isinstance(item.payload, ImagePatches)]
        grids = torch.tensor([picture.grid for picture in pictures], device=self._device)
        patches = torch.from_numpy(np.concatenate([picture.patches for picture in pictures]))
        out = self._module(patches.to(self._device, self._dtype), grid_thw=grids)
        counts = [int(np.prod(picture.grid)) // self._merge for picture in pictures]
        rows = out.pooler_output.split(counts)
        deepstack = torch.stack(tuple(out.deepstack_features)).split(counts, dim=1)
        return [
            [Embeddings(picture.media, to_array(mine), deepstack=to_array(deep), grid=picture.grid)]
            for picture, mine, deep in zip(pictures, rows, deepstack, strict=True)
        ]

    def warm_up(self) -> None:
        side = int(self._module.spatial_merge_size) * 2
        patches = torch.zeros((side * side, self._patch_values), dtype=self._dtype, device=self._device)
        with torch.inference_mode():
            self._module(patches, grid_thw=torch.tensor([[1, side, side]], device=self._device))
