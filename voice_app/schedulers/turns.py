"""What every scheduler does with turns: find the stale ones, account model calls to them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Self

from voice_app.errors import StageFailed
from voice_app.messages import Stage, TurnId
from voice_app.schedulers.base import Outbox, StageInput

Clock = Callable[[], float]
"""Seconds from any fixed moment, never going back."""


def stale(held: Iterable[TurnId], fence: TurnId) -> list[TurnId]:
    """Those of `held` that cancelling `fence` ends: the same turn, its generation or a lower one."""
    return [turn for turn in held if turn.key == fence.key and turn.generation <= fence.generation]


def refuse(outbox: Outbox, stage: Stage, item: StageInput) -> None:
    """End the turn of a payload that no edge into `stage` carries."""
    kind = type(item.payload).__name__
    item.release()
    outbox.fail(item.turn, StageFailed(f"{stage}: a {kind} arrived, which no edge brings here"))


class ModelCalls:
    """Names the turns of the runner's call in progress and charges them its time.

    After a call that raised, `turns` still names them until the next step begins."""

    def __init__(self, outbox: Outbox, clock: Clock) -> None:
        self._outbox = outbox
        self._clock = clock
        self.turns: Sequence[TurnId] = ()
        self._start = 0.0

    def clear(self) -> None:
        """To be called as each step begins."""
        self.turns = ()

    def about(self, turn: TurnId) -> None:
        """The runner is asked something small about `turn`: blamed if it raises, not charged."""
        self.turns = (turn,)

    def of(self, turns: Iterable[TurnId]) -> Self:
        """Around one call of the runner for `turns`; a turn with several inputs counts once.

        Calls do not nest."""
        self.turns = tuple(dict.fromkeys(turns))
        self._start = self._clock()
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(self, error: type[BaseException] | None, *args: object) -> None:
        if error is None:
            self._outbox.charge(self.turns, self._clock() - self._start)
            self.turns = ()
