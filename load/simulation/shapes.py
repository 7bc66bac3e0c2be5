"""What a turn consists of, so that it can be replayed without its models."""

import msgspec


class Clause(msgspec.Struct, frozen=True):
    """Can be spoken once `tokens` of the answer's are there: an utterance of `frames` frames, of which those
    from `start` on are given. Up to `end` where it is an answer's opening, whose sound the first clause goes
    on with; a clause has none."""

    tokens: int
    frames: int
    start: int = 0
    end: int | None = None

    @property
    def over(self) -> int:
        """The frame up to which it is given."""
        return self.frames if self.end is None else self.end

    @property
    def given(self) -> int:
        """So many frames."""
        return self.over - self.start


class Stretch(msgspec.Struct, frozen=True):
    """`frames` of 20 ms, each of which adds `silent_ms` of silence (0: speech, which may be `hushed`)."""

    frames: int
    silent_ms: int
    hushed: bool = False


class Hearing(msgspec.Struct, frozen=True):
    """One call of a recogniser for a recording, most of which either encode or write. `encoded_s`: of what is
    encoded, with the silence around it. `written_s`: of what the text is written from, in `passes` of the
    decoder."""

    encodes: float = 0
    encoded_s: float = 0
    writes: float = 0
    written_s: float = 0
    passes: float = 0


class Shape(msgspec.Struct, frozen=True):
    """One turn. `speech_s`: of the question; `heard`: tokens of its words; `asked`: prompt positions that it
    adds; `tokens`: of the answer, with the one that ends it. `ruled`: a rule gives them, and the model is not
    asked which it finds likely. `question`: turns of one name have the same words and the same answer, so
    that the prefix cache finds them again; "": words that nobody has said before. `later`: not the first of
    its talk. `listened`: what the voice detector says as each packet comes, from the first word on to
    beyond the last. `hears`: the recogniser's calls for it. `guessed`: rows of the answer that were computed
    with its prompt's last. `passed`: rows of the pass that each token of the answer but the first took in a
    step of its own; 0: its row had been computed ahead. What is empty is not known."""

    speech_s: float
    asked: int
    tokens: int
    clauses: tuple[Clause, ...]
    heard: int = 0
    ruled: bool = False
    question: str = ""
    later: bool = False
    listened: tuple[Stretch, ...] = ()
    hears: tuple[Hearing, ...] = ()
    guessed: int = 0
    passed: tuple[int, ...] = ()

    @property
    def frames(self) -> int:
        return sum(clause.given for clause in self.clauses)


class Pack(msgspec.Struct, frozen=True):
    """What does not depend on the turn. `shared`: positions that every prompt begins with, computed once.
    `frame_s`: of a frame. `pages` of `page_size` positions, and `max_positions` of one prompt and answer.
    `left_context`, `right_context`: frames on either side of a window that are decoded with it. `states`:
    most turns that are spoken at once. `codes`: a talker of frames, one a step, not of clauses; such a pack
    encodes many recordings in a call, another makes one step of one."""

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
    return Shape(speech_s, asked, tokens, (Clause(tokens, frames),), heard=asked)
