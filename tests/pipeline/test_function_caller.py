"""Built-in functions are answered where the turn is submitted; the reader sees one answer."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest
from msgspec.structs import replace

from voice_app import messages as m
from voice_app.errors import TurnCancelled
from voice_app.models.functions import TOOLS
from voice_app.pipeline.client import PipelineStatus
from voice_app.pipeline.functions import MAX_CALLS, FunctionCaller

Script = Callable[[m.TurnRequest], list[m.TurnEvent]]


class ScriptedTurns:
    """Runs turns whose events a test decides."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[m.TurnRequest] = []
        self.cancelled: list[m.TurnId] = []

    def submit(self, request: m.TurnRequest) -> "ScriptedTurn":
        self.asked.append(request)
        return ScriptedTurn(self.script(request))

    def cancel(self, turn: m.TurnId) -> None:
        self.cancelled.append(turn)

    def status(self) -> PipelineStatus:
        raise NotImplementedError


class ScriptedTurn:
    def __init__(self, events: list[m.TurnEvent]) -> None:
        self._events = events
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[m.TurnEvent]:
        for event in self._events:
            await asyncio.sleep(0)
            yield event

    async def aclose(self) -> None:
        self.closed = True


def said(text: str, samples: int, *calls: m.ToolCall) -> list[m.TurnEvent]:
    sound = m.AudioChunk(np.zeros(samples, np.float32), 24000, 0, (m.TextMark(len(text), samples),))
    return [
        m.TextDelta(text, (1,)),
        *([sound] if samples else []),
        *calls,
        m.TextDone("tool_call" if calls else "stop", m.Usage(10, 4, 3)),
        m.AudioDone(samples),
        m.TurnDone({}),
    ]


SUM = m.ToolCall("calculate", '{"expression": "12 * 7"}')
OWN = m.ToolSpec("lights", "Switches the lights.", "{}")
ASKED = m.TurnRequest(m.TurnId("s", "t", 2), (m.Message("user", (m.TextPart("12 times 7?"),)),), tools=(OWN,))


async def read(caller: FunctionCaller, request: m.TurnRequest) -> list[m.TurnEvent]:
    return [event async for event in caller.submit(request)]


def _result(request: m.TurnRequest) -> str:
    (part,) = request.messages[-1].parts
    assert isinstance(part, m.ToolResultPart)
    return part.output


async def test_one_answer_over_two_turns() -> None:
    turns = ScriptedTurns(lambda r: said("Well. ", 5, SUM) if len(r.messages) == 1 else said("It is 84.", 7))
    events = await read(FunctionCaller(turns), ASKED)
    assert "".join(e.text for e in events if isinstance(e, m.TextDelta)) == "Well. It is 84."
    assert not [e for e in events if isinstance(e, m.ToolCall)]
    assert [e.start for e in events if isinstance(e, m.AudioChunk)] == [0, 5]
    assert [e.marks for e in events if isinstance(e, m.AudioChunk)][1] == (m.TextMark(15, 12),)
    ends = [e for e in events if isinstance(e, m.TextDone | m.AudioDone | m.TurnDone)]
    assert ends == [m.TextDone("stop", m.Usage(20, 8, 6)), m.AudioDone(12), m.TurnDone({})]
    first, second = turns.asked
    assert {spec.name for spec in first.tools} == {"lights", *(tool.spec.name for tool in TOOLS)}
    assert second.turn.generation == 2
    assert second.turn.turn != first.turn.turn
    role, parts = second.messages[1].role, second.messages[1].parts
    assert (role, parts[0]) == ("assistant", m.TextPart("Well. "))
    assert "84" in _result(second) or "eighty" in _result(second)


async def test_a_call_that_makes_no_sense_is_told_to_the_model() -> None:
    wrong = m.ToolCall("calculate", '{"expression": "the moon"}')
    turns = ScriptedTurns(lambda r: said("", 0, wrong) if len(r.messages) == 1 else said("I can't.", 1))
    await read(FunctionCaller(turns), ASKED)
    assert _result(turns.asked[1]).startswith("error: expression")


async def test_the_requests_own_functions_go_to_the_reader() -> None:
    lights = m.ToolCall("lights", "{}")
    for calls in ([lights], [lights, SUM], [SUM, lights]):
        turns = ScriptedTurns(lambda r, calls=calls: said("Now.", 3, *calls))
        events = await read(FunctionCaller(turns), ASKED)
        assert [event for event in events if isinstance(event, m.ToolCall)] == [lights]
        assert len(turns.asked) == 1
        assert isinstance(events[-1], m.TurnDone)


async def test_a_function_of_the_request_may_have_a_built_in_ones_name() -> None:
    own = m.ToolSpec("calculate", "Asks the accountant.", "{}")
    turns = ScriptedTurns(lambda r: said("", 0, SUM))
    events = await read(FunctionCaller(turns), replace(ASKED, tools=(own,)))
    assert SUM in events
    assert len(turns.asked) == 1
    assert [spec for spec in turns.asked[0].tools if spec.name == "calculate"] == [own]


async def test_a_voice_that_ends_before_its_text_waits_for_the_call() -> None:
    """Text and voice come from different processes: nothing keeps them in order."""

    def ahead(events: list[m.TurnEvent]) -> list[m.TurnEvent]:
        done = next(event for event in events if isinstance(event, m.AudioDone))
        return [done, *(event for event in events if event is not done)]

    first, second = said("Well. ", 5, SUM), said("It is 84.", 7)
    turns = ScriptedTurns(lambda r: ahead(first) if len(r.messages) == 1 else ahead(second))
    events = await read(FunctionCaller(turns), ASKED)
    assert [e for e in events if isinstance(e, m.AudioDone)] == [m.AudioDone(12)]
    assert len([e for e in events if isinstance(e, m.AudioChunk)]) == 2


async def test_a_model_that_calls_without_end_is_offered_nothing_in_the_end() -> None:
    turns = ScriptedTurns(lambda r: said("", 0, SUM) if len(r.tools) > 1 else said("Enough.", 1))
    events = await read(FunctionCaller(turns), ASKED)
    assert len(turns.asked) == MAX_CALLS + 1
    assert turns.asked[-1].tools == (OWN,)
    assert isinstance(events[-1], m.TurnDone)


async def test_cancelled_between_two_turns() -> None:
    turns = ScriptedTurns(lambda r: said("", 0, SUM))
    caller = FunctionCaller(turns)
    stream = caller.submit(ASKED)
    caller.cancel(ASKED.turn)
    with pytest.raises(TurnCancelled):
        _ = [event async for event in stream]
    assert len(turns.asked) == 1


async def test_cancelling_reaches_the_turn_that_runs() -> None:
    turns = ScriptedTurns(lambda r: said("Well. ", 5, SUM) if len(r.messages) == 1 else said("It is 84.", 7))
    caller = FunctionCaller(turns)
    async for event in caller.submit(ASKED):
        if isinstance(event, m.TextDelta) and event.text == "It is 84.":
            caller.cancel(ASKED.turn)
            break
    assert turns.cancelled[-1] == turns.asked[1].turn


@pytest.mark.parametrize("choice", ["none", "required", "lights"])
async def test_nothing_is_offered_where_the_choice_is_made(choice: str) -> None:
    turns = ScriptedTurns(lambda r: said("Hello.", 1))
    request = m.TurnRequest(ASKED.turn, ASKED.messages, tools=(OWN,), tool_choice=choice)
    await read(FunctionCaller(turns), request)
    assert turns.asked == [request]


def test_no_model_library_comes_with_it() -> None:
    code = "import sys, voice_app.pipeline.functions; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
