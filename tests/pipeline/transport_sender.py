"""A process that lends what it packed: `python -m transport_sender mooncake RUN HOST VALUES COUNT`.

It packs COUNT payloads of VALUES numbers each, number n all n, says where they lie, one line of JSON each,
and lives until its stdin closes.
"""

import subprocess
import sys
from typing import NamedTuple

import msgspec
import numpy as np

from voice_app import messages as m
from voice_app.pipeline.transport.base import Outgoing, Parcel, SlotRef
from voice_app.pipeline.transport.mooncake import MooncakeOut
from voice_app.pipeline.transport.shm import SharedMemoryOut

NODE = "sender.0"


class _Lent(msgspec.Struct):
    head: bytes
    slot: SlotRef


class Sender(NamedTuple):
    """The process, and what it lends."""

    process: subprocess.Popen[bytes]
    parcels: list[Parcel]


def payload(values: int, value: float) -> m.MelFrames:
    """`values` numbers, all `value`."""
    return m.MelFrames(m.Media("k", "audio"), np.full(values, value, np.float32), 1.0)


def start(kind: str, run: str, host: str, values: int, count: int) -> Sender:
    """Start one and wait until it has packed."""
    command = [sys.executable, "-m", "transport_sender", kind, run, host, str(values), str(count)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    lent = [msgspec.json.decode(process.stdout.readline(), type=_Lent) for _ in range(count)]
    return Sender(process, [Parcel(head=one.head, slot=one.slot) for one in lent])


def _outgoing(kind: str, run: str, host: str) -> Outgoing:
    if kind == "mooncake":
        return MooncakeOut(run, NODE, host)
    return SharedMemoryOut(run, NODE)


def main(kind: str, run: str, host: str, values: str, count: str) -> None:
    """Process entry."""
    pool = _outgoing(kind, run, host)
    for number in range(int(count)):
        parcel = pool.pack(payload(int(values), number))
        assert parcel is not None
        print(msgspec.json.encode(_Lent(bytes(parcel.head), parcel.slot)).decode(), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
