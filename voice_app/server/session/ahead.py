"""Answers to what the user has said so far: a turn's words are mostly known before its last sound is over.

Work begins in the middle of the user's turn as if that were all of it. Where later work on more of the sound
hears the same words, the earlier work is further and is kept, else the later. At the end of the turn, what is
left takes the place of the reply that has just begun, if that hears the same words: so nothing is answered
that was not heard to the end, and the client learns nothing of what was in vain.
"""

from collections.abc import Iterable

from voice_app import messages as m
from voice_app.server.session.actions import Cancel
from voice_app.server.session.context import Context
from voice_app.server.session.conversation import Item, MessageItem, Picture
from voice_app.server.session.job import Job, submitted
from voice_app.server.session.response import ResponseSpec

HELD_CHUNKS = 2
"""Most pieces of sound that wait here; the stages hold what follows them."""


class Ahead:
    """Two turns of the pipeline at most: one whose words are known, and a later one that is being heard."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: Job | None = None
        self._hearing: Job | None = None

    @property
    def turns(self) -> set[m.TurnId]:
        """What is in the pipeline."""
        return {job.turn for job in (self._known, self._hearing) if job is not None}

    def _job(self, turn: m.TurnId) -> Job | None:
        return next((job for job in (self._known, self._hearing) if job and job.turn == turn), None)

    def room(self, turn: m.TurnId) -> bool:
        """Whether another event of `turn` may be taken from the pipeline."""
        job = self._job(turn)
        return job is None or (job.room and job.chunks < HELD_CHUNKS)

    def begin(self, items: Iterable[Item], spec: ResponseSpec, unsaid: str) -> None:
        """Answer `items`, the last of which is what the user has said so far."""
        turn = m.TurnId(self._context.session_id, self._context.new_id("turn"))
        self.take_over(submitted(turn, items, spec, self._context, unsaid))

    def take_over(self, job: Job) -> None:
        """`job` was to answer a turn that goes on."""
        self._end(self._hearing)
        self._hearing = job
        if job.words is not None:
            self._heard(job)

    def event(self, turn: m.TurnId, event: m.TurnEvent, now: float) -> bool:
        """Whether `turn` is work of this kind."""
        job = self._job(turn)
        if job is None:
            return False
        job.take(event, now)
        if job is self._hearing and job.words is not None:
            self._heard(job)
        elif isinstance(event, m.TextDelta) and not job.sure and self.failed(turn):
            self._end(job)
        return True

    def _heard(self, job: Job) -> None:
        self._hearing = None
        if self._known is not None and _same(self._known, job):
            self._end(job)
        else:
            self._end(self._known)
            self._known = job

    def failed(self, turn: m.TurnId) -> bool:
        """Whether `turn` is work of this kind. Nothing is lost: the turn itself will be answered."""
        job = self._job(turn)
        if job is None:
            return False
        self._known = None if job is self._known else self._known
        self._hearing = None if job is self._hearing else self._hearing
        return True

    def in_place_of(self, job: Job) -> Job | None:
        """What answers the same as `job`, whose words have just come, and is further; all else ends."""
        known = self._known
        if known is not None and _same(known, job):
            self._known = None
        else:
            known = None
        self.stop()
        return known

    def stop(self) -> None:
        """Nobody needs it any more."""
        self._end(self._known)
        self._end(self._hearing)
        self._known = self._hearing = None

    def _end(self, job: Job | None) -> None:
        if job is not None:
            self._context.act(Cancel(job.turn))


def _same(one: Job, other: Job) -> bool:
    """They answer the same: the same items, but for how long the last was heard, with the same words."""
    (*before, last), (*other_before, other_last) = one.items, other.items
    return (
        one.words == other.words
        and (one.spec, one.unsaid, last.id) == (other.spec, other.unsaid, other_last.id)
        and len(before) == len(other_before)
        and all(a is b for a, b in zip(before, other_before, strict=True))
        and _pictures(last) == _pictures(other_last)
    )


def _pictures(item: Item) -> list[Picture]:
    return (
        [part for part in item.content if isinstance(part, Picture)] if isinstance(item, MessageItem) else []
    )
