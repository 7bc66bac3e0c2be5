"""Two hosts on this machine: network namespaces joined by a virtual cable, with a Ray cluster over both.

Needs root and `ip`. The test itself moves into the first namespace, so that nothing here touches the
machine's own network. A namespace is named after the process that made it; what a killed one left is removed
first."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

PREFIX = "voice-app-test-"
NEAR, FAR = "10.77.0.1", "10.77.0.2"
RAY = f"{NEAR}:6379"
_NODES = f"""
import json, ray
ray.init(address="{RAY}", configure_logging=False, log_to_driver=False)
print(json.dumps([node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]))
"""
_CLONE_NEWNET = 0x40000000


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=60).stdout


def unusable() -> str:
    """Why namespaces cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "root"
    if shutil.which("ip") is None:
        return "ip (apt-get install iproute2)"
    probe = f"{PREFIX}{os.getpid()}-probe"
    try:
        _ip("netns", "add", probe)
        _ip("netns", "del", probe)
    except subprocess.CalledProcessError as error:
        return f"network namespaces ({error.stderr.strip()})"
    return ""


def sweep() -> None:
    """Remove the namespaces, and what runs in them, whose makers are gone."""
    names = [entry["name"] for entry in json.loads(_ip("-j", "netns", "list") or "[]")]
    for name in names:
        if name.startswith(PREFIX) and not psutil.pid_exists(int(name.removeprefix(PREFIX).split("-")[0])):
            _remove(name)


def _remove(name: str) -> None:
    """End all that runs in the namespace but this process, and the namespace."""
    end = time.monotonic() + 60.0
    while (pids := set(_ip("netns", "pids", name).split()) - {str(os.getpid())}) and time.monotonic() < end:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.05)  # Until the kernel has taken them away.
    _ip("netns", "del", name)


class TwoHosts:
    """`cut` and `heal` are of the cable between them."""

    def __init__(self) -> None:
        self.near, self.far = (f"{PREFIX}{os.getpid()}-{end}" for end in ("near", "far"))
        self._folder = Path(tempfile.mkdtemp(prefix="va-ray-"))
        self._own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def open(self) -> None:
        for name in (self.near, self.far):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip(
            "-n",
            self.near,
            "link",
            "add",
            "cable",
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            self.far,
        )
        for name, address in ((self.near, NEAR), (self.far, FAR)):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")
        self._move(f"/run/netns/{self.near}")

    def close(self) -> None:
        descriptor = self._own
        _set_namespace(descriptor)
        os.close(descriptor)
        for name in (self.near, self.far):
            with contextlib.suppress(subprocess.CalledProcessError):
                _remove(name)
        shutil.rmtree(self._folder, ignore_errors=True)

    def cut(self) -> None:
        _ip("-n", self.near, "link", "set", "cable", "down")

    def heal(self) -> None:
        _ip("-n", self.near, "link", "set", "cable", "up")

    def limit(self, megabits: int) -> None:
        """Bandwidth from the far host to the near one."""
        rate = ("tbf", "rate", f"{megabits}mbit", "burst", "64kb", "latency", "400ms")
        subprocess.run(
            ["ip", "netns", "exec", self.far, "tc", "qdisc", "replace", "dev", "cable", "root", *rate],
            check=True,
            timeout=60,
        )

    def unlimit(self) -> None:
        subprocess.run(
            ["ip", "netns", "exec", self.far, "tc", "qdisc", "del", "dev", "cable", "root"],
            check=True,
            timeout=60,
        )

    def sent_by_far(self) -> int:
        """Bytes that the far host has sent over the cable."""
        (link,) = json.loads(_ip("-n", self.far, "-s", "-j", "link", "show", "cable"))
        return link["stats64"]["tx"]["bytes"]

    def start_ray(self) -> None:
        """A head on the near host, a node on the far one."""
        self._ray(
            self.near, "--head", "--port=6379", f"--node-ip-address={NEAR}", "--include-dashboard=false"
        )
        self.complete()

    def complete(self) -> None:
        """Until the cluster has both hosts: on a busy machine Ray gives a node up now and then, at its start
        or later, and then its far one is started anew."""
        for _ in range(3):
            if FAR in self._nodes():
                return
            self.lose()
            self.join()
        assert FAR in self._nodes(), (self._folder / "far.log").read_text()

    def join(self) -> None:
        """Start Ray's node on the far host."""
        self._ray(self.far, f"--address={RAY}", f"--node-ip-address={FAR}")

    def _nodes(self) -> list[str]:
        """Addresses of the nodes that Ray takes for alive, asked by a process of its own."""
        command = ["ip", "netns", "exec", self.near, sys.executable, "-c", _NODES]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=180)
        assert asked.returncode == 0, asked.stderr
        return json.loads(asked.stdout.splitlines()[-1])

    def lose(self) -> None:
        """End all that runs on the far host."""
        for pid in self.pids(self.far):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def pids(self, name: str) -> set[int]:
        """What runs on a host."""
        return {int(pid) for pid in _ip("netns", "pids", name).split()}

    def _ray(self, name: str, *arguments: str) -> None:
        ray = Path(sys.executable).with_name("ray")
        small = ("--num-cpus=1", "--num-gpus=0", "--object-store-memory=80000000", "--disable-usage-stats")
        folder = self._folder / name.rpartition("-")[2]
        said = self._folder / f"{folder.name}.log"
        with said.open("w") as log:
            # Not a pipe: what Ray leaves running would hold it open.
            started = subprocess.run(
                ["ip", "netns", "exec", name, ray, "start", *arguments, *small, f"--temp-dir={folder}"],
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=180,
            )
        assert started.returncode == 0, said.read_text()

    def _move(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        _set_namespace(descriptor)
        os.close(descriptor)


def _set_namespace(descriptor: int) -> None:
    """Move this thread, and those that it starts from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@contextlib.contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    """Both with Ray; this thread is on the near one meanwhile."""
    sweep()
    hosts = TwoHosts()
    try:
        hosts.open()
        hosts.start_ray()
        yield hosts
    finally:
        hosts.close()
