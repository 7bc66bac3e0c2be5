"""What a turn consists of, so that it can be replayed without its models."""

import msgspec


class Clause(msgspec.Struct, frozen=True):
    """Can be spoken once `tokens` of the answer's are there, in `frames` frames."""

    tokens: int
    frames: int


class Shape(msgspec.Struct, frozen=True):
    """One turn. `asked`: prompt positions that the question adds; `tokens`: of the answer."""

    speech_s: float
    asked: int
    tokens: int
    clauses: tuple[Clause, ...]

    @property
    def frames(self) -> int:
        return sum(clause.frames for clause in self.clauses)


class Pack(msgspec.Struct, frozen=True):
    """What does not depend on the turn. `shared`: positions that every prompt begins with, computed once.
    `frame_s`: of a frame. `pages` of `page_size` positions, and `max_positions` of one prompt and answer.
    `context`: frames on either side of a window that are decoded with it; `last_context`: on the right.
    `states`: most turns that are spoken at once. `codes`: a talker of frames, one a step, not of clauses."""

    name: str
    shared: int
    frame_s: float
    pages: int
    page_size: int
    max_positions: int
    left_context: int
    right_context: int
    first_window: int
    max_window: int
    states: int
    codes: bool
    shapes: tuple[Shape, ...]


def spoken(words: float, tokens: int, frame_s: float, speech_s: float, asked: int) -> Shape:
    """A turn of a talker that makes `words` words a second out of `tokens` tokens, in one segment."""
    frames = round(tokens / words / frame_s)
    return Shape(speech_s, asked, tokens, (Clause(tokens, frames),))
