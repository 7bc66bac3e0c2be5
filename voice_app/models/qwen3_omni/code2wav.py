"""Code2wav's runner: codes to samples as they come, equal to decoding all codes at once.

A turn's state holds what later samples still depend on: the transformer's keys and values within its
sliding window, and the convolutions' contexts. The transposed convolutions' trimmed ends look ahead by
less than a frame, so n frames give n · 1920 − 555 samples (of the published shape), and the missing ones
come with the next frames.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from voice_app.models.qwen3_omni.adapter import Module
from voice_app.models.qwen3_omni.graphs import Graph, Lane
from voice_app.models.qwen3_omni.wave_convs import WaveConvs
from voice_app.models.qwen3_omni.window_attention import WindowBatch
from voice_app.schedulers.base import WaveSpec, WaveWindow

SAMPLE_RATE = 24_000
"""The vocoder's rate; the published config does not carry it (model card of Qwen3-Omni)."""
FIRST_WINDOW = 1
MAX_WINDOW = 25
"""Frames of the largest window (2 s): beyond it the context is a small share of the work."""

CAPTURED_FRAMES = (1, 2, 4, 8, 16, MAX_WINDOW)
CAPTURED_BATCHES = (1, 2, 4, 8, 16)
"""Shapes of windows that are captured; others run as they are."""
CPU_FRAMES = 32
"""Most new frames of one call on a CPU: few are bound by dispatch, more fall out of its caches (16 windows
of 11 frames took 1.5 times as long together as one by one)."""


@dataclass(slots=True, eq=False)
class _Stream:
    """One turn's state."""

    kv: torch.Tensor
    """[layers, 2, heads, window - 1, head_dim] of the last frames; the first rows are empty at first."""
    contexts: list[torch.Tensor]
    """The convolutions'."""
    frames: int = 0
    """Decoded so far."""


