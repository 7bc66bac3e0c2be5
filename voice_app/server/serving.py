"""`voice-app serve`: the pipeline's processes, the HTTP server in front of them, and their orderly end."""

import asyncio
import logging
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from voice_app import log as logs
from voice_app.config import PipelineConfig
from voice_app.errors import ConfigError
from voice_app.pipeline.client import PipelineClient
from voice_app.server.app import create_app
from voice_app.server.settings import ServerSettings, TalkSettings

log = logging.getLogger(__name__)

SEND_BUFFER_BYTES = 128 << 10
"""Of each connection in the kernel: with the system's default of megabytes, a client that does not read would
still be sent a minute of audio that nobody stops any more."""


def serve(config: PipelineConfig, *, host: str = "127.0.0.1", port: int = 8000) -> int:
    """Serve until SIGTERM or SIGINT; gives the exit code. Raises ConfigError if the address cannot be had,
    and whatever keeps the pipeline from starting."""
    logs.set_up()
    settings = ServerSettings(host=host, port=port, talk=TalkSettings(model=config.pack.pack))
    with listen(host, port) as listener:
        asyncio.run(_serve(config, settings, listener, print_line))
    return 0


def print_line(line: str) -> None:
    """What the server is doing, for whoever started it."""
    log.info("%s", line)


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address; it takes no connections yet."""
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

    def __init__(self, config: uvicorn.Config, stop: Callable[[int], object]) -> None:
        super().__init__(config)
        self._stop = stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._stop(sig)


async def _serve(
    config: PipelineConfig, settings: ServerSettings, listener: socket.socket, report: Callable[[str], None]
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    pipeline = PipelineClient(config, report=report)
    app = create_app(pipeline, settings)
    options = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        ws_max_size=settings.max_message_bytes,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=int(settings.stop_timeout_s),
    )
    server = _Server(options, lambda sig: loop.call_soon_threadsafe(stopped.set))
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    starting = asyncio.create_task(pipeline.start(), name="pipeline")
    waiting = asyncio.create_task(stopped.wait(), name="stop")
    try:
        await asyncio.wait((serving, starting, waiting), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            report(f"ready: ws://{settings.host}:{listener.getsockname()[1]}/v1/realtime")
            await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
        report("stopping")
    finally:
        server.should_exit = True
        starting.cancel()
        waiting.cancel()
        await asyncio.gather(serving, starting, waiting, return_exceptions=True)
        await pipeline.stop()
