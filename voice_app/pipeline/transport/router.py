"""Which transport an edge takes: a pure function of where its two stages sit."""

from dataclasses import dataclass

from voice_app.pipeline.transport.base import TransportKind

LOCALHOST = "localhost"
"""The host of the server process."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stage runs: `device` is "cpu" or "cuda:N" on `host`; `worker` names a process or, with a
    `replica`, one of several alike."""

    worker: str
    device: str = "cpu"
    host: str = LOCALHOST
    replica: int | None = None

    @property
    def node(self) -> str:
        """The process's own name."""
        return self.worker if self.replica is None else f"{self.worker}.{self.replica}"

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def gpu(self) -> int:
        """N of "cuda:N"."""
        return int(self.device.removeprefix("cuda:"))


def route(source: Place, target: Place, *, arrays: bool, peer_access: bool = True) -> TransportKind:
    """The transport between two places. `arrays`: the edge carries arrays (they lie on the source's
    device), not only numbers. `peer_access`: the two GPUs reach each other's memory."""
    if source.host != target.host:
        return TransportKind.MOONCAKE
    if source.node == target.node:
        return TransportKind.REFERENCE
    if arrays and peer_access and source.on_gpu and target.on_gpu:
        return TransportKind.CUDA_IPC
    return TransportKind.SHARED_MEMORY
