"""The receiving process of `bench/edges.py`: takes messages one way and says when each could be used.

    python -m voice_app.bench.edge_peer WAY ADDRESS REPLY_ADDRESS RUN

After every BATCH messages it prints their times (ns of the monotonic clock) as one line of JSON.
"""

import json
import pickle
import sys
import time
from collections.abc import Callable

import numpy as np
import zmq

from voice_app.messages import Stage, StagePayload
from voice_app.pipeline.exchange import Exchange
from voice_app.pipeline.inlet import Delivery
from voice_app.pipeline.transport.shm import SharedMemoryIn, SharedMemoryOut
from voice_app.pipeline.wire import Wire

BATCH = 40
PLACES = {stage: ("sender" if stage is Stage.THINKER else "receiver",) for stage in Stage}


class Times:
    """Collects a batch and prints it."""

    def __init__(self) -> None:
        self._times: list[int] = []

    def take(self) -> None:
        """A message can be used now."""
        self._times.append(time.monotonic_ns())
        if len(self._times) == BATCH:
            print(json.dumps(self._times), flush=True)
            self._times.clear()


def raw(address: str, load: Callable[[bytes], object]) -> None:
    """Bare ZMQ, with or without something that decodes."""
    socket = zmq.Context().socket(zmq.PULL)
    socket.bind(address)
    times = Times()
    print("ready", flush=True)
    while message := socket.recv():
        load(message)
        times.take()


def ours(address: str, reply: str, run: str) -> None:
    """The project's own hand-off."""
    times = Times()

    def deliver(delivery: Delivery) -> None:
        times.take()
        delivery.release()

    wire = Wire(address)
    wire.connect("sender", reply)
    pool, maps = SharedMemoryOut(run, "receiver.0"), SharedMemoryIn(run, StagePayload)
    exchange = Exchange(
        "receiver", PLACES, wire, lambda source, target, node: pool, maps, deliver, lambda turn, error: None
    )
    print("ready", flush=True)
    while received := wire.receive():
        exchange.handle(received)


def main() -> None:
    """Process entry; ends when it is killed, or by an empty message."""
    way, address, reply, run = sys.argv[1:]
    if way in ("inline", "slot"):
        ours(address, reply, run)
    elif way == "zmq + pickle":
        raw(address, pickle.loads)
    else:
        raw(address, lambda message: np.frombuffer(message, np.uint8))


if __name__ == "__main__":
    main()
