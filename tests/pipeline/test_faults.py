"""What breaks, and what must not break with it: real processes, real kills."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from pipeline_talk import Answer, config, descriptors, read, request, runs, segments, until

from voice_app import messages as m
from voice_app.errors import (
    ConfigError,
    DeadlineExceeded,
    ModelFileError,
    Overloaded,
    PipelineError,
    StageFailed,
    TurnCancelled,
    VoiceAppError,
    WorkerDied,
)
from voice_app.messages import Stage, TurnId
from voice_app.pipeline import rundir
from voice_app.pipeline.client import PipelineClient, WorkerState
from voice_app.pipeline.transport import shm

LOUD = m.AudioPart(np.full(160_000, 0.25, np.float32), 16_000)
"""Large enough to travel in slots."""


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test leaves the machine as it found it."""
    mine: set[str] = set()

    class Recorded(rundir.RunDir):
        def __init__(self) -> None:
            super().__init__()
            mine.add(self.run)

    monkeypatch.setattr(rundir, "RunDir", Recorded)
    yield
    assert runs() == set()
    assert segments(mine) == set()
    assert not psutil.Process().children()


async def outcome(stream) -> Answer | VoiceAppError:
    try:
        return await read(stream)
    except VoiceAppError as error:
        return error


def settled(client: PipelineClient) -> bool:
    """Nothing of any turn is anywhere."""
    status = client.status()
    parts = [status.hand_off, *(worker.hand_off for worker in status.workers.values())]
    return (
        status.turns == 0
        and all(part.turns == part.arriving == part.lent == part.quarantined == 0 for part in parts)
        and all(load.waiting == load.running == load.pages_used == 0 for load in status.stages.values())
    )


# --------------------------------------------------------------------------------------------- cancelling


async def test_a_thousand_turns_cancelled_at_random_leave_nothing() -> None:
    dice = random.Random(7)
    async with PipelineClient(config()) as client:

        async def talk(number: int) -> Answer | VoiceAppError:
            turn = TurnId(f"session {number % 16}", str(number))
            parts = (LOUD,) if number % 5 == 0 else ()
            stream = client.submit(request("!repeat 12", *parts, session=turn.session, turn=turn.turn))
            asyncio.get_running_loop().call_later(dice.uniform(0, 0.06), client.cancel, turn)
            return await outcome(stream)

        async def some(first: int, last: int) -> list[Answer | VoiceAppError]:
            results: list[Answer | VoiceAppError] = []
            for start in range(first, last, 16):
                results += await asyncio.gather(*(talk(n) for n in range(start, min(last, start + 16))))
            return results

        await some(0, 48)
        await read(client.submit(request("", LOUD, turn="maps all segments")))
        await until(lambda: settled(client))
        workers = client.status().workers
        pids = [None, *(worker.pid for worker in workers.values())]
        files = [descriptors(pid) for pid in pids]
        mine = segments(runs())
        results = await some(48, 1000)
        await until(lambda: settled(client))
        assert [descriptors(pid) for pid in pids] == files
        assert segments(runs()) == mine
        cancelled = sum(isinstance(result, TurnCancelled) for result in results)
        answered = [result for result in results if isinstance(result, Answer)]
        assert cancelled + len(answered) == 952
        assert cancelled > 100
        assert all(a.voice == a.text for a in answered)
        last = await read(client.submit(request("still here", LOUD, turn="last")))
        assert last.text == "still here; heard 160000 samples, sum 40000.000"


async def test_cancel_ends_the_stream_at_once_and_fences_the_generation() -> None:
    async with PipelineClient(config()) as client:
        stream = client.submit(request("!repeat 2000", generation=3))
        await anext(stream)
        client.cancel(TurnId("s", "1", 3))
        with pytest.raises(TurnCancelled):
            await anext(stream)
        with pytest.raises(TurnCancelled):
            client.submit(request("late", generation=3))
        assert (await read(client.submit(request("next", generation=4)))).text == "next"
        client.cancel(TurnId("s", "never there"))
        await until(lambda: settled(client))


async def test_a_newer_generation_takes_the_place_of_the_older() -> None:
    async with PipelineClient(config()) as client:
        old = client.submit(request("!repeat 2000", generation=0))
        new = client.submit(request("newer", generation=1))
        assert isinstance(await outcome(old), TurnCancelled)
        assert (await read(new)).voice == "newer"


