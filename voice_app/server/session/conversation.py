"""The items of a talk, in order: what was said by whom, and how much of it was heard."""

from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter

import msgspec
import numpy as np

from voice_app.server.protocol.errors import ProtocolError
from voice_app.server.session.kept import Kept

MAX_ITEMS = 2_000
"""A talk of half an hour makes some hundreds. Beyond, the oldest are forgotten."""
PICTURE_BYTES = 16 << 20
"""Pictures of a talk that are kept; only the newest few are in a prompt."""
TRUNCATE_SLACK_MS = 250
"""Real clients count up to so much more than there was; beyond, it is an error."""


class Text(msgspec.Struct, tag="text"):
    text: str


class Recording(msgspec.Struct, tag="recording"):
    """The user's speech: `samples` [n] int16 at 16 kHz; None where it is no longer kept."""

    samples: np.ndarray | None
    transcript: str | None = None


class Picture(msgspec.Struct, tag="picture"):
    """An encoded JPEG, PNG or WebP file, or b"" where it is no longer kept. `frame`: the client's name for
    it, where it comes from its camera."""

    data: bytes
    media_type: str
    detail: str = "auto"
    frame: str = ""


class Spoken(msgspec.Struct, tag="spoken"):
    """A spoken answer. `marks`: (characters, seconds): the text up to there is spoken by then.

    What was not heard stays here, so that the client's word on what it played can still correct the
    server's; it shows in no prompt and in no event after the cut."""

    text: str = ""
    marks: list[tuple[int, float]] = msgspec.field(default_factory=list)
    sent_s: float = 0.0
    cut_s: float | None = None

    @property
    def heard(self) -> str:
        """The text that the user has heard, as far as it was cut off; all of it else."""
        if self.cut_s is None:
            return self.text
        # A cut counted in whole milliseconds may fall just short of the mark that it means.
        position = bisect_right(self.marks, self.cut_s + 0.00099, key=itemgetter(1))
        return self.text[: self.marks[position - 1][0]] if position else ""

    @property
    def unheard(self) -> str:
        """The text after that, as far as it is known."""
        return self.text[len(self.heard) :].strip()


Content = Text | Recording | Picture | Spoken


class MessageItem(msgspec.Struct, tag="message", eq=False):
    id: str
    role: str
    content: list[Content]
    status: str = "completed"


class CallItem(msgspec.Struct, tag="call", eq=False):
    id: str
    call_id: str
    name: str
    arguments: str
    status: str = "completed"


class CallOutputItem(msgspec.Struct, tag="call_output", eq=False):
    id: str
    call_id: str
    output: str
    status: str = "completed"


Item = MessageItem | CallItem | CallOutputItem


AUDIO_TOKENS_S, PICTURE_TOKENS, TEXT_BYTES, ITEM_TOKENS = 12.5, 800, 3, 6
"""What Qwen3-Omni takes for a second of sound and a picture of 896 × 896; about so many bytes of text (UTF-8)
are one token, in Chinese as in English; and an item's frame."""


def weight(item: Item) -> int:
    """About how many tokens of a prompt `item` is; the server has no tokenizer."""
    match item:
        case MessageItem():
            return ITEM_TOKENS + sum(map(_part_weight, item.content))
        case CallItem():
            return ITEM_TOKENS + len(item.arguments.encode()) // TEXT_BYTES
        case CallOutputItem():
            return ITEM_TOKENS + len(item.output.encode()) // TEXT_BYTES


def _part_weight(part: Content) -> int:
    match part:
        case Spoken():
            return len(part.heard.encode()) // TEXT_BYTES
        case Text(text):
            return len(text.encode()) // TEXT_BYTES
        case Picture(data):
            return PICTURE_TOKENS if data else 0
        case Recording(samples, transcript):
            if transcript is not None:
                return len(transcript.encode()) // TEXT_BYTES
            return 0 if samples is None else int(len(samples) / 16_000 * AUDIO_TOKENS_S)


def duplicate(item_id: str) -> ProtocolError:
    """An item of that id is there, or promised."""
    return ProtocolError(
        "item_create_duplicate_item_id",
        f"Error adding item: an item with id '{item_id}' already exists.",
        param="item.id",
    )


