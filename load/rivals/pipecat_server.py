"""A pipecat bot over local weights behind its WebSocket transport, in the rival's environment.

Usage: python pipecat_server.py SETTINGS.json: one process that serves every caller on ws://127.0.0.1:PORT/ws,
each with a pipeline of its own, as pipecat's own runner does. What a `Settings` file leaves out is
pipecat's default.
"""
# pyright: reportMissingImports=false

import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI, WebSocket
from loguru import logger
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.processors.frameworks.rtvi import RTVIObserverParams
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.piper.tts import PiperTTSService
from pipecat.services.whisper.stt import WhisperSTTService
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner


@dataclass(frozen=True)
class Settings:
    """`messages`: the system line and the example turns that a talk begins with. `smart_turn`: the
    default end-of-turn model; without it a turn ends with the silence alone."""

    port: int
    brain_port: int
    whisper: str
    voice: str
    messages: list[dict[str, str]]
    max_tokens: int
    stop_s: float
    smart_turn: bool = True
    compute_type: str = "default"


async def bot(socket: WebSocket, settings: Settings) -> None:
    """One talk, until the caller leaves."""
    transport = FastAPIWebsocketTransport(
        websocket=socket,
        params=FastAPIWebsocketParams(
            audio_in_enabled=True, audio_out_enabled=True, serializer=ProtobufFrameSerializer()
        ),
    )
    voice = Path(settings.voice)
    ears = WhisperSTTService(
        device="cpu",
        compute_type=settings.compute_type,
        settings=WhisperSTTService.Settings(model=settings.whisper),
    )
    brain = OpenAILLMService(
        api_key="none",
        base_url=f"http://127.0.0.1:{settings.brain_port}/v1",
        settings=OpenAILLMService.Settings(
            model="local",
            temperature=0.0,
            max_tokens=settings.max_tokens,
        ),
    )
    mouth = PiperTTSService(
        download_dir=voice.parent, settings=PiperTTSService.Settings(voice=voice.name.removesuffix(".onnx"))
    )
    # With no words to wait for, the turn ends when the detector has heard the silence.
    silence = UserTurnStrategies(stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.0)])
    context = LLMContextAggregatorPair(
        LLMContext([*settings.messages]),
        user_params=LLMUserAggregatorParams(
            vad_analyzer=SileroVADAnalyzer(params=VADParams(stop_secs=settings.stop_s)),
            user_turn_strategies=None if settings.smart_turn else silence,
        ),
    )
    steps = [transport.input(), ears, context.user(), brain, mouth, transport.output(), context.assistant()]
    # So that a caller can tell the wait for silence from the work.
    told = RTVIObserverParams(vad_user_speaking_enabled=True)
    worker = PipelineWorker(Pipeline(steps), params=PipelineParams(), rtvi_observer_params=told)

    @worker.rtvi.event_handler("on_client_ready")
    async def ready(rtvi) -> None:
        await rtvi.set_bot_ready()

    @transport.event_handler("on_client_disconnected")
    async def left(_transport, _socket) -> None:
        await worker.cancel()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()


def app(settings: Settings) -> FastAPI:
    """The bot behind /ws."""
    served = FastAPI()

    @served.get("/ready")
    async def ready() -> dict[str, bool]:
        return {"ready": True}

    @served.websocket("/ws")
    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        with suppress(RuntimeError):  # The caller left while the pipeline was being made.
            await bot(socket, settings)

    return served


if __name__ == "__main__":
    told = Settings(**json.loads(Path(sys.argv[1]).read_text()))
    # Debug lines cost it a tenth of its time.
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    uvicorn.run(app(told), host="127.0.0.1", port=told.port, log_level="warning")