class Code2Wav:
    """A `Code2WavRunner` that keeps its own context: windows need none of the scheduler's."""

    def __init__(self, module: Module) -> None:
        config = module.config
        self._module = module
        self._convs = WaveConvs(module)
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
        self._dtype, self._device = weight.dtype, weight.device
        self._lane = Lane(weight.device)
        self._graphs: dict[tuple[bool, int, int], WindowGraph] = {}
        with torch.inference_mode():
            self._fresh = self._convs.start(self._dtype, self._device)
        self.spec = WaveSpec(
            sample_rate=SAMPLE_RATE,
            samples_per_frame=int(module.total_upsample),
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
            contexts=list(self._fresh),
        )

    def close(self, state: object) -> None:
        """The state is dropped with the scheduler's reference to it."""

    @torch.inference_mode()
    def decode(self, windows: Sequence[WaveWindow]) -> Sequence[np.ndarray]:
        streams = [_stream(window.state) for window in windows]
        for stream, window in zip(streams, windows, strict=True):
            if window.segment_start and stream.frames:
                self._restart(stream)
        # Windows of one shape go through the convolutions together: padding would be heard.
        groups: dict[tuple[bool, int], list[int]] = {}
        for place, (stream, window) in enumerate(zip(streams, windows, strict=True)):
            groups.setdefault((bool(stream.frames), len(window.frames)), []).append(place)
        sounds: list[np.ndarray] = [np.empty(0, np.float32)] * len(windows)
        with self._lane():
            for places in self._calls(groups):
                codes = torch.from_numpy(np.stack([windows[place].frames for place in places]))
                made = self._group([streams[place] for place in places], codes.to(self._device))
                for place, sound in zip(places, made, strict=True):
                    sounds[place] = sound
        return sounds

    def _calls(self, groups: Mapping[tuple[bool, int], list[int]]) -> Iterator[list[int]]:
        for (_, frames), places in groups.items():
            most = max(1, CPU_FRAMES // frames) if self._device.type == "cpu" else len(places)
            for start in range(0, len(places), most):
                yield places[start : start + most]

    @torch.inference_mode()
    def capture(self) -> None:
        """From now on decode windows of `CAPTURED_FRAMES` at fixed addresses, captured if there is CUDA."""
        with self._lane():
            for size in CAPTURED_BATCHES:
                self._graphs[True, FIRST_WINDOW, size] = self._window_graph(size, FIRST_WINDOW, first=True)
                for frames in CAPTURED_FRAMES:
                    self._graphs[False, frames, size] = self._window_graph(size, frames, first=False)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Capture where there is CUDA; then a first window and one of each captured size."""
        if self._device.type == "cuda":
            self.capture()
        stream = _stream(self.open())
        with self._lane():
            for frames in (FIRST_WINDOW, *CAPTURED_FRAMES):
                shape = (1, frames, self.spec.channels)
                self._group([stream], torch.zeros(shape, dtype=torch.int64, device=self._device))

    def _window_graph(self, size: int, frames: int, *, first: bool) -> "WindowGraph":
        fresh = [_stream(self.open()) for _ in range(size)]
        codes = torch.zeros((size, frames, self.spec.channels), dtype=torch.int64, device=self._device)
        inputs = _Inputs.of(fresh, codes)
        return WindowGraph(inputs, lambda: self._compute(inputs, first=first), self._lane)

    def _restart(self, stream: _Stream) -> None:
        fresh = _stream(self.open())
        stream.kv, stream.contexts, stream.frames = fresh.kv, fresh.contexts, 0

    def _group(self, streams: Sequence[_Stream], codes: torch.Tensor) -> list[np.ndarray]:
        """`codes` [n, frames, groups]: the streams' next frames; all streams are new, or none is."""
        first, (count, frames, _) = not streams[0].frames, codes.shape
        size = next((size for size in CAPTURED_BATCHES if size >= count), 0)
        graph = self._graphs.get((first, frames, size))
        inputs = _Inputs.of(streams, codes)
        made = graph.run_on(inputs) if graph else self._compute(inputs, first=first)
        # Copies where a graph's next run would overwrite them; without one, plain views.
        keep = torch.Tensor.clone if graph else torch.Tensor.contiguous
        for place, stream in enumerate(streams):
            stream.kv = keep(made.kv[:, :, place])
            stream.contexts = [keep(context[place]) for context in made.contexts]
            stream.frames += frames
        return list(made.wave[:count].float().cpu().numpy())

    def _compute(self, inputs: "_Inputs", *, first: bool) -> "_Made":
        """One window of several streams, from tensors to tensors."""
        model, new = self._module.pre_transformer, inputs.codes.shape[1]
        hidden = self._module.code_embedding(inputs.codes.transpose(1, 2) + self._module.code_offset).mean(1)
        positions = inputs.starts[:, None] + torch.arange(new, device=self._device)
        window = WindowBatch.of(inputs.kv, inputs.starts, new)
        rotation = model.rotary_emb(hidden, positions)
        for layer in self._layers:
            hidden = layer(hidden, position_embeddings=rotation, window=window)
        wave, contexts = self._convs.run(model.norm(hidden), inputs.contexts, first=first)
        return _Made(wave, window.kept(), contexts)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What a window depends on. `codes` [n, frames, groups], `starts` [n] frames before it, `kv`
    [layers, 2, n, heads, window - 1, head_dim], `contexts` each [n, channels, columns]."""

    codes: torch.Tensor
    starts: torch.Tensor
    kv: torch.Tensor
    contexts: list[torch.Tensor]

    @staticmethod
    def of(streams: Sequence[_Stream], codes: torch.Tensor) -> "_Inputs":
        return _Inputs(
            codes,
            torch.tensor([stream.frames for stream in streams], device=codes.device),
            torch.stack([stream.kv for stream in streams], dim=2),
            [torch.stack(same) for same in zip(*(stream.contexts for stream in streams), strict=True)],
        )


@dataclass(frozen=True, slots=True)
class _Made:
    """What a window gives: samples [n, count], and `kv` and `contexts` for the next."""

    wave: torch.Tensor
    kv: torch.Tensor
    contexts: list[torch.Tensor]


class WindowGraph:
    """A window of one shape at fixed addresses: those of `inputs`."""

    def __init__(self, inputs: _Inputs, call: Callable[[], _Made], lane: Lane) -> None:
        self._inputs = inputs
        self._graph = Graph(call, lane)

    def run_on(self, inputs: _Inputs) -> _Made:
        """For as many streams or fewer; rows beyond them are rubbish."""
        mine, count = self._inputs, len(inputs.codes)
        mine.codes[:count].copy_(inputs.codes)
        mine.starts[:count].copy_(inputs.starts)
        mine.kv[:, :, :count].copy_(inputs.kv)
        for own, context in zip(mine.contexts, inputs.contexts, strict=True):
            own[:count].copy_(context)
        return self._graph.run()


def _stream(state: object) -> _Stream:
    assert isinstance(state, _Stream)
    return state
