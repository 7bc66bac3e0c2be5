"""The turn machine's rules, state, events and actions; `turns.py` says what follows from what."""

from dataclasses import dataclass
from enum import Enum

import msgspec

from voice_app.server.session.vad import FRAME_MS


@dataclass(frozen=True, slots=True)
class Rules:
    """How turns are told apart. `interrupt_ms` 0: any speech interrupts a reply. Work on a turn starts after
    `speculate_ms` of silence, or after `early_ms`, which is less."""

    prefix_ms: int = 300
    silence_ms: int = 500
    speculate_ms: int | None = 160
    early_ms: int | None = 80
    """Or when speech is hushed. None while others would have to wait for work that may be in vain. Not over a
    reply, where the work is to tell the words of a sound that is over."""
    onset_ms: int = 140
    interrupt: bool = True
    interrupt_ms: int = 400
    judge_words: bool = True
    """Short sounds during a reply are judged by their words (the pack tells what it heard)."""
    idle_ms: int | None = None
    sure_ms: int | None = None
    """Silence that ends a turn which sounds complete (asked for at `ask_ms`); `silence_ms` ends any. None:
    nobody is asked."""
    ask_ms: int = 200
    longest_ms: int = 300_000
    """A turn ends by then, whatever is heard."""

    def __post_init__(self) -> None:
        early, late = self.early_ms, self.speculate_ms
        if early is not None and late is not None and (early % FRAME_MS or not 0 < early < late):
            raise ValueError(f"early_ms {early}: not a multiple of {FRAME_MS} between 0 and {late}")


class User(Enum):
    QUIET = "quiet"
    ONSET = "onset"
    """A sound that may become speech."""
    OVERLAP = "overlap"
    """Speech during a reply, not yet known to be an interruption."""
    SPEAKING = "speaking"


class State(msgspec.Struct, frozen=True):
    """Everything the machine remembers."""

    user: User = User.QUIET
    heard_ms: int = 0
    """End of the last frame."""
    floor_ms: int = 0
    """Where the last turn ended: earlier sound is not in the next."""
    onset_ms: int = 0
    """Where the present sound began."""
    start_ms: int = 0
    """Where the present turn begins, prefix included."""
    voiced_ms: int = 0
    silence_ms: int = 0
    resumed_ms: int = 0
    asked: bool = False
    """Whether the turn sounds complete was asked in this pause."""
    complete: bool = False
    """It does."""
    last_frame_at: float = 0.0
    speculating: bool = False
    replying: bool = False
    held: bool = False
    idle_since: float | None = None
    idle_from_ms: int = 0


# ------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Frame:
    """20 ms of sound. `silent_ms`: 0 if it is speech, else how much silence it adds to what was known of;
    more than 20 where a detector says "speech" for some time after its end. `hushed`: speech that has become
    so faint that it may be over."""

    silent_ms: int
    hushed: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Words:
    """What the work that was started early heard the user say."""

    back_channel: bool


@dataclass(frozen=True, slots=True)
class SoundsComplete:
    """The answer to `AskComplete`, in the same pause."""

    complete: bool


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """A reply to the talk has begun."""


@dataclass(frozen=True, slots=True)
class ReplyEnded:
    """The reply was heard to its end, or stopped."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The client ended the turn: the sound so far is it."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """The client wants the sound so far forgotten; who speaks goes on speaking."""


@dataclass(frozen=True, slots=True)
class Deaf:
    """Turns are no longer told apart by what is heard."""


Event = Frame | Tick | Words | SoundsComplete | ReplyStarted | ReplyEnded | Committed | Cleared | Deaf


# ------------------------------------------------------------------------------------------ actions


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    start_ms: int


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The turn is over: it is the sound from `start_ms` to `end_ms`. Nothing was heard for the last
    `silence_ms`, packets that stayed away included."""

    start_ms: int
    end_ms: int
    silence_ms: int


@dataclass(frozen=True, slots=True)
class Speculate:
    """Start the work on the sound from `start_ms` on; show nothing of it yet."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class AskComplete:
    """Find out whether the sound from `start_ms` to `end_ms` is a complete turn."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class DropSpeculation:
    """The user went on, or meant nothing: forget the work."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Send no more of the reply for now."""


@dataclass(frozen=True, slots=True)
class Release:
    """Go on with the reply."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The reply is over."""


@dataclass(frozen=True, slots=True)
class IdleTimeout:
    """Nobody spoke for `idle_ms` after a reply."""

    start_ms: int
    end_ms: int


Action = (
    SpeechStarted
    | SpeechStopped
    | Speculate
    | AskComplete
    | DropSpeculation
    | Hold
    | Release
    | Interrupt
    | IdleTimeout
)
