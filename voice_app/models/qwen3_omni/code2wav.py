"""Code2wav's runner: codes to samples as they come, equal to decoding all codes at once.

A turn's state holds what later samples still depend on: the transformer's keys and values within its
sliding window, and as many frames of its output as the convolutions look back. The convolutions' trimmed
ends look ahead by less than a frame, so n frames give n · 1920 − 555 samples (of the published shape),
and the missing ones come with the next frames.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from voice_app.models.qwen3_omni.adapter import Module
from voice_app.models.qwen3_omni.window_attention import WindowBatch
from voice_app.schedulers.base import WaveSpec, WaveWindow

SAMPLE_RATE = 24_000
"""The vocoder's rate; the published config does not carry it (model card of Qwen3-Omni)."""
FIRST_WINDOW = 1
MAX_WINDOW = 25
"""Frames of the largest window (2 s): beyond it the context is a small share of the work."""


@dataclass(slots=True, eq=False)
class _Stream:
    """One turn's state."""

    kv: torch.Tensor
    """[layers, 2, heads, window - 1, head_dim] of the last frames; the first rows are empty at first."""
    context: torch.Tensor
    """[kept, hidden]: the transformer's last outputs."""
    frames: int = 0
    """Decoded so far."""
    samples: int = 0
    """Given so far."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the convolutions see. `back`: whole frames before a frame that its samples depend on;
    `missing`: samples by which n frames give less than n · `upsample`."""

    upsample: int
    back: int
    missing: int

    @staticmethod
    def of(ratios: Sequence[int], rates: Sequence[int]) -> "Reach":
        """`ratios` and `rates`: the config's `upsampling_ratios` and `upsample_rates`."""
        rate, missing, back = 1, 0, 0.0
        for ratio in ratios:
            rate *= ratio
            back += 6 / rate  # a causal convolution of 7
        back += 6 / rate
        for factor in rates:
            # A transposed convolution of 2 · factor, both ends trimmed by factor.
            back += 1 / rate
            missing = (missing + 1) * factor
            rate *= factor
            back += 6 * (1 + 3 + 9) / rate
        back += 6 / rate
        return Reach(rate, math.ceil(back), missing)


class Code2Wav:
    """A `Code2WavRunner` that keeps its own context: windows need none of the scheduler's."""

    def __init__(self, module: Module) -> None:
        config = module.config
        self._module = module
        self._reach = Reach.of(config.upsampling_ratios, config.upsample_rates)
        self._window = int(config.sliding_window)
        self._layers: list[nn.Module] = list(module.pre_transformer.layers)
        self._kv_shape = (
            len(self._layers),
            2,
            int(config.num_key_value_heads),
            self._window - 1,
            int(config.hidden_size) // int(config.num_attention_heads),
        )
        weight: torch.Tensor = module.code_embedding.weight
        self._dtype, self._device, self._hidden = weight.dtype, weight.device, weight.shape[1]
        self.spec = WaveSpec(
            sample_rate=SAMPLE_RATE,
            samples_per_frame=self._reach.upsample,
            left_context=0,
            right_context=0,
            channels=int(config.num_quantizers),
            codebook=int(config.codebook_size),
            first_window=FIRST_WINDOW,
            max_window=MAX_WINDOW,
        )

    def open(self) -> object:
        return _Stream(
            kv=torch.zeros(self._kv_shape, dtype=self._dtype, device=self._device),
            context=torch.empty((0, self._hidden), dtype=self._dtype, device=self._device),
        )

    def close(self, state: object) -> None:
        """The state is dropped with the scheduler's reference to it."""

    @torch.inference_mode()
    def decode(self, windows: Sequence[WaveWindow]) -> Sequence[np.ndarray]:
        streams = [_stream(window.state) for window in windows]
        for stream, window in zip(streams, windows, strict=True):
            if window.segment_start and stream.frames:
                self._restart(stream)
        # Only windows of one shape go through the convolutions together: padding would be heard.
        groups: dict[tuple[int, int], list[int]] = {}
        for place, (stream, window) in enumerate(zip(streams, windows, strict=True)):
            groups.setdefault((len(stream.context), len(window.frames)), []).append(place)
        sounds: list[np.ndarray] = [np.empty(0, np.float32)] * len(windows)
        for places in groups.values():
            codes = torch.from_numpy(np.stack([windows[place].frames for place in places]))
            made = self._group([streams[place] for place in places], codes.to(self._device))
            for place, sound in zip(places, made, strict=True):
                sounds[place] = sound
        return sounds

    def warm_up(self) -> None:
        stream = _stream(self.open())
        size = FIRST_WINDOW
        while size <= MAX_WINDOW:
            self._group(
                [stream], torch.zeros((1, size, self.spec.channels), dtype=torch.int64, device=self._device)
            )
            size *= 2

    def _restart(self, stream: _Stream) -> None:
        fresh = _stream(self.open())
        stream.kv, stream.context, stream.frames, stream.samples = fresh.kv, fresh.context, 0, 0

    def _group(self, streams: Sequence[_Stream], codes: torch.Tensor) -> list[np.ndarray]:
        """`codes` [n, frames, groups]: the streams' next frames, all with equally much context."""
        hidden = self._transform(streams, codes)
        back, upsample = self._reach.back, self._reach.upsample
        joined = torch.cat((torch.stack([stream.context for stream in streams]), hidden), dim=1)
        wave = self._synthesise(joined)
        sounds: list[np.ndarray] = []
        for stream, frames, sound in zip(streams, joined, wave, strict=True):
            first = (stream.frames - len(stream.context)) * upsample
            sounds.append(sound[stream.samples - first :].float().cpu().numpy())
            stream.samples += len(sounds[-1])
            stream.frames += codes.shape[1]
            stream.context = frames[-back:]
        return sounds

    def _transform(self, streams: Sequence[_Stream], codes: torch.Tensor) -> torch.Tensor:
        """The transformer's output [n, frames, hidden] for the streams' next frames."""
        model, new = self._module.pre_transformer, codes.shape[1]
        hidden = self._module.code_embedding(codes.transpose(1, 2) + self._module.code_offset).mean(1)
        starts = torch.tensor([stream.frames for stream in streams], device=self._device)
        positions = starts[:, None] + torch.arange(new, device=self._device)
        past = torch.stack([stream.kv for stream in streams], dim=2)
        window = WindowBatch.of(past, starts, new)
        rotation = model.rotary_emb(hidden, positions)
        for layer in self._layers:
            hidden = layer(hidden, position_embeddings=rotation, window=window)
        for stream, kv in zip(streams, window.kept().unbind(2), strict=True):
            stream.kv = kv
        return model.norm(hidden)

    def _synthesise(self, hidden: torch.Tensor) -> torch.Tensor:
        """Samples [n, (frames · upsample) - missing] of transformer outputs [n, frames, hidden]."""
        wave = hidden.transpose(1, 2)
        for blocks in self._module.upsample:
            for block in blocks:
                wave = block(wave)
        for block in self._module.decoder:
            wave = block(wave)
        return wave.clamp(min=-1, max=1)[:, 0]


def _stream(state: object) -> _Stream:
    assert isinstance(state, _Stream)
    return state
