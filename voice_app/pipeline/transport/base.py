"""The contract of the transports between processes: shared memory, CUDA IPC, Mooncake.

    sender   Outgoing.pack(payload) ──▶ Parcel ──(DataInSlot)──▶ Incoming.open(parcel)   receiver
             Outgoing.free(slot)    ◀────────────(DataAck)─────  payload consumed

A parcel is the payload's encoded head, and a slot of the sender's pool that holds its arrays. A slot belongs
to the sender; it is lent until the receiver's ack, and the receiver only reads it. A transport whose receiver
fetches the data (Mooncake) does so in `open`; one whose memory is a device's (CUDA IPC) opens arrays on that
device. Payloads of a few KB need no transport: they travel within the message. Nor do stages of one process:
the object itself is handed on (`pipeline/carriers.py`).
"""

from enum import StrEnum
from typing import Protocol

import msgspec

from voice_app.messages import Stage


class TransportKind(StrEnum):
    """How data crosses an edge."""

    REFERENCE = "reference"
    SHARED_MEMORY = "shared memory"
    CUDA_IPC = "CUDA IPC"
    MOONCAKE = "Mooncake"


class SlotRef(msgspec.Struct, frozen=True, array_like=True):
    """Where a payload's arrays lie: `size` bytes from `offset` of the segment `segment`.

    `index` numbers the slot within its segment; (segment, index) is the slot's identity."""

    segment: str
    index: int
    offset: int
    size: int

    @property
    def key(self) -> tuple[str, int]:
        return (self.segment, self.index)


class Parcel(msgspec.Struct, gc=False):
    """A payload between `pack` and `open`. `target`: the stage that it is for, noted by the receiver; None:
    the client."""

    head: bytes
    slot: SlotRef
    target: Stage | None = None


class Outgoing(Protocol):
    """The sender's half. Safe to call from several threads."""

    def wants(self, payload: object) -> bool:
        """Whether `payload` is to be packed however small: it lies where the slots are."""
        ...

    def pack(self, payload: object) -> Parcel | None:
        """Make `payload` ready to travel; None: every slot it fits is lent, try again after an ack.

        Raises TransferFailed for what can never travel: foreign values, larger than the largest slot,
        or no memory left for a slot (the message says how to get more)."""
        ...

    def free(self, slot: SlotRef) -> bool:
        """The receiver is done with `slot`. False: it was not lent (an ack that came twice or late)."""
        ...

    def quarantine(self, slot: SlotRef) -> None:
        """Its transfer failed, or its turn ended before the ack: nobody gets it until it is safe, that
        is until `free` (the receiver says that it does not hold it, or is gone)."""
        ...

    def close(self) -> None:
        """Give all memory back; nothing of it stays visible to other processes."""
        ...


class Incoming(Protocol):
    """The receiver's half; used by one thread, but for what says otherwise."""

    def waits(self, slot: SlotRef) -> bool:
        """Whether `open` waits for another machine. It is then called in a thread of the sender's own,
        beside others."""
        ...

    def open(self, parcel: Parcel) -> object:
        """The payload. Its arrays may be views of a slot: valid until `done`.
        Raises TransferFailed if the data cannot be had or makes no sense."""
        ...

    def done(self, slot: SlotRef) -> None:
        """What was opened is read no more, the ack follows. From any thread."""
        ...

    def forget(self, sender: str) -> None:
        """The process `sender` is gone: drop what is kept of its memory. Never raises for what cannot be."""
        ...

    def close(self) -> None:
        """Drop everything kept."""
        ...
