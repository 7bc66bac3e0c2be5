"""The built-in functions, offered to the model of each turn and answered here.

A turn whose model calls one goes on in a further turn that knows the result; to its reader all of them are
one turn with one answer.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator
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
    function is wanted. Calls of the request's own go to the reader; then nothing is answered here."""

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
        while True:
            round_ = _Round()
            async for event in self._stream:
                if not round_.keeps(event):
                    yield self._shifted(event)
            if not round_.calls:
                self.over = True
                return
            self._go_on(round_)

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
        if self._count >= MAX_CALLS:
            return request
        taken = {spec.name for spec in request.tools}
        own = tuple(tool.spec for name, tool in _TOOLS.items() if name not in taken)
        return replace(request, tools=(*request.tools, *own))

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
    """What one turn gave."""

    def __init__(self) -> None:
        self.calls: list[m.ToolCall] = []
        self.text = ""
        self.samples = 0
        self.usage = m.Usage()
        self._foreign = False

    def keeps(self, event: TurnEvent) -> bool:
        """Account for `event`; True: it is not for the reader."""
        match event:
            case m.TextDelta(text):
                self.text += text
            case m.ToolCall(name):
                self._foreign |= name not in _TOOLS
                if name in _TOOLS and not self._foreign:
                    self.calls.append(event)
                    return True
            case m.TextDone(_, usage):
                self.usage = usage
                if self._foreign:
                    self.calls.clear()
                return bool(self.calls)
            case m.AudioDone(samples):
                self.samples = samples
                return bool(self.calls)
            case m.TurnDone():
                return bool(self.calls)
            case _:
                pass
        return False


def _sum(one: m.Usage, other: m.Usage) -> m.Usage:
    return m.Usage(
        one.prompt_tokens + other.prompt_tokens,
        one.cached_tokens + other.cached_tokens,
        one.output_tokens + other.output_tokens,
    )