async def test_an_older_generation_is_refused_while_a_newer_one_runs() -> None:
    async with PipelineClient(config()) as client:
        new = client.submit(request("!repeat 500", generation=5))
        with pytest.raises(TurnCancelled, match="stale"):
            client.submit(request("older", generation=4))
        assert len((await read(new)).text) == 500


async def test_an_answer_that_nobody_reads_to_its_end_leaves_nothing() -> None:
    async with PipelineClient(config()) as client:
        stream = client.submit(request("hi"))
        await until(lambda: client.status().turns == 0)
        await anext(stream)
        del stream
        await until(lambda: settled(client))


async def test_leaving_a_stream_cancels_its_turn() -> None:
    async with PipelineClient(config()) as client:
        async with client.submit(request("!repeat 2000")) as stream:
            await anext(stream)
        await until(lambda: settled(client))


# ------------------------------------------------------------------------------------------------- bounds


async def test_a_stalled_client_holds_back_only_its_own_turn() -> None:
    async with PipelineClient(config()) as client:
        stalled = client.submit(request("!repeat 2000", turn="stalled"))
        first = await anext(stalled)
        for n in range(20):
            answer = await asyncio.wait_for(read(client.submit(request(f"turn {n}", turn=str(n)))), 10)
            assert answer.voice == f"turn {n}"
        # It stopped for want of credit, long before its end, and goes on when it is read again.
        await until(lambda: client.status().stages[Stage.THINKER].running == 1)
        assert len((await read(stalled, first)).text) == 2000


async def test_more_turns_than_the_bound_are_refused() -> None:
    async with PipelineClient(config(max_turns=2)) as client:
        streams = [client.submit(request("!repeat 500", turn=str(n))) for n in range(2)]
        with pytest.raises(Overloaded, match="max_turns"):
            client.submit(request("one too many", turn="3"))
        streams[0] = client.submit(request("in place of the older", turn="0", generation=1))
        await asyncio.gather(*(read(s) for s in streams))
        assert (await read(client.submit(request("again", turn="4")))).text == "again"


async def test_a_turn_that_takes_too_long_is_failed() -> None:
    async with PipelineClient(config(turn_timeout_s=0.3)) as client:
        with pytest.raises(DeadlineExceeded, match="turn_timeout_s"):
            await read(client.submit(request("!repeat 4000")))
        await until(lambda: settled(client))


async def test_more_sound_than_the_largest_slot_is_refused() -> None:
    huge = m.AudioPart(np.zeros(40_000_000, np.float32), 48_000)
    async with PipelineClient(config()) as client:
        with pytest.raises(PipelineError, match="largest slot"):
            client.submit(request("", huge))
        assert (await read(client.submit(request("ok", turn="2")))).text == "ok"


# ------------------------------------------------------------------------------------------------- models


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


# ------------------------------------------------------------------------------------------------ workers


@pytest.mark.parametrize("stage", [Stage.PREPROCESSING, Stage.THINKER, Stage.TALKER_AR, Stage.CODE2WAV])
async def test_a_killed_worker_takes_only_its_turns_and_comes_back(stage: Stage) -> None:
    async with PipelineClient(config()) as client:
        victim = "text" if stage in (Stage.PREPROCESSING, Stage.THINKER) else "voice"
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


async def test_a_worker_that_dies_again_and_again_at_work_is_started_again() -> None:
    async with PipelineClient(config("single")) as client:
        for n in range(1, 5):
            died = await outcome(client.submit(request("!die thinker", turn=str(n))))
            assert isinstance(died, WorkerDied)
            await until(lambda: client.status().ready)
            assert client.status().workers["all"].restarts == n
        assert (await read(client.submit(request("alive", turn="last")))).voice == "alive"


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
    async with PipelineClient(config("single", model="slow", start_timeout_s=4.0)) as client:
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


# ---------------------------------------------------------------------------------- when all of it is killed

_SERVER = """
import asyncio, sys
from pipeline_talk import config, request
from voice_app.pipeline.client import PipelineClient
from test_faults import LOUD

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
    line = await asyncio.wait_for(server.stdout.readline(), 30)
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
    await until(lambda: not any(w.is_running() for w in workers), 10)
    left = segments(runs())
    assert left
    assert all("-server." in name for name in left), "a worker left its segments"
    shm.sweep()
    rundir.sweep()


async def test_sigterm_ends_a_worker_in_order() -> None:
    async with PipelineClient(config()) as client:
        pid = client.status().workers["voice"].pid
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        await until(lambda: client.status().workers["voice"].state is WorkerState.RESTARTING)
        await until(lambda: client.status().ready)
        assert (await read(client.submit(request("again")))).voice == "again"
