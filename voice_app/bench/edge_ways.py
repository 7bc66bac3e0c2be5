"""The ways of crossing that `bench/edges.py` compares, each to a receiving process of its own."""

import multiprocessing
import multiprocessing.connection
import multiprocessing.queues
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Protocol

import msgspec
import numpy as np
import zmq

from voice_app.arrays import Array
from voice_app.bench.edge_peer import HOST, TIME, Lying
from voice_app.errors import ConfigError
from voice_app.messages import Stage, TokenId, TokenVector, TurnId
from voice_app.pipeline.carriers import RemoteCarrier
from voice_app.pipeline.control import DataAck
from voice_app.pipeline.fence import Fence
from voice_app.pipeline.outlet import Carriers, LaneOut, Outlet
from voice_app.pipeline.rundir import RunDir
from voice_app.pipeline.transport import mooncake
from voice_app.pipeline.transport.base import Outgoing
from voice_app.pipeline.transport.shm import SharedMemoryOut
from voice_app.pipeline.wire import Wire

TIMEOUT_S = 30.0
TURN = TurnId("bench", "1")
KB = 1024
LARGEST = 2_408_448 * 4

Payload = TokenId | TokenVector


class Way(Protocol):
    """One way of crossing."""

    name: str

    def takes(self, size: int) -> bool:
        """Whether payloads of `size` bytes are sent this way."""
        ...

    def prepare(self) -> None:
        """Called before each message, outside the measured time."""
        ...

    def send(self, payload: Payload) -> None:
        """Send one payload."""
        ...

    def arrived(self) -> int:
        """When it could be used, in ns of the monotonic clock; waits for it."""
        ...

    def close(self) -> None: ...


class _Peer:
    """A receiving process."""

    def __init__(self, way: str, address: str, reply: str, run: str) -> None:
        command = [sys.executable, "-m", "voice_app.bench.edge_peer", way, address, reply, run]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
        self.time()

    def time(self) -> int:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], TIMEOUT_S)[0]:
            raise TimeoutError(f"{self._process.args}: no answer")
        return TIME.unpack(self._process.stdout.read(TIME.size) or bytes(TIME.size))[0]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def array_of(payload: Payload) -> Array:
    """A plain array of the payload's size, for ways that know no messages."""
    if isinstance(payload, TokenVector) and payload.vector is not None:
        return payload.vector
    return np.ones(1, np.int64)


class Bare:
    """ZMQ alone: bytes, or a pickled array, or 8 bytes after a memcpy into mapped memory ("floor")."""

    def __init__(self, name: str, run_dir: RunDir) -> None:
        self.name = name
        address = run_dir.address(name.replace(" ", ""))
        self._peer = _Peer(name, address, "-", run_dir.run)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.connect(address)
        self._memory = np.ones(LARGEST, np.uint8)

    def takes(self, size: int) -> bool:
        return True

    def prepare(self) -> None:
        return None

    def send(self, payload: Payload) -> None:
        array = array_of(payload)
        if self.name == "floor":
            self._memory[: array.nbytes].view(array.dtype)[:] = array
            self._socket.send(b"12345678")
        elif self.name == "zmq + pickle":
            self._socket.send(pickle.dumps(array, protocol=5))
        else:
            self._socket.send(array.data)

    def arrived(self) -> int:
        return self._peer.time()

    def close(self) -> None:
        self._peer.close()
        self._socket.close(0)
        self._context.term()


class BareMooncake(Bare):
    """A memcpy into registered memory, a hop that says where it lies, one read. Raises ConfigError."""

    def __init__(self, run_dir: RunDir) -> None:
        mooncake.load()
        super().__init__("bare mooncake", run_dir)
        engine = mooncake.new_engine(HOST)
        engine.register_memory(self._memory.ctypes.data, self._memory.nbytes)
        self._engine = engine
        self._origin = f"{HOST}:{engine.get_rpc_port()}"

    def takes(self, size: int) -> bool:
        return size >= 520 * KB

    def send(self, payload: Payload) -> None:
        array = array_of(payload)
        self._memory[: array.nbytes].view(array.dtype)[:] = array
        lying = Lying(self._origin, self._memory.ctypes.data, array.nbytes)
        self._socket.send(msgspec.msgpack.encode(lying))


