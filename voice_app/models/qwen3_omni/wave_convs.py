"""Code2wav's convolutions, continued where a stream's last window ended: nothing is computed twice.

Each causal convolution keeps as much of its last input as it pads a stream's start with zeros; each
transposed one, whose output is trimmed at both ends, keeps its last input column. Continued so, windows
of any sizes joined are one decode, sample by sample. The walk below follows transformers' modules and
uses their own layers.
"""

from collections.abc import Sequence

import torch

from voice_app.models.qwen3_omni.adapter import Module


class WaveConvs:
    """`module`: transformers' code2wav."""

    def __init__(self, module: Module) -> None:
        self._upsample = [list(blocks) for blocks in module.upsample]
        self._head = module.decoder[0]
        self._blocks = [_Block(block.block) for block in module.decoder[1:-2]]
        self._last_act, self._last = _Snake(module.decoder[-2]), module.decoder[-1]

    def start(self, dtype: torch.dtype, device: torch.device) -> list[torch.Tensor]:
        """A fresh stream's contexts, each [channels, columns]."""
        run = _Run(None)
        self._walk(torch.zeros((1, self._width, 2), dtype=dtype, device=device), run)
        return [torch.zeros_like(context[0]) for context in run.after]

    @property
    def _width(self) -> int:
        return self._head.conv.in_channels

    def run(
        self, hidden: torch.Tensor, contexts: Sequence[torch.Tensor], *, first: bool
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """`hidden` [n, frames, width]: the transformer's outputs; `contexts`: each [n, channels, columns].
        `first`: a window begins its streams. Returns samples [n, count] and the contexts after it."""
        run = _Run(list(contexts), first=first)
        wave = self._walk(hidden.transpose(1, 2), run)
        return wave.clamp(min=-1, max=1)[:, 0], run.after

    def _walk(self, x: torch.Tensor, run: "_Run") -> torch.Tensor:
        for transposed, block in self._upsample:
            x = _next_block(block, run.transposed(transposed, x), run)
        x = run.causal(self._head, x)
        for block in self._blocks:
            x = run.transposed(block.transposed, block.act(x))
            for act1, conv1, act2, conv2 in block.units:
                x = x + run.causal(conv2, act2(run.causal(conv1, act1(x))))
        return run.causal(self._last, self._last_act(x))


class _Snake:
    """transformers' SnakeBeta, x + sin²(αx) / β, with α and 1 / β taken out of their logarithms once."""

    def __init__(self, module: Module) -> None:
        self._alpha = module.alpha.detach().exp()[:, None]
        self._gain = 1.0 / (module.beta.detach().exp()[:, None] + module.no_div_by_zero)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(x, self._gain, torch.sin(x * self._alpha).square())


class _Block:
    """One upsampling step of the decoder."""

    def __init__(self, modules: Sequence[Module]) -> None:
        act, self.transposed, *units = modules
        self.act = _Snake(act)
        self.units = [(_Snake(u.act1), u.conv1, _Snake(u.act2), u.conv2) for u in units]


class _Run:
    """One window's way through the convolutions; contexts are used up in order and made anew."""

    def __init__(self, contexts: list[torch.Tensor] | None, *, first: bool = True) -> None:
        self._before = iter(contexts) if contexts is not None else None
        self._first = first
        self.after: list[torch.Tensor] = []

    def causal(self, net: Module, x: torch.Tensor) -> torch.Tensor:
        if not net.padding:
            return net.conv(x)
        return net.conv(self._joined(x, net.padding))

    def transposed(self, net: Module, x: torch.Tensor) -> torch.Tensor:
        if not net.left_pad:
            return net.conv(x)
        joined = self._joined(x, 1)
        # A stream's first column has none before it: what would come of it is trimmed away.
        made = net.conv(joined[..., 1:] if self._first else joined)
        return made[..., net.left_pad : made.shape[-1] - net.right_pad]

    def _joined(self, x: torch.Tensor, columns: int) -> torch.Tensor:
        before = next(self._before) if self._before is not None else x.new_zeros((*x.shape[:2], columns))
        joined = torch.cat((before, x), dim=-1)
        # A copy: a view would keep the whole window's values alive.
        self.after.append(joined[..., -columns:].clone())
        return joined


def _next_block(block: Module, x: torch.Tensor, run: _Run) -> torch.Tensor:
    """transformers' ConvNeXt block."""
    mixed = block.norm(run.causal(block.dwconv, x).transpose(1, 2))
    mixed = block.gamma * block.pwconv2(block.act(block.pwconv1(mixed)))
    return x + mixed.transpose(1, 2)
