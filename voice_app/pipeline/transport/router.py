"""Which transport an edge takes: a pure function of where its two stages sit."""

from dataclasses import dataclass

from voice_app.pipeline.transport.base import TransportKind

AVAILABLE = frozenset({TransportKind.REFERENCE, TransportKind.SHARED_MEMORY})
"""Transports that this build can open; a layout that needs another is refused at start."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stage runs: `worker` names a process, `device` is "cpu" or "cuda:N" on `host`."""

    worker: str
    device: str = "cpu"
    host: str = "localhost"

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")


def route(source: Place, target: Place, *, arrays: bool, peer_access: bool = True) -> TransportKind:
    """The transport between two places. `arrays`: the edge carries arrays (they lie on the source's
    device), not only numbers. `peer_access`: the two GPUs reach each other's memory."""
    if source.host != target.host:
        return TransportKind.MOONCAKE
    if source.worker == target.worker:
        return TransportKind.REFERENCE
    if arrays and peer_access and source.on_gpu and target.on_gpu:
        return TransportKind.CUDA_IPC
    return TransportKind.SHARED_MEMORY
