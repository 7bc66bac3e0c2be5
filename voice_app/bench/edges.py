"""What crossing an edge costs, process to process: from send called to data usable.

Every way of crossing has its own receiving process. Batches of all ways are interleaved in random order,
messages are paced as tokens come; a figure is the median over repetitions of a batch's median, a ratio
the median of the ratios within a repetition.
"""

import json
import multiprocessing
import multiprocessing.queues
import pickle
import random
import select
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

import numpy as np
import zmq

from voice_app.bench.edge_peer import BATCH
from voice_app.bench.report import Goal, median, percentile, print_goals, print_table, write_json
from voice_app.messages import Stage, TokenId, TokenVector, TurnId
from voice_app.pipeline.carriers import LocalCarrier, RemoteCarrier
from voice_app.pipeline.control import INLINE_LIMIT, DataAck
from voice_app.pipeline.fence import Fence
from voice_app.pipeline.inlet import Delivery
from voice_app.pipeline.outlet import Carriers, LaneOut, Outlet
from voice_app.pipeline.rundir import RunDir
from voice_app.pipeline.transport.shm import SharedMemoryOut
from voice_app.pipeline.wire import Wire

REPETITIONS = 7
PACE_S = 0.003
TIMEOUT_S = 30.0
TURN = TurnId("bench", "1")


