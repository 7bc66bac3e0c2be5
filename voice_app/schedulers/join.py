"""Joins the inputs of a turn that come over several edges, in any order, one never waiting for another."""

from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

from msgspec.structs import replace

from voice_app.messages import Embeddings, PromptIds, TurnId
from voice_app.schedulers.base import PromptInputs, StageInput

Release = Callable[[], None]

MAX_BORROWED = 8
"""Embeddings of one turn that stay where their sender put them until they are taken; more are copied. A
sender's credit for a turn is limited, and a prompt may want more media than that."""


@dataclass(slots=True, eq=False)
class InputJoin:
    """What has come for one turn: parts of its prompt, and embeddings for each by `Media.key`."""

    turn: TurnId
    speech: bool
    _parts: deque[PromptIds] = field(default_factory=deque)
    """In order; the first of them waits for media."""
    _media: dict[str, deque[tuple[Embeddings, Release]]] = field(default_factory=dict)
    """Of the same content there is one for each part that has it."""
    _joined: list[PromptIds] = field(default_factory=list)
    """Parts whose media are there, not taken yet."""
    _joined_media: dict[str, Embeddings] = field(default_factory=dict)
    _joined_releases: list[Release] = field(default_factory=list)

    def add(self, item: StageInput) -> bool:
        """Take one payload; False (and nothing taken) if it is of no kind that is joined."""
        payload = item.payload
        if isinstance(payload, PromptIds):
            self._parts.append(payload)
            item.release()  # It has no arrays.
        elif isinstance(payload, Embeddings):
            self._hold(payload, item.release)
        else:
            return False
        while self._parts and _keys(self._parts[0]) <= self._media.keys():
            self._join(self._parts.popleft())
        return True

    def take(self, *, whole: bool) -> PromptInputs | None:
        """The parts that are there with all their media, as one; None if there are none or, with `whole`, the
        last is missing. Their space is to be given back by `release_taken`."""
        if not self._joined or (whole and self._joined[-1].more):
            return None
        spans = tuple(span for part in self._joined for span in part.spans)
        prompt = PromptIds(spans, self._joined[0].request, self._joined[-1].more)
        inputs = PromptInputs(self.turn, prompt, self._joined_media)
        self._joined, self._joined_media = [], {}
        return inputs

    def release_taken(self) -> None:
        """What was taken is not looked at any more."""
        while self._joined_releases:
            self._joined_releases.pop()()

    def release(self) -> None:
        """Give every payload's space back."""
        self.release_taken()
        for waiting in self._media.values():
            for _, release in waiting:
                release()
        self._parts.clear()
        self._media.clear()

    def _hold(self, payload: Embeddings, release: Release) -> None:
        if len(self._joined_releases) + sum(map(len, self._media.values())) >= MAX_BORROWED:
            payload = replace(payload, rows=deepcopy(payload.rows), deepstack=deepcopy(payload.deepstack))
            release()
            release = _nothing
        self._media.setdefault(payload.media.key, deque()).append((payload, release))

    def _join(self, part: PromptIds) -> None:
        self._joined.append(part)
        for key in _keys(part):
            waiting = self._media[key]
            self._joined_media[key], release_media = waiting.popleft()
            self._joined_releases.append(release_media)
            if not waiting:
                del self._media[key]


def _nothing() -> None:
    """There is nothing to give back."""


def _keys(part: PromptIds) -> set[str]:
    return {span.media.key for span in part.spans if span.media is not None}
