"""Workers on other hosts, placed and watched by Ray: an actor for each, its keeper, on the node that has the
host's address. Ray starts a keeper that died again; control and data do not pass through Ray."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import ParamSpec, Protocol, Self, TypeVar, cast

import msgspec

from voice_app.errors import ConfigError, PipelineError
from voice_app.pipeline.control import WorkerConfig
from voice_app.pipeline.hosts.base import Ending
from voice_app.pipeline.hosts.keeper import LOST, Keeper
from voice_app.pipeline.hosts.local import STOP_TIMEOUT_S

try:
    import ray
    from ray.exceptions import ActorUnavailableError, RayError
except ImportError as missing:
    raise ConfigError(
        f"--ray needs Ray, which is not there ({missing}): pip install 'voice-app[ray]'", param="ray"
    ) from missing

log = logging.getLogger(__name__)

CONNECT_S = 5.0
"""A cluster answers within so long."""
RETRY_S = 0.5
"""A keeper that Ray is just starting again is asked anew so often."""

P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)


class _Call(Protocol[P, T_co]):
    """A method of an actor."""

    def remote(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T_co]: ...


class _RemoteKeeper(Protocol):
    """`Keeper`, as another process sees it."""

    @property
    def start(self) -> _Call[[bytes], int]: ...
    @property
    def ended(self) -> _Call[[], bytes]: ...
    @property
    def end(self) -> _Call[[], None]: ...


class RayProcess:
    """A worker's process on another host."""

    def __init__(self, keeper: _RemoteKeeper, pid: int) -> None:
        self._keeper = keeper
        self._pid: int | None = pid

    @property
    def pid(self) -> int | None:
        return self._pid

    async def ended(self) -> Ending:
        ending = await self._ending()
        self._pid = None
        return ending

    async def end(self) -> None:
        if self._pid is None:
            return
        try:
            # Twice: the keeper itself waits so long before it kills.
            await asyncio.wait_for(self._keeper.end.remote(), 2 * STOP_TIMEOUT_S)
        except (RayError, TimeoutError):
            return  # It is gone, or out of reach; Ray ends it with our connection.

    async def _ending(self) -> Ending:
        while True:
            try:
                return msgspec.json.decode(await self._keeper.ended.remote(), type=Ending)
            except ActorUnavailableError:
                # Out of reach, or just being started again: then it will say that it has no worker.
                await asyncio.sleep(RETRY_S)
            except RayError:
                return LOST


class RayHost:
    """All hosts of a Ray cluster. One a process."""

    def __init__(self, address: str, nodes: dict[str, str]) -> None:
        """`nodes`: the address of each worker's host."""
        self._address = address
        self._nodes = nodes
        self._keepers: dict[str, _RemoteKeeper] = {}

    @classmethod
    async def connect(cls, address: str, nodes: dict[str, str]) -> Self:
        """Raises ConfigError: no cluster at `address`, or it lacks a node."""
        await _answers(address)
        try:
            await asyncio.to_thread(ray.init, address=address, namespace="voice-app", configure_logging=False)
        except (RayError, ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(f"--ray {address}: {str(error).splitlines()[0]}", param="ray") from error
        host = cls(address, nodes)
        there = {node["NodeManagerAddress"] for node in await asyncio.to_thread(ray.nodes) if node["Alive"]}
        for node in sorted(set(nodes.values()) - there):
            await host.close()
            raise ConfigError(
                f"host {node}: no node of the Ray cluster at {address}, of {', '.join(sorted(there))}; "
                f"there, ray start --address={address} --node-ip-address={node}",
                param="ray",
            )
        return host

    async def start(self, config: WorkerConfig) -> RayProcess:
        """Waits until Ray has the host, however long that takes."""
        keeper = self._keepers.get(config.name)
        if keeper is None:
            keeper = self._keepers[config.name] = self._new_keeper(config.name)
        while True:
            try:
                return RayProcess(keeper, await keeper.start.remote(msgspec.json.encode(config)))
            except ActorUnavailableError:
                await asyncio.sleep(RETRY_S)
            except RayError as error:
                del self._keepers[config.name]
                reason = str(error).strip().splitlines()[-1]
                raise PipelineError(f"its Ray actor failed: {reason}") from error

    async def close(self) -> None:
        self._keepers.clear()
        # What is left of the keepers ends with the connection.
        await asyncio.to_thread(ray.shutdown)

    def _new_keeper(self, name: str) -> _RemoteKeeper:
        actor = ray.remote(Keeper).options(
            num_cpus=0,
            resources={f"node:{self._nodes[name]}": 0.001},
            max_restarts=-1,
            max_task_retries=0,
        )
        return cast(_RemoteKeeper, actor.remote())


async def _answers(address: str) -> None:
    """Raise ConfigError if nothing does; Ray itself would try for half a minute."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host, int(port))
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"--ray {address}: no Ray cluster answers there ({error or 'timed out'}); give HOST:PORT of one, "
            "which ray start --head begins",
            param="ray",
        ) from error
    writer.close()
