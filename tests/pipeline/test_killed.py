"""SIGKILL: of a worker at each edge, of the server, of everything at once."""

import asyncio
import sys
from pathlib import Path

import psutil
import pytest
from pipeline_talk import (
    LOUD,
    ONE_WORKER_A_STAGE,
    PICTURE,
    Answer,
    config,
    outcome,
    read,
    request,
    runs,
    segments,
    settled,
    until,
)
from pipeline_toys import worker_of

from voice_app.errors import PipelineError, WorkerDied
from voice_app.messages import Stage
from voice_app.pipeline import graph, rundir
from voice_app.pipeline.client import PipelineClient
from voice_app.pipeline.coordinator import VOICE_STAGES
from voice_app.pipeline.transport import shm

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.parametrize("stage", [Stage.PREPROCESSING, Stage.THINKER, Stage.TALKER_AR, Stage.CODE2WAV])
async def test_a_killed_worker_takes_only_its_turns_and_comes_back(stage: Stage) -> None:
    async with PipelineClient(config()) as client:
        victim = {Stage.PREPROCESSING: "encoders", Stage.THINKER: "text"}.get(stage, "voice")
        written = client.submit(request("!repeat 1500", turn="written", speech=False))
        spoken = client.submit(request(f"!die {stage}", LOUD, turn="spoken"))
        died = await outcome(spoken)
        assert isinstance(died, WorkerDied)
        assert died.message == f"worker {victim} was ended by signal 9"
        survivor = await outcome(written)
        if victim == "voice":
            assert isinstance(survivor, Answer)
            assert len(survivor.text) == 1500
        else:
            assert isinstance(survivor, WorkerDied)
        if not client.status().ready:
            with pytest.raises(PipelineError, match=f"worker {victim} is restarting"):
                client.submit(request("too early", turn="early"))
        await until(lambda: client.status().ready)
        again = await read(client.submit(request("back", LOUD, turn="again")))
        assert again.voice == again.text == "back; heard 160000 samples, sum 40000.000"
        assert client.status().workers[victim].restarts == 1


_ENDS = [(edge.source, edge.target) for edge in graph.EDGES] + [(stage, stage) for stage in Stage]
"""Whom to kill, and while which stage reads what came to it: the sender of each edge, whose slot is being
read then, and each receiver itself."""


async def test_a_worker_killed_at_either_end_of_each_edge(tmp_path: Path) -> None:
    layout = tmp_path / "seven.toml"
    layout.write_text(ONE_WORKER_A_STAGE)
    expected = "back; heard 160000 samples, sum 40000.000; seen 256000 values, sum 32640000"
    async with PipelineClient(config(str(layout))) as client:
        for number, (victim, reader) in enumerate(_ENDS):
            worker = worker_of(victim)
            before = client.status().workers
            written = client.submit(request("!repeat 1500", turn=f"written {number}", speech=False))
            first = await anext(written)
            order = request(f"!kill {victim} {reader}", LOUD, PICTURE, turn=f"broken {number}")
            died = await outcome(client.submit(order))
            assert isinstance(died, WorkerDied)
            assert died.message == f"worker {worker} was ended by signal 9"
            survivor = await outcome(written) if victim not in VOICE_STAGES else await read(written, first)
            assert isinstance(survivor, Answer if victim in VOICE_STAGES else WorkerDied)
            await until(lambda: client.status().ready)
            after = client.status().workers
            assert {w: after[w].restarts - before[w].restarts for w in after if w != worker} == dict.fromkeys(
                (w for w in after if w != worker), 0
            ), "another worker went with it"
            assert after[worker].restarts == before[worker].restarts + 1
            assert not [s for s in segments(runs()) if f"-{worker}.{before[worker].restarts}-" in s]
            again = await read(client.submit(request("back", LOUD, PICTURE, turn=f"again {number}")))
            assert again.voice == again.text == expected
            await until(lambda: settled(client))


async def test_a_worker_that_dies_again_and_again_at_work_is_started_again() -> None:
    async with PipelineClient(config("single")) as client:
        for n in range(1, 5):
            died = await outcome(client.submit(request("!die thinker", turn=str(n))))
            assert isinstance(died, WorkerDied)
            await until(lambda: client.status().ready)
            assert client.status().workers["all"].restarts == n
        assert (await read(client.submit(request("alive", turn="last")))).voice == "alive"


_SERVER = """
import asyncio, sys
from pipeline_talk import LOUD, config, request
from voice_app.pipeline.client import PipelineClient


async def main():
    async with PipelineClient(config()) as client:
        stream = client.submit(request("!repeat 3000", LOUD))
        await anext(stream)
        print(*(w.pid for w in client.status().workers.values()), flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def _server() -> tuple[asyncio.subprocess.Process, list[psutil.Process]]:
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SERVER, stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    line = await asyncio.wait_for(server.stdout.readline(), 60)
    return server, [psutil.Process(int(pid)) for pid in line.split()]


async def test_after_everything_was_killed_the_next_start_sweeps() -> None:
    server, workers = await _server()
    killed = runs()
    for worker in workers:
        worker.suspend()  # It must not clean up by itself.
    server.kill()
    await server.wait()
    for worker in workers:
        worker.kill()
    await until(lambda: not any(w.is_running() for w in workers))
    assert len(segments(killed)) >= 2, "nothing was left: this test tests nothing"
    async with PipelineClient(config()) as living:
        assert segments(killed) == set()
        assert not killed & runs()
        assert (await read(living.submit(request("", LOUD)))).kinds[-1] == "TurnDone"
        mine = segments(runs())
        assert mine
        async with PipelineClient(config("single")) as second:
            # Its sweep left the living one's alone.
            assert mine <= segments(runs())
            assert (await read(second.submit(request("second")))).text == "second"
        assert (await read(living.submit(request("", LOUD, turn="2")))).kinds[-1] == "TurnDone"


async def test_workers_end_when_their_server_is_killed() -> None:
    server, workers = await _server()
    server.kill()
    await server.wait()
    await until(lambda: not any(w.is_running() for w in workers))
    left = segments(runs())
    assert left
    assert all("-server." in name for name in left), "a worker left its segments"
    shm.sweep()
    rundir.sweep()
