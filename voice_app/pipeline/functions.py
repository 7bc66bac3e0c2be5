"""The built-in functions, offered to the model of each turn and answered here.

A turn whose model calls one goes on in a further turn that knows the result; to its reader all of them are
one turn with one answer.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace

from voice_app import messages as m
from voice_app.errors import InputError, TurnCancelled
from voice_app.messages import TurnEvent, TurnId, TurnRequest
from voice_app.models.functions import TOOLS
from voice_app.pipeline.client import PipelineStatus

MAX_CALLS = 4
"""Turns that may follow on one another; in the last of them nothing is offered."""

_TOOLS = {tool.spec.name: tool for tool in TOOLS}


class Events(Protocol):
    """One turn's events, as `TurnStream` has them."""

    def __aiter__(self) -> AsyncIterator[TurnEvent]: ...

    async def aclose(self) -> None: ...


class Turns(Protocol):
    """What runs turns: `PipelineClient`."""

    def submit(self, request: TurnRequest) -> Events: ...

    def status(self) -> PipelineStatus: ...

    def cancel(self, turn: TurnId) -> None: ...


class FunctionCaller:
    """A pipeline (`Turns`) that answers the calls of built-in functions itself.

    Offered are those whose names the request's own functions do not have, and none where it says which
    function is wanted. Calls of the request's own go to the reader; then nothing is answered here, and calls
    of built-in ones beside them are left out."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._running: dict[TurnId, _Answer] = {}

    def submit(self, request: TurnRequest) -> Events:
        """As `PipelineClient.submit`."""
        if request.tool_choice != "auto":
            return self._turns.submit(request)
        answer = _Answer(self._turns, request)
        self._running = {turn: other for turn, other in self._running.items() if not other.over}
        self._running[request.turn] = answer
        return answer

    def status(self) -> PipelineStatus:
        return self._turns.status()

    def cancel(self, turn: TurnId) -> None:
        """As `PipelineClient.cancel`."""
        self._turns.cancel(turn)
        for own, answer in list(self._running.items()):
            if own.key == turn.key and own.generation <= turn.generation:
                del self._running[own]
                answer.cancel()


class _Answer:
    """One answer, over as many turns as it takes."""

    def __init__(self, turns: Turns, request: TurnRequest) -> None:
        """Submits the first of them, and raises what that raises."""
        self.over = False
        self._turns = turns
        self._asked = request
        self._request = request
        self._count = 0
        self._chars = 0
        self._samples = 0
        self._usage = m.Usage()
        self._offered: frozenset[str] = frozenset()
        """The built-in functions that the model of the running turn may call."""
        self._stream = turns.submit(self._offering(request))

    def __aiter__(self) -> AsyncIterator[TurnEvent]:
        return self._events()

    async def aclose(self) -> None:
        self.over = True
        await self._stream.aclose()

    def cancel(self) -> None:
        """No further turn follows; the one that runs ends with TurnCancelled."""
        self.over = True
        self._turns.cancel(self._request.turn)

    async def _events(self) -> AsyncGenerator[TurnEvent]:
        try:
            while True:
                round_ = _Round(self._offered)
                async for event in self._stream:
                    for shown in round_.take(event):
                        yield self._shifted(shown)
                if not round_.calls:
                    return
                self._go_on(round_)
        finally:
            self.over = True

    def _go_on(self, round_: "_Round") -> None:
        """Submit the turn that knows what the functions gave."""
        if self.over:
            raise TurnCancelled(f"turn {self._asked.turn.turn} was cancelled")
        self._chars += len(round_.text)
        self._samples += round_.samples
        self._usage = _sum(self._usage, round_.usage)
        self._count += 1
        asked = self._asked.turn
        calls = [
            m.ToolCallPart(f"call_{self._count}_{place}", call.name, call.arguments)
            for place, call in enumerate(round_.calls)
        ]
        said: tuple[m.Part, ...] = (m.TextPart(round_.text),) if round_.text else ()
        results = tuple(m.ToolResultPart(part.call_id, self._result(part)) for part in calls)
        self._request = replace(
            self._request,
            turn=TurnId(asked.session, f"{asked.turn}.{self._count}", asked.generation),
            messages=(
                *self._request.messages,
                m.Message("assistant", (*said, *calls)),
                m.Message("user", results),
            ),
        )
        self._stream = self._turns.submit(self._offering(self._request))

    def _offering(self, request: TurnRequest) -> TurnRequest:
        taken = {spec.name for spec in request.tools}
        self._offered = frozenset(_TOOLS.keys() - taken) if self._count < MAX_CALLS else frozenset()
        built_in = [tool.spec for name, tool in _TOOLS.items() if name in self._offered]
        return replace(request, tools=(*request.tools, *built_in))

    def _result(self, call: m.ToolCallPart) -> str:
        """What the function gives, or what is wrong with the call: the model may correct itself."""
        now = self._asked.now
        try:
            time = datetime.fromisoformat(now) if now else datetime.now().astimezone()
            return _TOOLS[call.name].call(json.loads(call.arguments), time)
        except (InputError, ValueError) as error:
            return f"error: {error}"

    def _shifted(self, event: TurnEvent) -> TurnEvent:
        """As part of the whole answer."""
        match event:
            case m.AudioChunk():
                marks = [m.TextMark(k.chars + self._chars, k.sample + self._samples) for k in event.marks]
                return replace(event, start=event.start + self._samples, marks=tuple(marks))
            case m.AudioDone(samples):
                return m.AudioDone(samples + self._samples)
            case m.TextDone():
                return replace(event, usage=_sum(self._usage, event.usage))
            case _:
                return event


class _Round:
    """What one turn gave. `offered`: the built-in functions that it may have called."""

    def __init__(self, offered: Collection[str]) -> None:
        self.text = ""
        self.samples = 0
        self.usage = m.Usage()
        self._offered = offered
        self._built_in: list[m.ToolCall] = []
        self._foreign = False
        self._text_over = False
        self._voice: m.AudioDone | None = None
        """It came before the end of the text; only then it is known whether it is the answer's."""

    @property
    def calls(self) -> Sequence[m.ToolCall]:
        """Those that are answered here."""
        return () if self._foreign else self._built_in

    def take(self, event: TurnEvent) -> Sequence[TurnEvent]:
        """Account for `event`; returns what is there for the reader now."""
        match event:
            case m.TextDelta(text):
                self.text += text
            case m.ToolCall(name) if name in self._offered:
                self._built_in.append(event)
                return ()
            case m.ToolCall():
                self._foreign = True
            case m.TextDone(_, usage):
                self.usage, self._text_over = usage, True
                ends = (event,) if self._voice is None else (event, self._voice)
                return () if self.calls else ends
            case m.AudioDone(samples):
                self.samples = samples
                if not self._text_over:
                    self._voice = event
                    return ()
                return () if self.calls else (event,)
            case m.TurnDone():
                return () if self.calls else (event,)
            case _:
                pass
        return (event,)


def _sum(one: m.Usage, other: m.Usage) -> m.Usage:
    return m.Usage(
        one.prompt_tokens + other.prompt_tokens,
        one.cached_tokens + other.cached_tokens,
        one.output_tokens + other.output_tokens,
    )
