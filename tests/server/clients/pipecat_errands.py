"""pipecat's OpenAI realtime service, unmodified, as a caller that types: a tool call, a picture, a cancelled
answer, a reconnection. Runs in a virtual environment of its own.

Usage: python pipecat_errands.py PORT QUESTION.wav (16-bit, mono, 24 kHz): prints what happened as one line of
JSON.
"""
# pyright: reportMissingImports=false

import asyncio
import json
import sys
from typing import Any

from pipecat.adapters.schemas.function_schema import FunctionSchema
from pipecat.adapters.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    EndFrame,
    InputAudioRawFrame,
    InputImageRawFrame,
    InterruptionFrame,
    LLMMessagesAppendFrame,
    LLMRunFrame,
    LLMUpdateSettingsFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat_talk import PACKET, RATE, Ear, sound

LIGHT = FunctionSchema(
    name="set_light",
    description="Switch the light on or off",
    properties={"on": {"type": "boolean"}},
    required=["on"],
)
SIZE = (64, 48)


def settings(tool_choice: str) -> OpenAIRealtimeLLMService.Settings:
    audio = events.AudioConfiguration(input=events.AudioInput(turn_detection=False))
    properties = events.SessionProperties(audio=audio, tool_choice=tool_choice)
    return OpenAIRealtimeLLMService.Settings(model="local", session_properties=properties)


class Errands:
    def __init__(self, port: int) -> None:
        self.calls: list[Any] = []
        self.ear = Ear()
        self.service = OpenAIRealtimeLLMService(
            api_key="none", base_url=f"ws://127.0.0.1:{port}/v1/realtime", settings=settings("required")
        )
        self.service.register_function("set_light", self._set_light)
        tools = ToolsSchema(standard_tools=[LIGHT])
        aggregators = LLMContextAggregatorPair(
            LLMContext([{"role": "user", "content": "Switch the light on."}], tools)
        )
        self.user = aggregators.user()
        chain = [self.user, self.service, self.ear, aggregators.assistant()]
        rates = PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE)
        self.task = PipelineTask(Pipeline(chain), params=rates)

    async def _set_light(self, params: FunctionCallParams) -> None:
        self.calls.append(dict(params.arguments))
        await params.result_callback("The light is on.")

    async def say(self, text: str) -> None:
        """To the service itself: with one that is a talk, the user's aggregator only keeps messages."""
        message = {"role": "user", "content": text}
        await self.user.push_frame(LLMMessagesAppendFrame([message], run_llm=True))

    async def talks(self, pcm: bytes) -> None:
        """Hold the button and talk: the client itself says when a turn begins and ends."""
        await self.user.push_frame(UserStartedSpeakingFrame())
        for start in range(0, len(pcm), PACKET * 2):
            await self.user.push_frame(InputAudioRawFrame(pcm[start : start + PACKET * 2], RATE, 1))
        await self.user.push_frame(UserStoppedSpeakingFrame())

    async def answer(self, *, whole: bool = True) -> str:
        """What is heard from now on; if not `whole`, until something is."""
        before = len(self.ear.text)
        async with asyncio.timeout(60):
            while len(self.ear.text) == before:
                await self.ear.more()
        if whole:
            await self.ear.until_quiet(1.5)
        return "".join(self.ear.text[before:]).strip()

    async def run(self, question: bytes) -> dict[str, Any]:
        running = asyncio.create_task(PipelineRunner(handle_sigint=False).run(self.task))
        await self.task.queue_frame(LLMRunFrame())
        done = await self.answer()
        await self.task.queue_frame(LLMUpdateSettingsFrame(delta=settings("auto")))
        picture = bytes(range(256)) * (SIZE[0] * SIZE[1] * 3 // 256)
        await self.task.queue_frame(InputImageRawFrame(image=picture, size=SIZE, format="RGB"))
        await self.say("What do you see?")
        seen = await self.answer()
        await self.say("Tell me a story.")
        await self.answer(whole=False)
        await self.task.queue_frame(InterruptionFrame())
        await self.ear.until_quiet(1.0)
        await self.service.reset_conversation()
        await self.talks(question)
        told = await self.answer()
        await self.task.queue_frame(EndFrame())
        await asyncio.wait_for(running, 60)
        return {"calls": self.calls, "errors": self.ear.errors, "done": done, "seen": seen, "told": told}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(Errands(int(sys.argv[1])).run(sound(sys.argv[2])))))
