"""The audio encoder's runner: mel frames to embeddings, 13 a second."""

from collections.abc import Sequence

import numpy as np
import torch

from voice_app.errors import VoiceAppError
from voice_app.messages import EdgePayload, Embeddings, MelFrames, StageEvent
from voice_app.models.qwen3_omni.adapter import Module
from voice_app.models.qwen3_omni.arrays import to_array
from voice_app.schedulers.base import StageInput


class AudioEncoder:
    """A `OnePassRunner` over `thinker.audio_tower`.

    The convolutions work on chunks of a second, padded to the longest chunk of the call. A recording of a
    second or more always has a full chunk, so such ones share a call exactly; a shorter one would hear the
    padding, and shares a call only with those of its own length."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._chunk = 2 * int(module.n_window)
        self._bins = int(module.num_mel_bins)
        weight: torch.Tensor = module.conv_out.weight
        self._dtype, self._device = weight.dtype, weight.device

    @torch.inference_mode()
    def run(
        self, batch: Sequence[StageInput]
    ) -> Sequence[Sequence[EdgePayload | StageEvent] | VoiceAppError]:
        mels = [item.payload for item in batch if isinstance(item.payload, MelFrames)]
        groups: dict[int, list[int]] = {}
        for place, mel in enumerate(mels):
            groups.setdefault(min(mel.frames.shape[1], self._chunk), []).append(place)
        results: list[list[EdgePayload | StageEvent]] = [[] for _ in mels]
        for places in groups.values():
            rows = self._encode([mels[place].frames for place in places])
            for place, mine in zip(places, rows, strict=True):
                results[place] = [Embeddings(mels[place].media, to_array(mine))]
        return results

    def warm_up(self) -> None:
        with torch.inference_mode():
            self._encode([np.zeros((self._bins, self._chunk), np.float32)])

    def _encode(self, mels: Sequence[np.ndarray]) -> Sequence[torch.Tensor]:
        """Embeddings [tokens, width] of each of `mels` [mel_bins, frames]."""
        lengths = torch.tensor([mel.shape[1] for mel in mels], device=self._device)
        frames = torch.from_numpy(np.concatenate(mels, axis=1)).to(self._device, self._dtype)
        out = self._module(frames, feature_lens=lengths).last_hidden_state
        return out.split([_tokens(mel.shape[1], self._chunk) for mel in mels])


def _tokens(frames: int, chunk: int) -> int:
    """Embeddings that `frames` mel frames give: three convolutions of stride 2 over each chunk."""
    whole, rest = divmod(frames, chunk)
    return whole * _halved(chunk) + (_halved(rest) if rest else 0)


def _halved(frames: int) -> int:
    for _ in range(3):
        frames = (frames + 1) // 2
    return frames
