"""The capacity model's talker by itself, and what it notes of its calls."""

from dataclasses import dataclass, field
from typing import cast

from load.simulation.costs import Costs
from load.simulation.runners import Asked, ClauseTalker
from load.simulation.shapes import Pack, Shape
from voice_app import messages as m
from voice_app.messages import TurnId

TURN = TurnId("talk", "0")


@dataclass
class _Noted:
    """The part of `Costs` that a talker asks."""

    calls: list[tuple[int, int, int]] = field(default_factory=list)

    def talker(self, states: int, begun: int, whole: int, frames: int) -> float:
        self.calls.append((begun, whole, frames))
        return 0.0


@dataclass
class Spoken:
    """One answer. `calls`: what was in each (begun, whole, frames); `after`: tokens that were there by then;
    `ends`: whether it closed a segment."""

    calls: list[tuple[int, int, int]]
    after: list[int]
    ends: list[bool]


def spoken(shape: Shape, pack: Pack) -> Spoken:
    """An answer whose tokens come one by one, each when the talker has nothing left to do."""
    noted = _Noted()
    talker = ClauseTalker(pack, cast(Costs, noted), lambda _: Asked(shape, [], []))
    state = talker.open(TURN)
    talker.feed(state, m.PromptIds((), m.PromptParams()))
    found = Spoken(noted.calls, [], [])
    for number in range(1, shape.tokens + 1):
        reason = "stop" if number == shape.tokens else None
        talker.feed(state, m.TokenVector(number, None, finish_reason=reason))
        done = False
        while not done and talker.ready(state):
            (output,) = talker.step([state])
            done = output.done
            if output.frames is not None and len(output.frames.frames):
                found.after.append(number)
                found.ends.append(output.frames.segment_end)
    return found
