"""Function calls in an answer, in the form that the chat template taught the model. Pure.

    <tool_call>
    {"name": NAME, "arguments": {…}}
    </tool_call>

Nothing of a call is shown or spoken. What follows on one is no answer, for the model has not seen the result
yet: only further calls count. What is no call of a function on offer is text like any other; of one that the
answer's end cuts off, nothing is.
"""

import json
from collections.abc import Collection, Sequence

from voice_app.messages import ToolCall
from voice_app.schedulers.answer_reader import HeldText, Reading, TokenBytes

OPENING, CLOSING = b"<tool_call>", b"</tool_call>"
FREE = ("auto", "none")
"""Choices that demand no call."""


def demanded(names: Sequence[str], choice: str) -> tuple[str, ...]:
    """The functions of `names` of which one has to be called: by `choice`, "required" or one of them."""
    return tuple(name for name in names if choice in ("required", name)) if choice not in FREE else ()


def opening_of(names: Sequence[str]) -> str:
    """How the call of one of `names` begins, as far as that is sure. It ends where the next token would begin
    by itself: with the space before a value, if there is one."""
    call = f'{OPENING.decode()}\n{{"name": '
    return (
        f'{call}{json.dumps(names[0], ensure_ascii=False)}, "arguments":' if len(names) == 1 else f'{call}"'
    )


class ToolCalls:
    """An `AnswerReader`. `names`: the functions on offer. `stops`: stop strings, for what is no call.

    No token may reach from one call into the next; the published tokenizer has a token for each mark."""

    def __init__(self, names: Collection[str], stops: Sequence[str], token_bytes: TokenBytes) -> None:
        self.called = False
        self._names = names
        self._stops = [stop.encode() for stop in stops if stop]
        self._held = HeldText(token_bytes)
        self._rest = b""
        """After the first call: text that was not understood yet."""

    def push(self, token: int) -> Reading:
        held = self._held
        held.push(token)
        if self.called:
            return self._go_on()
        text, begin = held.text, 0
        while True:
            start = text.find(OPENING, begin)
            stop = held.first(self._stops)
            if stop is not None and (start < 0 or stop < (start, OPENING)):
                return held.stopped(stop[0])
            if start < 0:
                return Reading(held.release(len(text) - held.beginning([OPENING, *self._stops])))
            end = text.find(CLOSING, start)
            if end < 0:
                return Reading(held.release(start))
            begin = end + len(CLOSING)
            call = self._parse(text[start + len(OPENING) : end])
            if call is not None:
                return self._first_call(call, start, text[begin:])

    def end(self) -> Reading:
        start = self._held.text.find(OPENING)
        return self._held.stopped(start if start >= 0 else len(self._held.text))

    def _first_call(self, call: ToolCall, start: int, rest: bytes) -> Reading:
        """It begins at byte `start` of the held text; `rest` lies behind it."""
        self.called, self._rest = True, rest
        before = len(self._held.text)
        safe = self._held.release(start)
        shown = start - (before - len(self._held.text))
        return Reading(safe, shown, self._held.release(len(self._held.text)), call)

    def _go_on(self) -> Reading:
        self._rest = (self._rest + self._held.text).lstrip()
        count = self._held.release(len(self._held.text))
        if not self._rest.startswith(OPENING[: len(self._rest)]):
            return Reading(dropped=count, finish_reason="tool_call")
        end = self._rest.find(CLOSING)
        if end < 0:
            return Reading(dropped=count)
        call = self._parse(self._rest[len(OPENING) : end])
        self._rest = self._rest[end + len(CLOSING) :]
        return Reading(dropped=count, call=call, finish_reason=None if call else "tool_call")

    def _parse(self, text: bytes) -> ToolCall | None:
        try:
            said = json.loads(text)
            arguments = said.get("arguments", {}) if isinstance(said, dict) else None
            # Some models write the arguments as a string that holds JSON.
            given = json.loads(arguments) if isinstance(arguments, str) else arguments
        except (ValueError, RecursionError):
            return None
        if not isinstance(given, dict) or said.get("name") not in self._names:
            return None
        return ToolCall(said["name"], json.dumps(given, ensure_ascii=False))
