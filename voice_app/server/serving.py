"""`voice-app serve`: the pipeline's processes, the store, the HTTP server, and their orderly end."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

import numpy as np
import uvicorn

from voice_app import config as configs
from voice_app import log as logs
from voice_app.config import PipelineConfig
from voice_app.errors import ConfigError
from voice_app.pipeline.client import PipelineClient
from voice_app.pipeline.functions import FunctionCaller
from voice_app.server import event_loop
from voice_app.server.app import create_app
from voice_app.server.auth import Keys, check_address, load_keys
from voice_app.server.end_of_turn import EndOfTurn
from voice_app.server.hub import Hub, Tracer, make_hub
from voice_app.server.protocol.voices import STAND_INS
from voice_app.server.settings import DEFAULT_INSTRUCTIONS, ServerSettings
from voice_app.server.store.embedded import EmbeddedRedis, free_folder
from voice_app.server.store.redis_store import RedisStore

log = logging.getLogger(__name__)

SEND_BUFFER_BYTES = 32 << 10
"""Of each connection in the kernel, which makes it twice that, a second of audio: with the default of
megabytes, a client that does not read would still be sent a minute of audio that nobody stops any more."""
PACKS_WITH_WORDS = ("local",)
"""Packs that tell what the user was heard to say."""
INSTRUCTED_PACKS = ("local",)
"""Packs that tell their model what it is, by examples: told once more, a small one answers worse."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What `serve` is told beside the pipeline. `redis`: a URL; None: a Redis of our own over `data`.
    `keys`: a file (`voice_app.server.auth.load_keys`); `store_keys`: they are in the store. `open_to_all`: no
    keys, though others can reach it. `turn_model`: smart-turn's ONNX file, for semantic_vad. `functions`: the
    model may call the built-in ones."""

    host: str = "127.0.0.1"
    port: int = 8000
    redis: str | None = None
    data: Path | None = None
    keys: Path | None = None
    store_keys: bool = False
    open_to_all: bool = False
    turn_model: Path | None = None
    functions: bool = False
    settings: ServerSettings = field(default_factory=ServerSettings)


def serve(config: PipelineConfig, options: ServeOptions) -> int:
    """Serve until SIGTERM or SIGINT; gives the exit code. Raises ConfigError if the address cannot be had,
    and whatever keeps the pipeline or the store from starting."""
    logs.set_up()
    keys = load_keys(options.keys) if options.keys else Keys({}, in_store=options.store_keys)
    check_address(options.host, has_keys=bool(keys), open_to_all=options.open_to_all)
    with listen(options.host, options.port) as listener:
        event_loop.run(_serve(config, options, keys, listener))
    return 0


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on the address. Raises ConfigError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--host {host}: {error.strerror or error}", param="host") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    try:
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"{host}:{port} cannot be listened on ({error.strerror or error}): choose another with --port",
            param="port",
        ) from error
    return listener


class _Server(uvicorn.Server):
    """Leaves it to `stop` what a signal means."""

    def __init__(self, config: uvicorn.Config, stop: Callable[[], object]) -> None:
        super().__init__(config)
        self._stop = stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._stop()


async def _serve(config: PipelineConfig, options: ServeOptions, keys: Keys, listener: socket.socket) -> None:
    pipeline = PipelineClient(config, report=_report)
    settings = _settings(config, options)
    async with _store(options) as store:
        hub = make_hub(FunctionCaller(pipeline) if options.functions else pipeline, settings, keys, store)
        if options.turn_model is not None:
            hub.judge = _judge(options.turn_model)
        hub.tracer = _tracer()
        if not keys:
            _report("no API keys: everybody who can reach this server may use it")
        try:
            await _run(pipeline, hub, listener)
        finally:
            if hub.tracer is not None:
                hub.tracer.close()


def _tracer() -> Tracer | None:
    """Where the environment says where traces go. Raises ConfigError if OpenTelemetry is not there."""
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return None
    try:
        from voice_app.server.tracing import TurnTracer
    except ImportError as error:
        raise ConfigError(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is missing: install voice-app[otel]"
        ) from error
    return TurnTracer()


def _judge(model: Path) -> Callable[[np.ndarray], Awaitable[float]]:
    """The end-of-turn model, beside the event loop."""
    end_of_turn = EndOfTurn(model)
    thread = ThreadPoolExecutor(1, thread_name_prefix="end of turn")

    async def judge(samples: np.ndarray) -> float:
        return await asyncio.get_running_loop().run_in_executor(thread, end_of_turn.probability, samples)

    return judge


def _settings(config: PipelineConfig, options: ServeOptions) -> ServerSettings:
    """The options' settings for this pack."""
    given, pack = options.settings, config.pack.pack
    talk = replace(
        given.talk,
        model=pack,
        instructions=given.talk.instructions or ("" if pack in INSTRUCTED_PACKS else DEFAULT_INSTRUCTIONS),
        transcribes=pack in PACKS_WITH_WORDS,
        stand_in_voices=STAND_INS.get(pack, frozenset()),
        semantic_vad=options.turn_model is not None,
    )
    return replace(given, host=options.host, port=options.port, talk=talk)


@asynccontextmanager
async def _store(options: ServeOptions) -> AsyncIterator[RedisStore]:
    """The session store, with a Redis of our own if none is named."""
    embedded = None
    url = options.redis
    if url is None:
        embedded = EmbeddedRedis(options.data or free_folder(configs.home(), "redis"))
        url = await embedded.start()
    store = RedisStore(url, options.settings.talk_ttl_s)
    try:
        await store.start()
        yield store
    finally:
        await store.stop()
        if embedded is not None:
            await embedded.stop()


async def _run(pipeline: PipelineClient, hub: Hub, listener: socket.socket) -> None:
    """The HTTP server is there at once and says that it is not ready; talks begin when the pipeline is."""
    stopped, hurried = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    settings = hub.settings
    http = uvicorn.Config(
        create_app(pipeline, settings, hub),
        log_config=None,
        access_log=False,
        ws_max_size=settings.max_message_bytes,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=5,
    )

    def stop() -> None:
        """The first signal lets turns end, the second does not."""
        loop.call_soon_threadsafe((hurried if stopped.is_set() else stopped).set)

    server = _Server(http, stop)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    starting = asyncio.create_task(pipeline.start(), name="pipeline")
    waiting = asyncio.create_task(stopped.wait(), name="stop")
    try:
        await asyncio.wait((serving, starting, waiting), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            event_loop.keep_what_is_loaded()
            address, port = listener.getsockname()[:2]
            _report(f"ready: http://{address}:{port} (ws://{address}:{port}/v1/realtime)")
            await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
        _report("stopping: turns in progress may end")
        draining = asyncio.create_task(hub.drain(settings.stop_timeout_s), name="drain")
        hurrying = asyncio.create_task(hurried.wait(), name="hurry")
        await asyncio.wait((draining, hurrying), return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        hurrying.cancel()
    finally:
        server.should_exit = True
        starting.cancel()
        waiting.cancel()
        await asyncio.gather(serving, starting, waiting, return_exceptions=True)
        await pipeline.stop()


def _report(line: str) -> None:
    """What the server is doing, for whoever started it."""
    log.info("%s", line)
