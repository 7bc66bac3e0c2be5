"""The receiving process of `bench/edges.py`: takes messages one way and says when each could be used.

    python -m voice_app.bench.edge_peer WAY ADDRESS REPLY_ADDRESS RUN

For each message it writes the time, in ns of the monotonic clock, to its stdout as 8 bytes; the first 8 say
that it is ready.
"""

import pickle
import struct
import sys
import time
from collections.abc import Callable

import msgspec
import numpy as np
import zmq

from voice_app.messages import Stage, StagePayload
from voice_app.pipeline.exchange import Exchange
from voice_app.pipeline.inlet import Delivery
from voice_app.pipeline.transport import mooncake
from voice_app.pipeline.transport.base import Incoming
from voice_app.pipeline.transport.shm import SharedMemoryIn, SharedMemoryOut
from voice_app.pipeline.wire import Wire

HOST = "127.0.0.1"
PLACES = {stage: ("sender" if stage is Stage.THINKER else "receiver",) for stage in Stage}
TIME = struct.Struct("<q")


class Lying(msgspec.Struct, array_like=True):
    """Where bytes lie in a Mooncake engine's memory."""

    peer: str
    address: int
    size: int


def tell() -> None:
    """A message can be used now."""
    now = time.monotonic_ns()
    sys.stdout.buffer.write(TIME.pack(now))
    sys.stdout.buffer.flush()


def raw(address: str, load: Callable[[bytes], object]) -> None:
    """Bare ZMQ, with or without something that decodes."""
    socket = zmq.Context().socket(zmq.PULL)
    socket.bind(address)
    tell()
    while message := socket.recv():
        load(message)
        tell()


def bare_mooncake(address: str, size: int = 1 << 24) -> None:
    """Bare ZMQ says where the data lies; one read fetches it."""
    buffer = np.ones(size, np.uint8)
    engine = mooncake.new_engine(HOST)
    engine.register_memory(buffer.ctypes.data, size)

    def read(message: bytes) -> None:
        lying = msgspec.msgpack.decode(message, type=Lying)
        failed = engine.transfer_sync_read(lying.peer, buffer.ctypes.data, lying.address, lying.size)
        if failed:
            raise ConnectionError(f"Mooncake's read failed: {failed}")

    raw(address, read)


def ours(address: str, reply: str, run: str, incoming: Incoming) -> None:
    """The project's own hand-off."""

    def deliver(delivery: Delivery) -> None:
        tell()
        delivery.release()

    wire = Wire(address)
    wire.connect("sender", reply)
    pool = SharedMemoryOut(run, "receiver.0")
    exchange = Exchange(
        "receiver",
        PLACES,
        wire,
        lambda source, target, node: pool,
        incoming,
        deliver,
        lambda turn, error: None,
    )
    tell()
    while True:
        message = wire.receive()
        if message is not None:
            exchange.handle(message)


def main() -> None:
    """Process entry; ends when it is killed."""
    way, address, reply, run = sys.argv[1:]
    match way:
        case "inline" | "slot":
            ours(address, reply, run, SharedMemoryIn(run, StagePayload))
        case "mooncake":
            ours(address, reply, run, mooncake.MooncakeIn(run, StagePayload, HOST))
        case "bare mooncake":
            bare_mooncake(address)
        case "zmq + pickle":
            raw(address, pickle.loads)
        case _:
            raw(address, lambda message: np.frombuffer(message, np.uint8))


if __name__ == "__main__":
    main()
