"""Turns that are taken back: nothing of them stays anywhere."""

import asyncio
import collections
import ctypes
import gc
import itertools
import random
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from pipeline_talk import LOUD, Answer, config, outcome, read, request, runs, segments, settled, until

from voice_app.errors import TurnCancelled
from voice_app.messages import TurnId
from voice_app.pipeline.client import PipelineClient
from voice_app.pipeline.transport import shm
from voice_app.pipeline.transport.pool import SLOT_CLASSES

pytestmark = pytest.mark.usefixtures("nothing_left")

TURNS = 10_000
STOPPED_S = 60.0
HEARD_OUT_EACH = 21
"""Of so many turns, one; and with sound as well as without."""
LEAK_MB = 4
"""What a process may have grown by: 400 bytes a turn."""


class Talker:
    """A user who interrupts answers, sooner or later. Each turn is the next generation of the same one, so
    that nothing need be remembered of it.

    How long an answer takes is for the machine to say: now and then one is heard out, and the next are
    interrupted somewhere within most of that time; some are answered by then all the same."""

    def __init__(self, number: int, client: PipelineClient, dice: random.Random) -> None:
        self._session = f"talker {number}"
        self._client = client
        self._dice = dice
        self._generation = 0
        self._answer_s = 0.0
        self.answered = 0
        """Though they were to be interrupted."""
        self.cancelled = 0

    async def talk(self, turns: int) -> None:
        for _ in range(turns):
            turn = TurnId(self._session, "t", self._generation)
            parts = (LOUD,) if self._generation % 5 == 0 else ()
            heard_out = self._generation % HEARD_OUT_EACH == 0
            self._generation += 1
            asked = request("!repeat 12", *parts, session=self._session, turn="t", generation=turn.generation)
            stream, began = self._client.submit(asked), time.monotonic()
            if not heard_out:
                after_s = self._dice.uniform(0, 0.75 * self._answer_s)
                asyncio.get_running_loop().call_later(after_s, self._client.cancel, turn)
            ended = await outcome(stream)
            if isinstance(ended, Answer):
                assert ended.voice == ended.text == "abcdefghijkl"
                if heard_out:
                    self._answer_s = time.monotonic() - began
                else:
                    self.answered += 1
            else:
                assert isinstance(ended, TurnCancelled)
                self.cancelled += 1


def footprint(client: PipelineClient) -> list[tuple[int, int]]:
    """Open files and memory, in MB, of the server's process and of each worker. Without segments, which are
    made and mapped when that many slots are lent at once for the first time, and without what earlier
    tests left free in this process's heap."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    processes = [psutil.Process(), *(psutil.Process(w.pid) for w in client.status().workers.values())]
    return [(p.num_fds() - _segment_files(p), _own_memory(p) // 2**20) for p in processes]


def _segment_files(process: psutil.Process) -> int:
    """A mapping holds its file open; the owner has it open once more."""
    held = collections.Counter(Path(file.path).name for file in process.open_files())
    counts = [held[name] for name in segments(runs())]
    assert max(counts) <= 2
    return sum(counts)


def _own_memory(process: psutil.Process) -> int:
    memory = process.memory_info()
    return memory.rss - memory.shared


async def crowd(client: PipelineClient, talkers: Sequence[Talker], turns: int, stopped_s: float) -> None:
    """`turns` that are interrupted, beside two readers that stop for `stopped_s` and hold back nobody."""
    stopped_at = time.monotonic()
    stopped = [
        client.submit(request("!repeat 1500", turn=f"stopped {n} for {stopped_s:g} s", speech=n == 0))
        for n in range(2)
    ]
    firsts = [await anext(stream) for stream in stopped]
    await asyncio.gather(*(talker.talk(turns // len(talkers)) for talker in talkers))
    for n in itertools.takewhile(
        lambda n: not n or time.monotonic() - stopped_at < stopped_s, itertools.count()
    ):
        aside = request("still quick", LOUD, turn=f"aside {n} of {stopped_s:g} s")
        answer = await read(client.submit(aside))
        assert answer.voice == answer.text == "still quick; heard 160000 samples, sum 40000.000"
        await asyncio.sleep(1)
    assert client.status().turns == 2
    for first, stream in zip(firsts, stopped, strict=True):
        assert len((await read(stream, first)).text) == 1500
    await until(lambda: settled(client))


async def test_ten_thousand_turns_cancelled_at_random_leave_nothing() -> None:
    """Beside two readers that stopped for a minute. Together, so that nobody waits for that minute alone."""
    dice = random.Random(7)
    async with PipelineClient(config(turn_timeout_s=3600)) as client:
        talkers = [Talker(n, client, dice) for n in range(16)]
        # The same at a small scale first: heaps grow to what such a crowd needs at a time.
        await crowd(client, talkers, TURNS // 10, stopped_s=1)
        before = footprint(client)
        await crowd(client, talkers, TURNS, STOPPED_S)
        after = footprint(client)
        (run,) = runs()
        nodes, kinds = ("server.0", "encoders.0", "text.0", "voice.0"), range(len(SLOT_CLASSES))
        assert segments({run}) <= {shm.segment_name(run, node, kind) for node in nodes for kind in kinds}
        assert [files for files, _ in after] == [files for files, _ in before]
        grown = [now - then for (_, then), (_, now) in zip(before, after, strict=True)]
        assert max(grown) <= LEAK_MB, grown
        assert sum(talker.cancelled for talker in talkers) > TURNS / 5
        assert sum(talker.answered for talker in talkers) > TURNS / 100, "nearly all ended before they began"


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
