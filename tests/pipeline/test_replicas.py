"""Replicas of a worker: which turn goes where, and what the death of one costs."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from pipeline_talk import config, read, request, until

from voice_app.errors import PipelineError, WorkerDied
from voice_app.messages import Stage, StageEvent, TurnId
from voice_app.pipeline.client import PipelineClient, WorkerState
from voice_app.pipeline.control import Control, StageReport, WorkerProgress
from voice_app.pipeline.coordinator import Coordinator
from voice_app.pipeline.replicas import Replicas
from voice_app.pipeline.rundir import RunDir
from voice_app.pipeline.transport.shm import SharedMemoryIn
from voice_app.pipeline.wire import Wire
from voice_app.schedulers.base import SchedulerLoad

VOICE = (Stage.TALKER_AR, Stage.CODE2WAV)
PLACES = dict.fromkeys(Stage, ("t",)) | dict.fromkeys(VOICE, ("v.0", "v.1", "v.2"))
PLACES |= dict.fromkeys((Stage.IMAGE_ENCODER, Stage.AUDIO_ENCODER), ("e.0", "e.1"))


class Sent:
    """Turns that are sent one after the other to the voice's replicas."""

    def __init__(self) -> None:
        self.replicas = Replicas(PLACES)
        self.dead: set[str] = set()
        self.turns: list[tuple[TurnId, str]] = []

    def send(self) -> str:
        chosen = self.replicas.choose(tuple(Stage), lambda node: node not in self.dead)
        assert chosen[Stage.TALKER_AR] == chosen[Stage.CODE2WAV]
        assert chosen[Stage.IMAGE_ENCODER] == chosen[Stage.AUDIO_ENCODER]
        assert {chosen[s] for s in (Stage.PREPROCESSING, Stage.THINKER, Stage.DECODE)} == {"t"}
        turn = TurnId("s", str(len(self.turns)))
        self.replicas.sent(turn, set(chosen.values()))
        self.turns.append((turn, chosen[Stage.TALKER_AR]))
        return chosen[Stage.TALKER_AR]

    def tell(self, node: str, waiting: int, running: int) -> None:
        """The talker of `node` tells its fill, and that all that was sent there has come."""
        met = [turn for turn, to in self.turns if to == node]
        self.replicas.reported(node, Stage.TALKER_AR, SchedulerLoad(waiting, running), met)

    def end(self, number: int) -> None:
        turn, node = self.turns[number]
        self.replicas.ended(turn, {"t", "e.0", "e.1", node})


def test_turns_at_once_are_spread() -> None:
    sent = Sent()
    assert [sent.send() for _ in range(6)] == ["v.0", "v.1", "v.2"] * 2


def test_what_is_reported_decides_among_turns_that_came() -> None:
    sent = Sent()
    for _ in range(9):
        sent.send()
    sent.tell("v.0", 1, 2)
    sent.tell("v.1", 0, 1)
    sent.tell("v.2", 0, 0)
    # Each that is sent counts where it went, at once: no burst goes to the idlest as a whole. Where two have
    # as much to do, it goes to that with fewer open turns.
    assert [sent.send() for _ in range(5)] == ["v.2", "v.1", "v.2", "v.1", "v.2"]


def test_a_turn_that_no_report_names_counts_however_late_that_is() -> None:
    """Of two turns at once each gets a replica, though one of these is late with its news, and the other's
    are of the turns before."""
    sent = Sent()
    assert [sent.send() for _ in range(3)] == ["v.0", "v.1", "v.2"]
    for number, node in enumerate(("v.0", "v.1", "v.2")):
        sent.tell(node, 0, 1)
        sent.end(number)
    sent.tell("v.1", 0, 0)
    long = [sent.send() for _ in range(3)]
    assert sorted(long) == ["v.0", "v.1", "v.2"]
    # What was made up before the turn came does not say that it is done.
    sent.replicas.reported("v.0", Stage.TALKER_AR, SchedulerLoad(0, 0))
    assert sorted(sent.send() for _ in range(3)) == ["v.0", "v.1", "v.2"]


def test_no_stage_has_more_turns_than_are_open() -> None:
    sent = Sent()
    sent.send()
    sent.tell("v.0", 40, 24)
    assert [sent.send() for _ in range(2)] == ["v.1", "v.2"]
    sent.end(0)
    assert sent.send() == "v.0", "what it told is old news: nothing is open there"


def test_what_failed_to_come_is_forgotten_with_its_turn() -> None:
    sent = Sent()
    for number in range(3):
        sent.send()
        sent.end(number)
    assert [sent.send() for _ in range(3)] == ["v.0", "v.1", "v.2"]


def test_among_idle_ones_the_one_with_fewest_open_turns() -> None:
    sent = Sent()
    for _ in range(8):
        sent.send()
    for node in ("v.0", "v.1", "v.2"):
        sent.tell(node, 0, 0)
    assert sent.send() == "v.2"


