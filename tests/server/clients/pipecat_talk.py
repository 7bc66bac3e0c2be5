"""pipecat's OpenAI realtime service, unmodified, as a caller. Runs in a virtual environment of its own.

Usage: python pipecat_talk.py PORT FIRST.wav SECOND.wav: greets, asks the first question (spoken in real
time), asks the second over the answer to it, and prints what happened as one line of JSON. Files: 24 kHz,
16 bit.
"""
# pyright: reportMissingImports=false

import asyncio
import json
import sys
import time
import wave
from typing import Any

from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMRunFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService

RATE = 24_000
PACKET = RATE // 50


class Ear(FrameProcessor):
    """Notes what the service says, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.audio: list[tuple[float, int]] = []
        self.text: list[str] = []
        self.errors: list[str] = []
        self.interruptions: list[float] = []
        self._more = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        match frame:
            case TTSAudioRawFrame():
                self.audio.append((time.monotonic(), len(frame.audio)))
                self._more.set()
            case TTSTextFrame():
                self.text.append(frame.text)
                self._more.set()
            case InterruptionFrame():
                self.interruptions.append(time.monotonic())
            case ErrorFrame():
                self.errors.append(frame.error)
        await self.push_frame(frame, direction)

    async def more(self) -> None:
        """Something new was heard."""
        self._more.clear()
        await self._more.wait()

    async def until_audio(self, after: float, timeout_s: float = 60.0) -> float:
        async with asyncio.timeout(timeout_s):
            while True:
                later = [at for at, _ in self.audio if at > after]
                if later:
                    return later[0]
                await self.more()

    async def until_quiet(self, seconds: float = 2.0) -> None:
        try:
            while True:
                await asyncio.wait_for(self.more(), seconds)
        except TimeoutError:
            return


def sound(path: str) -> bytes:
    with wave.open(path) as file:
        return file.readframes(file.getnframes())


async def speak(task: PipelineTask, pcm: bytes) -> None:
    begin = time.monotonic()
    for number, start in enumerate(range(0, len(pcm), PACKET * 2), 1):
        await task.queue_frame(InputAudioRawFrame(pcm[start : start + PACKET * 2], RATE, 1))
        await asyncio.sleep(max(0.0, begin + number * 0.02 - time.monotonic()))


async def talk(port: int, first: bytes, second: bytes) -> dict[str, Any]:
    properties = events.SessionProperties(
        instructions="Answer in one short sentence.",
        audio=events.AudioConfiguration(
            input=events.AudioInput(
                transcription=events.InputAudioTranscription(model="whisper-1"),
                turn_detection=events.TurnDetection(silence_duration_ms=500),
            )
        ),
    )
    service = OpenAIRealtimeLLMService(
        api_key="none",
        base_url=f"ws://127.0.0.1:{port}/v1/realtime",
        settings=OpenAIRealtimeLLMService.Settings(model="local", session_properties=properties),
    )
    context = LLMContext([{"role": "user", "content": "Hello! How are you today?"}])
    aggregators = LLMContextAggregatorPair(context)
    ear = Ear()
    pipeline = Pipeline([aggregators.user(), service, ear, aggregators.assistant()])
    task = PipelineTask(
        pipeline, params=PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE)
    )
    running = asyncio.create_task(PipelineRunner(handle_sigint=False).run(task))
    silence = bytes(RATE * 2)
    await task.queue_frame(LLMRunFrame())
    await ear.until_audio(0.0)
    await ear.until_quiet()
    greeting = "".join(ear.text)

    asked = time.monotonic()
    await speak(task, first + silence)
    answered = await ear.until_audio(asked)
    spoken_at = time.monotonic()
    await speak(task, second + silence)
    interrupted = [at for at in ear.interruptions if at > answered]
    again = await ear.until_audio(max(interrupted, default=spoken_at) + 0.3)
    await ear.until_quiet()
    await task.queue_frame(EndFrame())
    await asyncio.wait_for(running, 60)
    late = [at for at, _ in ear.audio if interrupted and interrupted[0] + 0.05 < at < again]
    return {
        "greeting": greeting,
        "text": "".join(ear.text),
        "audio_s": sum(size for _, size in ear.audio) / 2 / RATE,
        "errors": ear.errors,
        "interrupted": bool(interrupted),
        "late": len(late),
    }


if __name__ == "__main__":
    result = asyncio.run(talk(int(sys.argv[1]), sound(sys.argv[2]), sound(sys.argv[3])))
    print(json.dumps(result))
