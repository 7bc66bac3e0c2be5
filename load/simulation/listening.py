"""When a server begins the work on a question, drops it again, and lets the answer be heard: the server's own
turn machine over what its voice detector said of a recording."""

from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache

from load.simulation.shapes import Shape, Stretch
from voice_app.server.session import turns
from voice_app.server.session.vad import FRAME_MS

PACKET_S = FRAME_MS / 1000


class Then(Enum):
    BEGIN = "begin"
    """The work on what was heard so far; it may turn out to be all."""
    DROP = "drop"
    """The question goes on."""
    ANSWER = "answer"
    """The question is over: the answer may be heard."""


Step = tuple[float, Then]
"""Seconds since the last packet with speech was over (below 0: before), and what happens then."""

_MEANING = {turns.Speculate: Then.BEGIN, turns.DropSpeculation: Then.DROP, turns.SpeechStopped: Then.ANSWER}


@lru_cache(maxsize=4096)
def steps(shape: Shape, rules: turns.Rules) -> tuple[Step, ...]:
    """What happens to one question, in order."""
    packets = round(shape.speech_s / PACKET_S)
    state, found = turns.State(), []
    for number, silent_ms in enumerate(_frames(shape.listened or (Stretch(packets, 0),), rules.silence_ms)):
        now = number * PACKET_S
        state, actions = turns.step(state, turns.Frame(silent_ms), now, rules)
        at = (number - packets) * PACKET_S
        found += [(at, _MEANING[type(action)]) for action in actions if type(action) in _MEANING]
    return tuple(found)


def _frames(listened: Iterable[Stretch], silence_ms: int) -> Iterator[int]:
    """Of each frame the silence that it adds, with what ends the turn."""
    for stretch in listened:
        yield from [stretch.silent_ms] * stretch.frames
    yield from [FRAME_MS] * (silence_ms // FRAME_MS + 1)
