"""Ends an answer where one of the request's stop strings begins: nothing of it is shown or spoken.

A token whose text may be the beginning of a stop string is held until the next ones tell. Pure.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopVerdict:
    """After a token: the `safe` oldest of those held may go out. `stopped`: a stop string is there, and
    of the token that follows these only the first `shown` bytes are text of the answer."""

    safe: int
    stopped: bool = False
    shown: int = 0


class StopStrings:
    """One request's. A pack's `assemble` makes it where the request has stop strings (`Prompt.stops`).

    `token_bytes`: token id → bytes of its text."""

    def __init__(self, stops: Sequence[str], token_bytes: Callable[[int], bytes]) -> None:
        self._stops = [stop.encode() for stop in stops if stop]
        self._token_bytes = token_bytes
        self._held: deque[int] = deque()
        """Lengths in bytes of the tokens held."""
        self._text = b""
        """Their text."""

    def push(self, token: int) -> StopVerdict:
        """The next token of the answer, which is held from now on."""
        text = self._token_bytes(token)
        self._held.append(len(text))
        self._text += text
        starts = [start for stop in self._stops if (start := self._text.find(stop)) >= 0]
        end = min(starts) if starts else len(self._text) - self._longest_beginning()
        safe, gone = 0, 0
        while self._held and gone + self._held[0] <= end:
            gone += self._held.popleft()
            safe += 1
        self._text = self._text[gone:]
        return StopVerdict(safe, bool(starts), end - gone if starts else 0)

    def _longest_beginning(self) -> int:
        """Bytes at the end of the text that a stop string may begin with."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._text)), 0, -1):
            if any(stop.startswith(self._text[-length:]) for stop in self._stops):
                return length
        return 0
