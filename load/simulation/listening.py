"""When a server begins the work on a question, drops it again, and lets the answer be heard: the server's own
turn machine over what its voice detector said of a recording."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum
from functools import lru_cache

from load.simulation.shapes import Shape, Stretch
from voice_app.server.session import turns
from voice_app.server.session.vad import FRAME_MS

PACKET_S = FRAME_MS / 1000


class Then(Enum):
    MAY_BEGIN = "may begin"
    """As `BEGIN`, where the server has nothing else to do."""
    BEGIN = "begin"
    """The work on what was heard so far, if it has not begun; it may turn out to be all."""
    DROP = "drop"
    """The question goes on."""
    ANSWER = "answer"
    """The question is over: the answer may be heard."""


Step = tuple[float, Then]
"""Seconds since the last packet with speech was over (below 0: before), and what happens then."""

_MEANING = {turns.DropSpeculation: Then.DROP, turns.SpeechStopped: Then.ANSWER}


@lru_cache(maxsize=4096)
def steps(shape: Shape, rules: turns.Rules) -> tuple[Step, ...]:
    """What happens to one question, in order: to two servers, of which one has nothing else to do."""
    packets, busy_rules = round(shape.speech_s / PACKET_S), replace(rules, early_ms=None)
    idle = busy = turns.State()
    found: list[Step] = []
    for number, frame in enumerate(_frames(shape.listened or (Stretch(packets, 0),), rules.silence_ms)):
        now, waits = number * PACKET_S, not busy.speculating
        idle, actions = turns.step(idle, frame, now, rules)
        busy, late = turns.step(busy, frame, now, busy_rules)
        then = [_MEANING[type(action)] for action in actions if type(action) in _MEANING]
        if any(isinstance(action, turns.Speculate) for action in late):
            then.insert(0, Then.BEGIN)
        elif (frame.silent_ms or frame.hushed) and idle.speculating and waits:
            then.append(Then.MAY_BEGIN)
        found += [((number - packets) * PACKET_S, what) for what in then]
    return tuple(found)


def _frames(listened: Iterable[Stretch], silence_ms: int) -> Iterator[turns.Frame]:
    """Each frame, with those that end the turn."""
    for stretch in listened:
        yield from [turns.Frame(stretch.silent_ms, stretch.hushed)] * stretch.frames
    yield from [turns.Frame(FRAME_MS)] * (silence_ms // FRAME_MS + 1)