class _SlotCarrier(RemoteCarrier):
    """Puts every payload into a slot, however small."""

    def carry(self, out: LaneOut, seq: int, payload: object, *, inline: bool) -> bool:
        return self._carry_in_slot(out, seq, payload)


class Ours:
    """The project's hand-off: all within messages ("inline"), or all in slots: of shared memory ("slot") or
    Mooncake's ("mooncake"; raises ConfigError)."""

    def __init__(self, name: str, run_dir: RunDir) -> None:
        self.name = name
        inbox = run_dir.address(f"{name}-sender")
        address = run_dir.address(f"{name}-receiver")
        self._pool = _pool(name, run_dir.run)
        self._peer = _Peer(name, address, inbox, run_dir.run)
        self._wire = Wire(inbox)
        self._wire.connect("receiver", address)
        kind = RemoteCarrier if name == "inline" else _SlotCarrier
        carrier = kind("receiver", self._wire, None if name == "inline" else self._pool)
        self._outlet = thinker_outlet(
            {stage: {"receiver": carrier} for stage in (Stage.DECODE, Stage.TALKER_AR)}
        )

    def takes(self, size: int) -> bool:
        return {"inline": size <= 64 * KB, "slot": True, "mooncake": size >= 520 * KB}[self.name]

    def prepare(self) -> None:
        for message in self._wire.waiting():
            if isinstance(message, DataAck):
                self._outlet.acked(message)

    def send(self, payload: Payload) -> None:
        self._outlet.send(TURN, payload)

    def arrived(self) -> int:
        return self._peer.time()

    def close(self) -> None:
        self._peer.close()
        self._pool.close()
        self._wire.close()


def _pool(name: str, run: str) -> Outgoing:
    if name == "mooncake":
        return mooncake.MooncakeOut(run, "sender.0", HOST)
    return SharedMemoryOut(run, f"sender-{name}.0")


def thinker_outlet(carriers: Carriers, node: str = "sender", turn: TurnId = TURN) -> Outlet:
    """The thinker's sending end, with one open turn."""
    ids, vectors = (Stage.DECODE,), (Stage.TALKER_AR,)
    outlet = Outlet(
        node,
        Stage.THINKER,
        carriers,
        {TokenId: (ids, ids), TokenVector: (vectors, vectors)},
        Fence(),
        time.monotonic,
        lambda: None,
        lambda turn, error: None,
    )
    outlet.open(turn, speech=True, submitted=0.0)
    return outlet


class Queue:
    """A multiprocessing queue."""

    name = "mp queue"

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._there: multiprocessing.queues.Queue[Array] = context.Queue()
        self._back, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_take_from_queue, args=(self._there, theirs), daemon=True)
        self._process.start()

    def takes(self, size: int) -> bool:
        return True

    def prepare(self) -> None:
        return None

    def send(self, payload: Payload) -> None:
        self._there.put(array_of(payload))

    def arrived(self) -> int:
        if not self._back.poll(TIMEOUT_S):
            raise TimeoutError("multiprocessing queue: no answer")
        return TIME.unpack(self._back.recv_bytes())[0]

    def close(self) -> None:
        self._there.cancel_join_thread()
        self._process.kill()
        self._process.join()


def _take_from_queue(
    there: "multiprocessing.queues.Queue[Array]", back: multiprocessing.connection.Connection
) -> None:
    while True:
        there.get()
        back.send_bytes(TIME.pack(time.monotonic_ns()))


def _ray() -> Way:
    """Raises ConfigError."""
    # Here, because the module needs a package that is optional.
    from voice_app.bench.edge_ray import Ray

    return Ray()


def open_ways(run_dir: RunDir, opened: ExitStack) -> tuple[list[Way], list[str]]:
    """All that this machine has, until `opened` is closed; and a line for each that it has not."""
    makers: Mapping[str, Callable[[], Way]] = {
        **{name: lambda name=name: Bare(name, run_dir) for name in ("zmq", "zmq + pickle", "floor")},
        "mp queue": Queue,
        "ray": _ray,
        "bare mooncake": lambda: BareMooncake(run_dir),
        **{name: lambda name=name: Ours(name, run_dir) for name in ("mooncake", "inline", "slot")},
    }
    ways: list[Way] = []
    missing: list[str] = []
    for name, make in makers.items():
        try:
            way = make()
        except ConfigError as error:
            missing.append(f"{name}: {error}")
        else:
            opened.callback(way.close)
            ways.append(way)
    return ways, missing
