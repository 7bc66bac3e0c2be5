"""Models that raise, workers that do not start or die at work: real processes, real kills."""

import asyncio
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from pipeline_talk import LOUD, config, outcome, read, request, settled, until

from voice_app.errors import (
    ConfigError,
    DeadlineExceeded,
    ModelFileError,
    PipelineError,
    StageFailed,
    WorkerDied,
)
from voice_app.messages import Stage
from voice_app.pipeline.client import PipelineClient, WorkerState

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.parametrize("stage", [s for s in Stage if s not in (Stage.IMAGE_ENCODER, Stage.AUDIO_ENCODER)])
async def test_a_model_that_raises_fails_its_turn_only(stage: Stage) -> None:
    async with PipelineClient(config()) as client:
        # Not in the same call of the model: that one is lost for all that are in it.
        spoken = stage not in (Stage.TALKER_AR, Stage.CODE2WAV)
        other = client.submit(request("!repeat 200", turn="other", speech=spoken))
        first = await anext(other)
        failed = await outcome(client.submit(request(f"!raise {stage}", turn="failed")))
        assert isinstance(failed, StageFailed)
        assert failed.message == f"{stage}: Broken: told to"
        answer = await read(other, first)
        assert len(answer.text) == 200
        assert (await read(client.submit(request("after", turn="after")))).voice == "after"
        assert all(worker.restarts == 0 for worker in client.status().workers.values())
        await until(lambda: settled(client))


# ----------------------------------------------------------------------------------------------- workers


async def test_a_missing_model_is_said_at_once() -> None:
    with pytest.raises(ModelFileError, match=r"toy\.bin: not there"):
        await PipelineClient(config(model="missing")).start()


async def test_a_worker_that_dies_while_loading_is_given_up() -> None:
    with pytest.raises(WorkerDied, match=r"while it loaded.*while loading.*3 times in a row"):
        await PipelineClient(config("single", model="dies")).start()


async def test_a_worker_that_never_gets_ready_is_given_up() -> None:
    with pytest.raises(DeadlineExceeded, match="start_timeout_s"):
        await PipelineClient(config("single", model="hangs", start_timeout_s=1.0)).start()


async def test_a_slow_start_that_goes_on_is_waited_for() -> None:
    began = time.monotonic()
    async with PipelineClient(config("single")):
        # A worker tells nothing until its modules are imported: that is no more than so much of the limit.
        limit_s = max(4.0, 3 * (time.monotonic() - began))
    slow = config("single", model=f"slow:{limit_s + 2}", start_timeout_s=limit_s)
    async with PipelineClient(slow) as client:
        assert (await read(client.submit(request("here")))).text == "here"


async def test_a_download_ends_with_the_worker_that_began_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    start = asyncio.create_task(PipelineClient(config("single", model=f"fetches:{note}")).start())
    await until(lambda: note.exists() and note.read_text() != "")
    fetch = psutil.Process(int(note.read_text()))
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await until(lambda: not fetch.is_running() or fetch.status() == psutil.STATUS_ZOMBIE)


async def test_stopping_while_workers_load() -> None:
    client = PipelineClient(config(model="hangs"))
    start = asyncio.create_task(client.start())
    await until(
        lambda: all(w.pid for w in client.status().workers.values()) and client.status().workers != {}
    )
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start


async def test_stopping_fails_what_runs() -> None:
    client = PipelineClient(config())
    await client.start()
    stream = client.submit(request("!repeat 2000", LOUD))
    await anext(stream)
    await client.stop()
    with pytest.raises(PipelineError, match="stopped"):
        await read(stream)
    with pytest.raises(PipelineError, match="not running"):
        client.submit(request("late"))
    await client.stop()


async def test_an_unknown_pack_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="MODULE:FACTORY"):
        await PipelineClient(config("single", pack="pipeline_toys:no_such")).start()


async def test_sigterm_ends_a_worker_in_order() -> None:
    async with PipelineClient(config()) as client:
        pid = client.status().workers["voice"].pid
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        await until(lambda: client.status().workers["voice"].state is WorkerState.RESTARTING)
        await until(lambda: client.status().ready)
        assert (await read(client.submit(request("again")))).voice == "again"