class Conversation:
    """Items in order, each found by its id. `audio_s` bounds the seconds of recordings that are kept, and
    `picture_bytes` the pictures: memory does not grow with a talk's length."""

    def __init__(self, audio_s: float = 120.0, picture_bytes: int = PICTURE_BYTES) -> None:
        self._items: list[Item] = []
        self._by_id: dict[str, Item] = {}
        self._recordings: Kept[Recording] = Kept(int(audio_s * 16_000), _forget_sound)
        self._pictures: Kept[Picture] = Kept(picture_bytes, _forget_picture)
        self._recent_from = 0
        self._weights: dict[str, int] = {}
        self.changed: set[str] = set()
        """Items that were added, deleted or changed and not stored since. Whoever changes an item says so by
        `touch`."""

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._by_id

    @property
    def last_id(self) -> str | None:
        return self._items[-1].id if self._items else None

    def add(self, item: Item, previous_item_id: str | None = None) -> str | None:
        """Put `item` after `previous_item_id` ("root": first; None: last). Gives the id before it."""
        if item.id in self:
            raise duplicate(item.id)
        if len(self._items) >= MAX_ITEMS:
            self.delete(self._items[0].id)
        position = self._position_after(previous_item_id)
        self._items.insert(position, item)
        self._recent_from += position < self._recent_from
        self._by_id[item.id] = item
        self.changed.add(item.id)
        self._keep_media(item)
        return self._items[position - 1].id if position else None

    def recent(self, most: int, tokens: int, keep: float) -> list[Item]:
        """The items that an answer takes into account: at most `most`, and of about `tokens` in all. When
        there are more, the oldest leave so that `keep` (a share) of that is left: rarely and many at once, so
        that the prompts of neighbouring turns begin alike and share their cache. The newest always stays."""
        left = sum(map(self._weigh, self._items[self._recent_from :]))
        if left > tokens or len(self._items) - self._recent_from > most:
            while len(self._items) - self._recent_from > max(1, int(most * keep)) or (
                left > tokens * keep and self._recent_from < len(self._items) - 1
            ):
                left -= self._weigh(self._items[self._recent_from])
                self._recent_from += 1
        return self._items[self._recent_from :]

    def _weigh(self, item: Item) -> int:
        if item.id not in self._weights:
            self._weights[item.id] = weight(item)
        return self._weights[item.id]

    def _position_after(self, previous_item_id: str | None) -> int:
        if previous_item_id is None:
            return len(self._items)
        if previous_item_id == "root":
            return 0
        if previous_item_id not in self:
            raise ProtocolError(
                "invalid_value",
                f"Error adding item: the previous item with id '{previous_item_id}' does not exist.",
                param="previous_item_id",
            )
        return self._find(previous_item_id) + 1

    def touch(self, item_id: str) -> None:
        """The item is not as it was."""
        if item_id in self._by_id:
            self.changed.add(item_id)
            self._weights.pop(item_id, None)

    def known(self, item_id: str, verb: str) -> Item:
        """The item that the client wants to `verb` (retrieve, delete, truncate)."""
        item = self._by_id.get(item_id)
        if item is None:
            raise ProtocolError(
                f"item_{verb}_invalid_item_id",
                f"Error: cannot {verb} item: the item with id '{item_id}' does not exist.",
                param="item_id",
            )
        return item

    def truncate(self, item_id: str, content_index: int, end_ms: int) -> int:
        """Of a spoken answer, only the first `end_ms` were heard; gives how much that is in effect."""
        item = self.known(item_id, "truncate")
        part = item.content[0] if isinstance(item, MessageItem) and item.content else None
        if not isinstance(part, Spoken):
            raise ProtocolError(
                "unsupported_content_type",
                "Only model output audio messages can be truncated.",
                param="item_id",
            )
        if content_index != 0:
            raise ProtocolError(
                "invalid_value",
                f"Invalid value for 'content_index': item '{item_id}' has one content part, 0.",
                param="content_index",
            )
        length_ms = round(part.sent_s * 1000)
        if end_ms > length_ms + TRUNCATE_SLACK_MS:
            raise ProtocolError(
                "invalid_value",
                f"Audio content of {length_ms}ms is already shorter than {end_ms}ms",
                param="audio_end_ms",
            )
        part.cut_s = min(end_ms, length_ms) / 1000
        self.touch(item_id)
        return min(end_ms, length_ms)

    def get(self, item_id: str) -> Item | None:
        return self._by_id.get(item_id)

    def delete(self, item_id: str) -> bool:
        """Whether there was such an item."""
        if self._by_id.pop(item_id, None) is None:
            return False
        self.changed.add(item_id)
        self._weights.pop(item_id, None)
        position = self._find(item_id)
        del self._items[position]
        self._recent_from -= position < self._recent_from
        return True

    def _find(self, item_id: str) -> int:
        # From the end: what is asked for is nearly always recent.
        return next(i for i in range(len(self._items) - 1, -1, -1) if self._items[i].id == item_id)

    def _keep_media(self, item: Item) -> None:
        """The oldest sound and pictures go when there are more than is kept."""
        for part in item.content if isinstance(item, MessageItem) else ():
            if isinstance(part, Recording) and part.samples is not None:
                self._recordings.add(part, len(part.samples))
            elif isinstance(part, Picture):
                self._pictures.add(part, len(part.data))


def _forget_sound(recording: Recording) -> None:
    recording.samples = None


def _forget_picture(picture: Picture) -> None:
    picture.data = b""
