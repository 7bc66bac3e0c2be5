"""Within one process: the object itself crosses the edge, nothing is copied."""

from voice_app.pipeline.transport.base import Parcel, SlotRef


class Reference:
    """Both halves of the contract; it holds nothing."""

    def pack(self, payload: object) -> Parcel:
        return Parcel(payload)

    def free(self, slot: SlotRef) -> bool:
        return False

    def quarantine(self, slot: SlotRef) -> None:
        return None

    def open(self, parcel: Parcel) -> object:
        return parcel.payload

    def forget(self, sender: str) -> None:
        return None

    def close(self) -> None:
        return None
