"""How control reaches each worker: by Unix sockets within the server's host, over TCP between hosts."""

import errno
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import zmq

from voice_app.errors import ConfigError
from voice_app.pipeline.control import SERVER
from voice_app.pipeline.curve import CurveKeys
from voice_app.pipeline.rundir import RunDir
from voice_app.pipeline.transport.router import LOCALHOST
from voice_app.pipeline.wire import Wire

DEFAULT_PORT = 47600


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """How nodes on several hosts talk. The server's inbox is at `port`, each worker's at one of its own
    after it.

    `address`: the server's host, as the others reach it. `curve_keys`: a folder with CURVE keys, the same on
    each host. `private_network`: whoever reaches the ports may use them, so they need no keys."""

    address: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    curve_keys: str | None = None
    private_network: bool = False

    def check(self, hosts: set[str]) -> None:
        """Raise ConfigError if the workers on `hosts` cannot be reached, or by everybody."""
        others = sorted(host for host in hosts if not is_here(host))
        if not others:
            return
        if is_here(self.address):
            raise ConfigError(
                f"host {others[0]}: needs [control] address in the layout: this host's own address, as "
                f"{others[0]} reaches it",
                param="layout",
            )
        if self.curve_keys is None and not self.private_network:
            raise ConfigError(
                f"host {others[0]}: whoever reaches the control ports, {self.port} and up, could use them: "
                "give --curve-keys FOLDER or, if the network is private, [control] private_network = true",
                param="curve_keys",
            )


def is_here(host: str) -> bool:
    """Whether `host` is the server's own, by whatever name; an address of loopback stands for another host in
    a trial on one."""
    return host == LOCALHOST or ipaddress.IPv4Address(host).is_loopback


class Network:
    """The addresses of a run's inboxes. `hosts`: of each worker, in the order of their ports."""

    def __init__(self, plane: ControlPlane, hosts: Mapping[str, str], run_dir: RunDir) -> None:
        self._plane = plane
        self._hosts = {SERVER: LOCALHOST, **hosts}
        self._ports = {node: plane.port + n for n, node in enumerate(self._hosts)}
        self._spread = len(set(self._hosts.values())) > 1
        self._run_dir = run_dir
        if max(self._ports.values()) > 65535:
            raise ConfigError(f"[control] port {plane.port}: must leave room for all workers", param="layout")

    @property
    def curve_keys(self) -> str | None:
        """The folder of the keys, if what crosses hosts is secured."""
        return self._plane.curve_keys if self._spread else None

    def host(self, node: str) -> str:
        """The address of the node's host, as other hosts reach it."""
        return self._plane.address if self._hosts[node] == LOCALHOST else self._hosts[node]

    def inboxes(self, node: str, incarnation: int) -> tuple[str, ...]:
        """Where `node` listens; the first is for itself."""
        over_tcp = (self._tcp(node, incarnation),) if self._spread else ()
        if self._hosts[node] == LOCALHOST:
            return (self._run_dir.address(f"{node}.{incarnation}"), *over_tcp)
        return ("inproc://self", *over_tcp)

    def open(self, node: str, incarnation: int = 0) -> Wire:
        """The sockets of `node`, in this process. Raises ConfigError as `open_wire` does."""
        return open_wire(node, self.inboxes(node, incarnation), self.curve_keys)

    def address(self, node: str, incarnation: int, *, seen_from: str) -> str:
        """Where `seen_from` reaches `node`."""
        if node == seen_from:
            return self.inboxes(node, incarnation)[0]
        if self._hosts[node] == self._hosts[seen_from] == LOCALHOST:
            return self._run_dir.address(f"{node}.{incarnation}")
        return self._tcp(node, incarnation)

    def _tcp(self, node: str, incarnation: int) -> str:
        return f"tcp://{self.host(node)}:{self._ports[node]}/{self._run_dir.run}.{node}.{incarnation}"


def open_wire(node: str, inboxes: tuple[str, ...], curve_keys: str | None) -> Wire:
    """The sockets of `node` at `inboxes`, as `Network` gives them. Raises ConfigError that names host, port
    and the layout's field: the port is taken, the address is another machine's; or there are no keys; or the
    run's folder takes no socket."""
    keys = CurveKeys.load(Path(curve_keys)) if curve_keys else None
    try:
        return Wire(*inboxes, keys=keys)
    except zmq.ZMQError as error:
        # Those over TCP are bound last, and nobody else has the run's folder.
        raise ConfigError(_refusal(node, inboxes[-1], error), param="layout") from error
    except OSError as error:
        raise ConfigError(
            f"{inboxes[0]}: {node} cannot listen there: {error.strerror}", param="VOICE_APP_RUN_DIR"
        ) from error


def _refusal(node: str, inbox: str, error: zmq.ZMQError) -> str:
    reason = zmq.strerror(error.errno) if error.errno else str(error)
    host, _, rest = inbox.removeprefix("tcp://").partition(":")
    port = rest.partition("/")[0]
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of host {host}, for {node}, is taken; choose another [control] port in the layout "
            "(each worker has one of its own after it), or end what listens there"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"host {host}, of {node}, has another address; correct the layout's host or [control] address"
    return f"{inbox}: {node} cannot listen there: {reason}"
