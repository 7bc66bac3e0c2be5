"""What reads an answer's text as it is sampled and says which tokens may go out. Pure."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from voice_app.messages import ToolCall

TokenBytes = Callable[[int], bytes]
"""Token id → bytes of its text."""


@dataclass(frozen=True, slots=True)
class Reading:
    """After a token. Of those held, oldest first: `safe` may go out; of the next one the first `shown` bytes
    are text; `dropped`, that one included, are no text of the answer but, where they made one, a `call`.
    `finish_reason`: the answer ends here."""

    safe: int = 0
    shown: int = 0
    dropped: int = 0
    call: ToolCall | None = None
    finish_reason: str | None = None


class AnswerReader(Protocol):
    """One answer's. A pack's `assemble` makes it where the request wants one (`Prompt.reader`)."""

    @property
    def called(self) -> bool:
        """A function was called: the answer's end is a "tool_call"."""
        ...

    def push(self, token: int) -> Reading:
        """The next token of the answer, which is held from now on."""
        ...

    def end(self) -> Reading:
        """No token follows. Of those held `safe` and `shown` are text; the rest is dropped."""
        ...


class HeldText:
    """The text of the tokens that are held."""

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._token_bytes = token_bytes
        self._lengths: deque[int] = deque()
        self.text = b""

    def push(self, token: int) -> None:
        """Hold one more."""
        text = self._token_bytes(token)
        self._lengths.append(len(text))
        self.text += text

    def first(self, patterns: Sequence[bytes]) -> tuple[int, bytes] | None:
        """Where the first of `patterns` begins, and which that is."""
        found = [(at, pattern) for pattern in patterns if (at := self.text.find(pattern)) >= 0]
        return min(found, default=None)

    def beginning(self, patterns: Sequence[bytes]) -> int:
        """Bytes at the end of the text that one of `patterns` may begin with."""
        longest = max((len(pattern) for pattern in patterns), default=1) - 1
        for length in range(min(longest, len(self.text)), 0, -1):
            if any(pattern.startswith(self.text[-length:]) for pattern in patterns):
                return length
        return 0

    def release(self, end: int) -> int:
        """Hold the tokens that lie before byte `end` no more; returns how many those are."""
        count, gone = 0, 0
        while self._lengths and gone + self._lengths[0] <= end:
            gone += self._lengths.popleft()
            count += 1
        self.text = self.text[gone:]
        return count

    def stopped(self, start: int) -> Reading:
        """The answer ends at byte `start`, where what is no text of it begins."""
        before = len(self.text)
        safe = self.release(start)
        return Reading(safe, shown=start - (before - len(self.text)), finish_reason="stop")