def _vector(size: int) -> TokenVector:
    return TokenVector(5, np.ones(size // 4, np.float32))


PAYLOADS: dict[str, TokenId | TokenVector] = {
    "a token id": TokenId(5),
    "160 codes": TokenVector(5, np.ones(160, np.int32)),
    "4 KB vector": _vector(4 << 10),
    "16 KB": _vector(16 << 10),
    "64 KB": _vector(64 << 10),
    "256 KB": _vector(256 << 10),
    "520 KB": _vector(520 << 10),
    "3,136 KB": _vector(3136 << 10),
    "2,408,448 values": _vector(2_408_448 * 4),
}
"""The edges' real sizes, and some around the inline limit."""


class Way(Protocol):
    """One way of crossing."""

    name: str

    def send(self, payload: TokenId | TokenVector) -> None:
        """Send one payload."""
        ...

    def between(self) -> None:
        """Called between messages, outside the measured time."""
        ...

    def times(self) -> list[int]:
        """When the last BATCH payloads could be used, in ns."""
        ...

    def close(self) -> None: ...


class _Peer:
    """A receiving process."""

    def __init__(self, way: str, address: str, reply: str, run: str) -> None:
        command = [sys.executable, "-m", "voice_app.bench.edge_peer", way, address, reply, run]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._line()

    def times(self) -> list[int]:
        return json.loads(self._line())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def done(self, timeout_s: float) -> bool:
        """Whether the batch's times are there, waiting for them so long."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], timeout_s)[0])

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        if not self.done(TIMEOUT_S):
            raise TimeoutError(f"{self._process.args}: no answer")
        return self._process.stdout.readline()


def _bytes(payload: TokenId | TokenVector) -> np.ndarray:
    """A plain array of the payload's size, for ways that know no messages."""
    if isinstance(payload, TokenVector) and payload.vector is not None:
        return payload.vector
    return np.ones(1, np.int64)


class Raw:
    """ZMQ alone: bytes, or a pickled array, or 8 bytes after a memcpy into mapped memory (`floor`)."""

    def __init__(self, name: str, run_dir: RunDir) -> None:
        self.name = name
        address = run_dir.address(name.replace(" ", ""))
        self._peer = _Peer(name, address, "-", run_dir.run)
        self._socket = zmq.Context.instance().socket(zmq.PUSH)
        self._socket.connect(address)
        self._target = np.ones(max(_bytes(p).nbytes for p in PAYLOADS.values()), np.uint8)

    def send(self, payload: TokenId | TokenVector) -> None:
        array = _bytes(payload)
        if self.name == "floor":
            self._target[: array.nbytes].view(array.dtype)[:] = array.reshape(-1)
            self._socket.send(b"12345678")
        elif self.name == "zmq + pickle":
            self._socket.send(pickle.dumps(array, protocol=5))
        else:
            self._socket.send(array)

    def between(self) -> None:
        return None

    def times(self) -> list[int]:
        return self._peer.times()

    def close(self) -> None:
        self._peer.close()
        self._socket.close(0)


class _SlotCarrier(RemoteCarrier):
    """Puts every payload into a slot, however small."""

    def carry(self, out: LaneOut, seq: int, payload: object, *, inline: bool) -> bool:
        return self._carry_in_slot(out, seq, payload)


class Ours:
    """The project's hand-off: all within messages ("inline") or all in slots ("slot")."""

    def __init__(self, name: str, run_dir: RunDir) -> None:
        self.name = name
        inbox = run_dir.address(f"{name}-sender")
        address = run_dir.address(f"{name}-receiver")
        self._peer = _Peer(name, address, inbox, run_dir.run)
        self._wire = Wire(inbox)
        self._wire.connect("receiver", address)
        self._pool = SharedMemoryOut(run_dir.run, f"sender-{name}.0")
        carrier = (RemoteCarrier if name == "inline" else _SlotCarrier)(
            "receiver", self._wire, None if name == "inline" else self._pool
        )
        self._outlet = _outlet({stage: {"receiver": carrier} for stage in (Stage.DECODE, Stage.TALKER_AR)})

    def send(self, payload: TokenId | TokenVector) -> None:
        self._outlet.send(TURN, payload)

    def between(self) -> None:
        for message in self._wire.waiting():
            if isinstance(message, DataAck):
                self._outlet.acked(message)

    def times(self) -> list[int]:
        # A payload that found no slot goes out when an ack comes.
        for _ in range(int(TIMEOUT_S / PACE_S)):
            self.between()
            if self._peer.done(PACE_S):
                break
        return self._peer.times()

    def close(self) -> None:
        self._peer.close()
        self._pool.close()
        self._wire.close()


def _outlet(carriers: Carriers) -> Outlet:
    """The thinker's sending end, with one open turn."""
    ids, vectors = (Stage.DECODE,), (Stage.TALKER_AR,)
    outlet = Outlet(
        "sender",
        Stage.THINKER,
        carriers,
        {TokenId: (ids, ids), TokenVector: (vectors, vectors)},
        Fence(),
        time.monotonic,
        lambda: None,
        lambda turn, error: None,
    )
    outlet.open(TURN, speech=True, submitted=0.0)
    return outlet


class Queue:
    """A multiprocessing queue."""

    name = "mp queue"

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._there: multiprocessing.queues.Queue[np.ndarray] = context.Queue()
        self._back: multiprocessing.queues.Queue[list[int]] = context.Queue()
        self._process = context.Process(target=_take_from_queue, args=(self._there, self._back), daemon=True)
        self._process.start()

    def send(self, payload: TokenId | TokenVector) -> None:
        self._there.put(_bytes(payload))

    def between(self) -> None:
        return None

    def times(self) -> list[int]:
        return self._back.get()

    def close(self) -> None:
        self._process.kill()
        self._process.join()


def _take_from_queue(
    there: "multiprocessing.queues.Queue[np.ndarray]", back: "multiprocessing.queues.Queue[list[int]]"
) -> None:
    while True:
        times = []
        for _ in range(BATCH):
            there.get()
            times.append(time.monotonic_ns())
        back.put(times)


def _batch(way: Way, payload: TokenId | TokenVector) -> list[float]:
    """Microseconds of BATCH messages."""
    sent = []
    for _ in range(BATCH):
        way.between()
        time.sleep(PACE_S)
        sent.append(time.monotonic_ns())
        way.send(payload)
    return [(there - start) / 1e3 for start, there in zip(sent, way.times(), strict=True)]


def _compare(
    ways: list[Way], payload: TokenId | TokenVector
) -> tuple[dict[str, float], Callable[[str, str], float]]:
    """Each way's median, and the ratio of one way to another."""
    medians: dict[str, list[float]] = defaultdict(list)
    for repetition in range(REPETITIONS + 1):
        for way in random.sample(ways, len(ways)):
            middle = median(_batch(way, payload))
            if repetition:  # The first maps memory and opens connections.
                medians[way.name].append(middle)

    def ratio(candidate: str, baseline: str) -> float:
        return median([a / b for a, b in zip(medians[candidate], medians[baseline], strict=True)])

    return {name: median(values) for name, values in medians.items()}, ratio


def by_reference(count: int = 2000) -> list[float]:
    """Microseconds from send to the delivered object, within a process."""
    arrived: list[float] = []
    there: list[Delivery] = []

    def deliver(delivery: Delivery) -> None:
        arrived.append((time.monotonic_ns() - start) / 1e3)
        there.append(delivery)

    carrier = LocalCarrier(deliver)
    outlet = _outlet({Stage.DECODE: {"here": carrier}})
    carrier.outlet = outlet
    for _ in range(count):
        start = time.monotonic_ns()
        outlet.send(TURN, TokenId(5))
        there.pop().release()
    return arrived


def main(json_path: str | None) -> int:
    """Measure, print, keep; returns how many goals were missed."""
    run_dir = RunDir()
    ways: list[Way] = [Raw(name, run_dir) for name in ("zmq", "zmq + pickle", "floor")]
    ways += [Queue(), Ours("inline", run_dir), Ours("slot", run_dir)]
    figures: dict[str, dict[str, float]] = {}
    ratios: dict[str, Callable[[str, str], float]] = {}
    try:
        for name, payload in PAYLOADS.items():
            figures[name], ratios[name] = _compare(ways, payload)
    finally:
        for way in ways:
            way.close()
        run_dir.remove()
    names = [way.name for way in ways]
    rows = [(size, *(f"{row[name]:,.0f}" for name in names)) for size, row in figures.items()]
    print_table(f"one way, µs, median (inline limit {INLINE_LIMIT // 1024} KB)", ("payload", *names), rows)
    reference = by_reference()
    photo = "3,136 KB"
    goals = [
        Goal("by reference, p50", median(reference), 10, "µs"),
        Goal("4 KB inline / bare zmq", ratios["4 KB vector"]("inline", "zmq"), 1.25, "×"),
        Goal("4 KB in a slot / bare zmq", ratios["4 KB vector"]("slot", "zmq"), 1.35, "×"),
        Goal(
            f"{photo} in a slot over memcpy and hop",
            figures[photo]["slot"],
            1.3 * figures[photo]["floor"] + 50,
            "µs",
        ),
        Goal(f"{photo}, queue / slot", ratios[photo]("mp queue", "slot"), 5, "×", at_least=True),
        Goal(f"{photo}, zmq + pickle / slot", ratios[photo]("zmq + pickle", "slot"), 1, "×", at_least=True),
    ]
    missed = print_goals(goals)
    figures["by reference"] = {"p50": median(reference), "p99": percentile(reference, 99)}
    write_json(json_path, {"microseconds": figures}, goals)
    return missed


if __name__ == "__main__":
    sys.exit(main(None))
