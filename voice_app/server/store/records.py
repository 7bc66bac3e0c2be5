"""A talk as it is stored: its items and configuration as JSON; sound and pictures only if asked."""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from voice_app.errors import StoreError
from voice_app.server.session.conversation import Item, MessageItem, Picture, Recording

EVENTS_KEPT = 512
"""Events of a talk that a client which comes back can still be given; audio is not among them."""


class Changes(msgspec.Struct):
    """What is new in a talk since it was last asked. `items`: encoded, None where deleted; `order`: ids of
    all items, where it changed; `events`: the newest that a client may have missed, encoded, by id."""

    items: dict[str, bytes | None] = {}
    order: list[str] | None = None
    config: bytes | None = None
    events: dict[str, bytes] = {}

    def __bool__(self) -> bool:
        return bool(self.items or self.events) or self.order is not None or self.config is not None

    def add(self, newer: "Changes") -> None:
        """Both at once."""
        self.items = self.items | newer.items
        self.events = self.events | newer.events
        for event_id in list(self.events)[:-EVENTS_KEPT]:
            del self.events[event_id]
        self.order = self.order if newer.order is None else newer.order
        self.config = self.config if newer.config is None else newer.config


class StoredTalk(msgspec.Struct):
    """A talk as it was found. `epoch`: which connection of the talk this one is, counted from 0."""

    session_id: str
    epoch: int
    config: dict[str, Any]
    items: list[Item]
    events: dict[str, bytes]


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return base64.b64encode(value.astype("<i2").tobytes()).decode()
    raise NotImplementedError(type(value))


def _decode(kind: type, value: Any) -> Any:
    if kind is np.ndarray:
        return np.frombuffer(base64.b64decode(value), "<i2").astype(np.int16, copy=False)
    raise NotImplementedError(kind)


_encoder = msgspec.json.Encoder(enc_hook=_encode)
_decoder = msgspec.json.Decoder(Item, dec_hook=_decode)


def encode_item(item: Item, *, media: bool) -> bytes:
    """`media`: with its sound and pictures."""
    if isinstance(item, MessageItem) and not media:
        item = MessageItem(item.id, item.role, [_without_media(part) for part in item.content], item.status)
    return _encoder.encode(item)


def _without_media(part: Any) -> Any:
    if isinstance(part, Recording):
        return replace(part, samples=None)
    if isinstance(part, Picture):
        return replace(part, data=b"")
    return part


def decode_item(data: bytes) -> Item:
    """Raises StoreError if `data` is not what `encode_item` makes."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise StoreError(f"a stored item cannot be read ({error})") from error


def in_order(items: dict[str, Item], order: Sequence[str]) -> list[Item]:
    """The items in their order; those that were never written are left out."""
    return [items[item_id] for item_id in order if item_id in items]
