"""Whether a server's pipeline is at rest: then work on a turn that may go on costs nobody anything."""

from voice_app.messages import TurnId

SETTLES_S = 0.2
"""A turn that was cut short may be in a call, which is made to its end: of the prompt, 0.1 s and more."""


class Occupancy:
    """The turns of all talks of one server that are in its pipeline. Time is passed in."""

    def __init__(self) -> None:
        self._turns: set[TurnId] = set()
        self._settling: dict[str, float] = {}
        """Sessions whose work was cut short, and until when it may still be in a call."""

    @property
    def turns(self) -> int:
        """How many there are."""
        return len(self._turns)

    def idle(self, now: float, session: str) -> bool:
        """Nothing is being worked on, what was cut short included, but for turns of `session` itself."""
        self._forget(now)
        return self._settling.keys() <= {session} and all(turn.session == session for turn in self._turns)

    def enter(self, turn: TurnId) -> None:
        """It was submitted."""
        self._turns.add(turn)

    def done(self, turn: TurnId) -> None:
        """The pipeline has made all of it."""
        self._turns.discard(turn)

    def leave(self, turn: TurnId, now: float) -> None:
        """Nobody waits for it any more; it was cut short, unless it is done."""
        if turn in self._turns:
            self._turns.remove(turn)
            self._forget(now)
            self._settling[turn.session] = now + SETTLES_S

    def _forget(self, now: float) -> None:
        """What has settled."""
        if self._settling:
            self._settling = {name: until for name, until in self._settling.items() if now < until}
