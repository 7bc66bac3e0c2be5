"""A prompt's spans and the encoders' embeddings, joined: ids, input rows, and what the user said."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from voice_app.errors import InputError
from voice_app.messages import Embeddings, Media, Span
from voice_app.models.local.prompt import MARK

_CAMERA = re.compile(r"\[camera: ([^\]\n]*)\]\n?")


@dataclass(frozen=True, slots=True)
class UserTurn:
    """What one turn of the user says: `words`, and what the camera showed with it ("" for nothing). `spoke`:
    there was speech or text, even if it holds no words."""

    words: str
    seen: str
    spoke: bool


class JoinedPrompt:
    """`ids`: one a position. Media positions carry their transcript's or label's ids too: the pack's
    encoders embed text, so that equal ids mean equal KV, and a talk's history, which comes as text, finds the
    KV that its speech left."""

    def __init__(self, width: int) -> None:
        """An empty one. `width`: of the thinker's rows."""
        self.ids: list[int] = []
        self.asked: list[int] = []
        """Positions of the last turn's own words: its text and speech, not its pictures."""
        self._media: list[tuple[int, np.ndarray]] = []
        self._turns: list[list[tuple[Media | None, Sequence[int]]]] = []
        self._inside = False
        """Of a user turn's content."""
        self._width = width

    def add(self, spans: Sequence[Span], media: Mapping[str, Embeddings]) -> None:
        """Put the whole prompt, or its next part, behind what is there; `media` by key. Raises InputError for
        embeddings that are not of this thinker."""
        for span in spans:
            if span == MARK:
                self._inside = not self._inside
                if self._inside:
                    self._turns.append([])
                    self.asked = []
                continue
            ids: Sequence[int] = span.ids
            if span.media:
                ids = self._take(media[span.media.key])
            if self._inside:
                self._turns[-1].append((span.media, ids))
                if not (span.media and span.media.kind == "image"):
                    self.asked += range(len(self.ids), len(self.ids) + len(ids))
            self.ids += ids

    def rows(self, start: int, end: int, embed: Callable[[Sequence[int]], np.ndarray]) -> np.ndarray:
        """The input rows of the prompt's positions [start, end)."""
        rows = embed(self.ids[start:end])
        for place, media in self._media:
            first, last = max(place, start), min(place + len(media), end)
            if first < last:
                rows[first - start : last - start] = media[first - place : last - place]
        return rows

    def turns(self, decode: Callable[[Sequence[int]], str]) -> list[UserTurn]:
        """What the user said, turn by turn, oldest first."""
        return [_turn(pieces, decode) for pieces in self._turns]

    def _take(self, embeddings: Embeddings) -> Sequence[int]:
        rows = np.array(embeddings.rows, np.float32)
        if rows.shape != (len(embeddings.ids), self._width) or not np.isfinite(rows).all():
            # A row that isn't finite would spoil its KV page for whoever gets that page next.
            raise InputError(
                f"embeddings of {embeddings.media.kind}: {rows.shape} for {len(embeddings.ids)} ids; "
                f"expected finite rows of width {self._width}",
                param="messages",
            )
        self._media.append((len(self.ids), rows))
        return embeddings.ids


def _turn(
    pieces: list[tuple[Media | None, Sequence[int]]], decode: Callable[[Sequence[int]], str]
) -> UserTurn:
    text = decode([token for _, ids in pieces for token in ids])
    seen = [found for found in _CAMERA.findall(text) if found]
    spoke = not pieces or any(media is None or media.kind == "audio" for media, _ in pieces)
    return UserTurn(_CAMERA.sub("", text).strip(), seen[-1] if seen else "", spoke)
