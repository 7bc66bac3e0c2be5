"""Workers on this host: processes that end when their stdin closes."""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping

import msgspec

from voice_app.errors import PipelineError
from voice_app.pipeline.control import WorkerConfig
from voice_app.pipeline.hosts.base import Ending
from voice_app.pipeline.relay import Said, relay
from voice_app.pipeline.transport import shm

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 5.0
"""After being told to end, a worker has so long; then it is killed."""
LAST_LINES_S = 0.5
"""What a worker that ended has logged is waited for so long."""

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1"}
"""Weights in pages of 2 MB, where the kernel gives them (`madvise` or `always`): a token reads all of them,
and with pages of 4 KB a third of its time goes by finding them. Only malloc's first arena asks for huge
pages, and a thread of its own loads the models: so there is to be no other arena."""


def environment(own: Mapping[str, str], threads: int) -> dict[str, str]:
    """A worker's, out of our `own`; malloc's tunables are the user's where there are any."""
    return _HUGE_PAGES | dict(own) | dict.fromkeys(_THREADS, str(threads))


class LocalProcess:
    """A worker's process, a child of ours."""

    def __init__(self, config: WorkerConfig, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        self._config = config
        self._process = process
        self._lines = asyncio.create_task(relay(config.name, process.stdout))
        """Relays what it logs; ends with it."""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process.returncode is None else None

    async def ended(self) -> Ending:
        code = await self._process.wait()
        # By name, not by lock: it may have died while it made one.
        shm.remove(self._config.run, f"{self._config.name}.{self._config.incarnation}")
        # A process that the worker left behind may keep its output open.
        await asyncio.wait({self._lines}, timeout=LAST_LINES_S)
        said = self._lines.result() if self._lines.done() else Said()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return Ending(how, said.last if code > 0 else "", said.refusal)

    async def end(self) -> None:
        """Close its stdin, which ends it; then harder."""
        if self._process.returncode is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            log.warning("worker %s does not end by itself and is killed", self._config.name)
            self._process.kill()
            await self._process.wait()


class LocalHost:
    """This host."""

    async def start(self, config: WorkerConfig) -> LocalProcess:
        # -P: a file in the folder that the user happens to stand in must not shadow a module.
        command = (sys.executable, "-P", "-m", "voice_app.pipeline.worker", config.name)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=environment(os.environ, config.pack.threads),
                # Ctrl-C and a closed terminal are for the server; a worker ends when its stdin closes.
                start_new_session=True,
            )
        except OSError as error:
            raise PipelineError(f"no process can be made: {error.strerror}") from error
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(config) + b"\n")
        return LocalProcess(config, process)

    async def close(self) -> None:
        return None