def test_one_that_is_not_ready_gets_none_while_another_is() -> None:
    sent = Sent()
    sent.dead = {"v.0", "v.2"}
    assert [sent.send() for _ in range(3)] == ["v.1"] * 3
    sent.dead = {"v.0", "v.1", "v.2"}
    assert sent.send() in sent.dead, "and the caller is told that it is not ready"


def test_a_stages_fill_is_the_sum_of_its_replicas_and_forgets_the_dead() -> None:
    sent = Sent()
    sent.tell("v.0", 4, 2)
    sent.tell("v.1", 1, 1)
    sent.replicas.reported("t", Stage.THINKER, SchedulerLoad(0, 1, 7, 9))
    assert sent.replicas.load() == {
        Stage.TALKER_AR: SchedulerLoad(5, 3),
        Stage.THINKER: SchedulerLoad(0, 1, 7, 9),
    }
    sent.replicas.down("v.0")
    assert sent.replicas.load()[Stage.TALKER_AR] == SchedulerLoad(1, 1)


# ------------------------------------------------------------------------------------------ real processes

LAYOUT = """
[stages.preprocessing]
worker = "text"
[stages.thinker]
worker = "text"
[stages.decode]
worker = "text"
[stages.image_encoder]
worker = "encoders"
replicas = 2
[stages.audio_encoder]
worker = "encoders"
[stages.talker_ar]
worker = "voice"
replicas = 2
[stages.code2wav]
worker = "voice"
"""


@pytest.fixture
def layout(tmp_path: Path) -> str:
    path = tmp_path / "replicas.toml"
    path.write_text(LAYOUT)
    return str(path)


async def test_turns_pass_through_replicas_and_a_dead_one_costs_only_its_own(layout: str) -> None:
    async with PipelineClient(config(layout)) as client:
        assert set(client.status().workers) == {"text", "encoders.0", "encoders.1", "voice.0", "voice.1"}
        texts = [f"turn {n} of many" for n in range(6)]
        answers = await asyncio.gather(*(read(client.submit(request(t, turn=t))) for t in texts))
        assert [answer.voice for answer in answers] == texts

        # Two long turns, one in each voice.
        await until(lambda: not any(load.running for load in client.status().stages.values()))
        streams = [client.submit(request("!repeat 1500", turn=f"long {n}")) for n in range(2)]
        first = [await anext(stream) for stream in streams]
        victim = client.status().workers["voice.0"].pid
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        await until(lambda: client.status().workers["voice.0"].state is WorkerState.RESTARTING)
        assert client.status().ready, "the other voice takes turns"
        assert (await read(client.submit(request("meanwhile", turn="meanwhile")))).voice == "meanwhile"
        outcomes = await asyncio.gather(
            *(read(s, event) for s, event in zip(streams, first, strict=True)), return_exceptions=True
        )
        died = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert [str(error) for error in died] == ["worker voice.0 was ended by signal 9"]
        assert isinstance(died[0], WorkerDied)
        assert [len(o.voice) for o in outcomes if not isinstance(o, BaseException)] == [1500]
        await until(lambda: client.status().workers["voice.0"].state is WorkerState.READY)
        assert client.status().workers["voice.0"].restarts == 1


async def test_without_any_replica_a_turn_is_refused(layout: str) -> None:
    async with PipelineClient(config(layout)) as client:
        for name in ("voice.0", "voice.1"):
            pid = client.status().workers[name].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not client.status().ready)
        with pytest.raises(PipelineError, match=r"worker voice\.[01] is (restarting|starting)"):
            client.submit(request("spoken"))
        assert (await read(client.submit(request("written", turn="2", speech=False)))).text == "written"
        await until(lambda: client.status().ready)
        assert (await read(client.submit(request("again", turn="3")))).voice == "again"


async def test_what_a_dead_one_had_told_counts_for_nothing() -> None:
    """Not even what is read after its end: the new one tells of its load only when that changes."""
    run = RunDir()
    heard: list[Control] = []
    places: dict[Stage, tuple[str, ...]] = dict.fromkeys(Stage, ("v.0",))
    hub, voice = Wire(run.address("server.0")), Wire(run.address("v.0"))
    voice.connect("server", run.address("server.0"))
    coordinator = Coordinator(
        hub,
        places,
        lambda source, target, node: None,
        SharedMemoryIn(run.run, StageEvent),
        max_turns=1,
        turn_timeout_s=1.0,
        other=heard.append,
    )
    coordinator.worker_up("v.0", {"server": run.address("v.0")})
    voice.send("server", StageReport("v.0", Stage.TALKER_AR, SchedulerLoad(4, 2)))
    await until(lambda: coordinator.replicas.load() == {Stage.TALKER_AR: SchedulerLoad(4, 2)})
    coordinator.worker_down("v.0", WorkerDied("worker v.0 was ended"))
    assert coordinator.replicas.load() == {}
    voice.send("server", StageReport("v.0", Stage.TALKER_AR, SchedulerLoad(5, 2)))
    voice.send("server", WorkerProgress("v.0", "last words"))
    await until(lambda: heard != [])
    assert coordinator.replicas.load() == {}
    voice.close()
    coordinator.close()
    hub.close()
    run.remove()
