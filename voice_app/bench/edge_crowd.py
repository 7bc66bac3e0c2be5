"""Eight processes that each send 4 KB a hundred times a second to one: by the hand-off, and by bare ZMQ.

    python -m voice_app.bench.edge_crowd WAY NODE ADDRESS REPLY_ADDRESS

is one of them. It sends a batch for each line on its stdin. The time of sending is in the payload.
"""

import random
import subprocess
import sys
import time

import numpy as np
import zmq

from voice_app.arrays import Array
from voice_app.bench.edge_peer import PLACES
from voice_app.bench.edge_ways import thinker_outlet
from voice_app.bench.report import median, percentile
from voice_app.messages import Stage, StagePayload, TokenVector, TurnId
from voice_app.pipeline.carriers import RemoteCarrier
from voice_app.pipeline.control import DataAck
from voice_app.pipeline.exchange import Exchange
from voice_app.pipeline.inlet import Delivery
from voice_app.pipeline.rundir import RunDir
from voice_app.pipeline.transport.shm import SharedMemoryIn, SharedMemoryOut
from voice_app.pipeline.wire import Wire

PRODUCERS = 8
APART_S = 0.01
MESSAGES = 100
"""Of each producer, in one batch: a second."""
REPETITIONS = 5
WAYS = ("zmq", "inline")


def _produce(way: str, node: str, address: str, reply: str) -> None:
    payload = TokenVector(5, np.zeros(1024, np.float32))
    assert payload.vector is not None
    stamp = payload.vector.view(np.int64)
    wire = Wire(reply)
    wire.connect("receiver", address)
    outlet = thinker_outlet(
        {Stage.TALKER_AR: {"receiver": RemoteCarrier("receiver", wire, None)}}, node, TurnId("bench", node)
    )
    socket = zmq.Context().socket(zmq.PUSH)
    socket.connect(address)
    print("ready", flush=True)
    while sys.stdin.readline():
        time.sleep(random.uniform(0, APART_S))
        for _ in range(MESSAGES):
            for message in wire.waiting():
                if isinstance(message, DataAck):
                    outlet.acked(message)
            time.sleep(APART_S)
            stamp[0] = time.monotonic_ns()
            if way == "zmq":
                socket.send(payload.vector.data)
            else:
                outlet.send(TurnId("bench", node), payload)


class _Crowd:
    """The producers of one way, and this process as their receiver."""

    def __init__(self, way: str, run_dir: RunDir) -> None:
        self._way = way
        self._times: list[float] = []
        address = run_dir.address(f"crowd-{way}")
        nodes = {f"{way}{n}": run_dir.address(f"{way}{n}") for n in range(PRODUCERS)}
        self._socket = zmq.Context.instance().socket(zmq.PULL)
        # Each has both; messages come to the one whose way it is.
        self._wire = Wire(run_dir.address("crowd-wire") if way == "zmq" else address)
        if way == "zmq":
            self._socket.bind(address)
        else:
            for node, inbox in nodes.items():
                self._wire.connect(node, inbox)
        self._pool = SharedMemoryOut(run_dir.run, f"crowd-{way}.0")
        incoming = SharedMemoryIn(run_dir.run, StagePayload)
        self._exchange = Exchange(
            "receiver",
            PLACES,
            self._wire,
            lambda source, target, node: self._pool,
            incoming,
            self._deliver,
            lambda turn, error: None,
        )
        command = [sys.executable, "-m", "voice_app.bench.edge_crowd", way]
        self._producers = [
            subprocess.Popen(
                [*command, node, address, inbox], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
            for node, inbox in nodes.items()
        ]
        for producer in self._producers:
            assert producer.stdout is not None
            producer.stdout.readline()

    def batch(self) -> list[float]:
        """Microseconds from send to use, of all messages of one batch."""
        self._times = []
        for producer in self._producers:
            assert producer.stdin is not None
            producer.stdin.write(b"go\n")
        while len(self._times) < PRODUCERS * MESSAGES:
            if self._way == "zmq":
                self._take(np.frombuffer(self._socket.recv(), np.float32))
            else:
                message = self._wire.receive()
                if message is not None:
                    self._exchange.handle(message)
        return self._times

    def close(self) -> None:
        for producer in self._producers:
            producer.kill()
            producer.communicate()
        self._socket.close(0)
        self._wire.close()
        self._pool.close()

    def _deliver(self, delivery: Delivery) -> None:
        assert isinstance(delivery.payload, TokenVector)
        assert delivery.payload.vector is not None
        self._take(delivery.payload.vector)
        delivery.release()

    def _take(self, vector: Array) -> None:
        self._times.append((time.monotonic_ns() - int(vector.view(np.int64)[0])) / 1e3)


def measure(run_dir: RunDir) -> dict[str, float]:
    """Microseconds: p50 and p99 of each way, and the median of the p50s' ratios."""
    crowds = {way: _Crowd(way, run_dir) for way in WAYS}
    times: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    try:
        for repetition in range(REPETITIONS + 1):
            for way in random.sample(WAYS, len(WAYS)):
                batch = crowds[way].batch()
                if repetition:
                    times[way].append(batch)
    finally:
        for crowd in crowds.values():
            crowd.close()
    figures = {f"{way} p50": median([median(batch) for batch in times[way]]) for way in WAYS}
    figures |= {f"{way} p99": percentile([t for batch in times[way] for t in batch], 99) for way in WAYS}
    pairs = zip(times["inline"], times["zmq"], strict=True)
    return figures | {"p50 ratio": median([median(ours) / median(bare) for ours, bare in pairs])}


if __name__ == "__main__":
    _produce(*sys.argv[1:])
