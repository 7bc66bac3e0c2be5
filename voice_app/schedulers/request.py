"""A request in `OmniScheduler`: the one home of its state."""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from voice_app.messages import TurnId, Usage
from voice_app.schedulers.base import Prompt, StepOutput


class Phase(StrEnum):
    """Where a request stands; it goes back to WAITING when it is preempted."""

    WAITING = "waiting"
    """For pages, or for more of its prompt; holds none."""
    PREFILLING = "prefilling"
    """Several positions to compute before its next token."""
    DECODING = "decoding"
    """One position to compute: the token before."""


@dataclass(slots=True, eq=False)
class Request:
    """`OmniScheduler` sets `admitted` and `table` on admission and preemption, and advances
    `computed` and `outputs` after each step. Only the overlapped loop has steps under way while it
    chooses the next; in the plain one `under_way` and `expected` stay 0."""

    turn: TurnId
    speech: bool
    prompt: Prompt
    max_outputs: int
    """Tokens after which the answer ends with finish_reason "length"."""
    complete: bool = True
    """Whether all of the prompt is there. Before, no token is sampled."""
    least_part: int = 1
    """Before, fewer positions than this, beside the last, are not computed."""
    outputs: list[int] = field(default_factory=list)
    held: deque[StepOutput] = field(default_factory=deque)
    """The newest of them, not sent yet: a stop string may begin there."""
    admitted: bool = False
    table: list[int] = field(default_factory=list)
    """The block table: page numbers in order of position."""
    computed: int = 0
    """Positions, from the first, whose KV is in the pages."""
    under_way: int = 0
    """Positions behind them that a step under way computes."""
    expected: int = 0
    """Tokens that a step under way will give: 0 or 1."""
    lives: int = 0
    """How often its pages were taken back: a step that was chosen before has computed for nobody."""
    cached_tokens: int | None = None
    """Prompt positions found in the prefix cache at the first admission."""

    @property
    def prompt_length(self) -> int:
        return len(self.prompt.keys)

    @property
    def length(self) -> int:
        """Positions that there are: the prompt, all tokens sampled, and one that is sure to come."""
        return len(self.prompt.keys) + len(self.outputs) + self.expected

    @property
    def pending(self) -> int:
        """Positions that are to be computed. The last of a prompt that still grows is left: it may turn out
        to be the one whose next token is wanted."""
        left = self.length - self.computed - self.under_way
        if self.complete:
            return left
        return left - 1 if left > self.least_part else 0

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do for it until its prompt grows."""
        return not self.complete and not self.pending and not self.under_way

    @property
    def ending(self) -> bool:
        """Whether the token that is to come is the last: no further step is wanted."""
        return len(self.outputs) + self.expected >= self.max_outputs

    @property
    def phase(self) -> Phase:
        if not self.admitted:
            return Phase.WAITING
        answering = bool(self.outputs) or self.expected > 0
        return Phase.DECODING if answering and self.pending == 1 else Phase.PREFILLING

    def keys(self, count: int) -> list[int]:
        """Keys of the first `count` positions, none of which is of a token still to come."""
        return [*self.prompt.keys, *self.outputs][:count]

    def usage(self) -> Usage:
        """Token counts so far; an EOS is not counted."""
        return Usage(self.prompt_length, self.cached_tokens or 0, len(self.outputs))
