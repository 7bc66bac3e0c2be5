"""What a caller keeps of a turn, and of all that happened. Times are seconds of the caller's own clock."""

from collections import Counter
from enum import StrEnum
from itertools import pairwise

import msgspec

from load.listener import Underrun


class Outcome(StrEnum):
    """How a turn ended for the one who spoke."""

    HEARD = "heard"
    """To its last sound."""
    INTERRUPTED = "interrupted"
    """By the caller."""
    WORDLESS = "wordless"
    """The answer was complete and had neither words nor sound: the server took the question for no speech."""
    SOUNDLESS = "soundless"
    """The answer was complete and had words, but no sound."""
    CUT_OFF = "cut off"
    """The server ended it without being interrupted."""
    FAILED = "failed"
    """The server said so."""
    UNANSWERED = "unanswered"
    """Nothing came to its end before the caller's patience did."""
    LEFT = "left"
    """The caller lost the connection or hung up, on purpose."""


FAULTS = frozenset({Outcome.SOUNDLESS, Outcome.CUT_OFF, Outcome.FAILED, Outcome.UNANSWERED})
"""What no listener would take for an answer."""


class Turn(msgspec.Struct):
    """A turn from the first word of the question to the last that is heard of the answer."""

    person: str
    talk: int
    session: str
    recording: str
    counted: bool
    """False: what this caller waits for is its own fault."""
    speech_began: float
    speech_ended: float | None = None
    silence_ended: float | None = None
    """The packet left that completed the silence by which a turn ends."""
    first_text: float | None = None
    first_audio: float | None = None
    last_audio: float | None = None
    audio_s: float = 0.0
    underruns: list[Underrun] = []
    chunks: list[tuple[float, float]] = []
    """Each piece of sound: when it came, and its seconds."""
    interrupted: float | None = None
    """The caller's first packet of speech over the answer."""
    last_audio_after: float | None = None
    """The last sound of the answer that came after that packet."""
    silent: float | None = None
    """Nothing of the interrupted answer was heard any more."""
    early: bool = False
    """An answer began before the question was over, and was taken back or not."""
    ended: float | None = None
    outcome: Outcome | None = None
    detail: str = ""

    @property
    def first_text_s(self) -> float | None:
        """End of speech → first text."""
        return _span(self.speech_ended, self.first_text)

    @property
    def first_audio_s(self) -> float | None:
        """End of speech → first audio."""
        return _span(self.speech_ended, self.first_audio)

    @property
    def work_s(self) -> float | None:
        """End of the silence that ends a turn → first audio: what is not the caller's own wait."""
        return _span(self.silence_ended, self.first_audio)

    @property
    def silence_s(self) -> float | None:
        """First packet of an interruption → nothing heard any more."""
        return _span(self.interrupted, self.silent)

    @property
    def still_sent_s(self) -> float | None:
        """First packet of an interruption → the last sound of the answer that still came."""
        if self.interrupted is None or self.silent is None:
            return None
        return max(0.0, (self.last_audio_after or self.interrupted) - self.interrupted)

    @property
    def gap_s(self) -> float | None:
        """The longest time between two pieces of sound as they came. Only one that is longer than what was
        still to be played is heard: an underrun."""
        return max((b - a for (a, _), (b, _) in pairwise(self.chunks)), default=None)

    @property
    def real_time_factor(self) -> float | None:
        """Seconds it took to come, by seconds of sound: above 1 it came slower than it is heard."""
        if self.outcome is not Outcome.HEARD or self.first_audio is None or self.last_audio is None:
            return None
        return (self.last_audio - self.first_audio) / self.audio_s if self.audio_s else None


def _span(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else end - begin


class Record:
    """All that the callers of a run met, in the order in which it ended."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.connects: list[tuple[float, float]] = []
        """When a talk began, and the seconds from dialling to the server's greeting."""
        self.resumes: list[tuple[float, float]] = []
        """The same for talks that were taken up again."""
        self.errors: list[tuple[float, str]] = []
        """Errors outside of turns: refused, closed, protocol errors."""
        self.calls: Counter[str] = Counter()
        """Of each kind of caller, how many talks were begun."""
