"""Workers on two hosts of one machine, by two addresses of loopback: control over TCP, data over Mooncake."""

import asyncio
import functools
import logging
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import needs
import numpy as np
import psutil
import pytest
from pipeline_talk import config, read, request, until

from voice_app import messages as m
from voice_app.errors import ConfigError, DeadlineExceeded, VoiceAppError, WorkerDied
from voice_app.messages import Stage
from voice_app.pipeline.client import PipelineClient
from voice_app.pipeline.control import WorkerConfig
from voice_app.pipeline.hosts.base import Ending, Host, WorkerProcess
from voice_app.pipeline.launcher import Launcher
from voice_app.pipeline.layout import WorkerSpec
from voice_app.pipeline.network import DEFAULT_PORT, ControlPlane, Network
from voice_app.pipeline.rundir import RunDir
from voice_app.pipeline.transport.mooncake import new_engine
from voice_app.pipeline.transport.router import Place

FAR = "127.0.0.2"
LOUD = m.AudioPart(np.full(160_000, 0.25, np.float32), 16_000)
"""Too large to travel within a message."""
HEARD = "heard 160000 samples, sum 40000.000"


def free_ports(count: int) -> int:
    """The first of so many ports that nobody uses."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as server:
            first = server.getsockname()[1]
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except (OSError, OverflowError):
            continue
        return first


def layout_file(path: Path, control: str, far: dict[Stage, str], host: str = FAR) -> str:
    """Everything in worker `near` but the stages in `far`, which names their workers on `host`."""
    tables = [
        f'[stages.{s}]\nworker = "{far[s]}"\nhost = "{host}"\n'
        if s in far
        else f'[stages.{s}]\nworker = "near"\n'
        for s in Stage
    ]
    path.write_text("".join(tables) + f"[control]\n{control}")
    return str(path)


VOICE = {Stage.TALKER_AR: "voice", Stage.CODE2WAV: "voice"}
ENCODERS_AND_VOICE = VOICE | {Stage.IMAGE_ENCODER: "encoders", Stage.AUDIO_ENCODER: "encoders"}


@functools.cache
def missing_mooncake() -> str:
    """Why there is no Mooncake here."""
    try:
        new_engine("127.0.0.1")
    except ConfigError as error:
        return str(error)
    return ""


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[str]:
    if missing_mooncake():
        needs.missing("Mooncake", missing_mooncake())
    yield layout_file(tmp_path / "two.toml", f"port = {free_ports(4)}\n", ENCODERS_AND_VOICE)
    assert not psutil.Process().children()


async def test_turns_pass_between_hosts_and_back(layout: str) -> None:
    async with PipelineClient(config(layout)) as client:
        texts = [f"turn {n}" for n in range(8)]
        answers = await asyncio.gather(*(read(client.submit(request(t, LOUD, turn=t))) for t in texts))
        assert [a.text for a in answers] == [f"{t}; {HEARD}" for t in texts]
        assert [a.voice for a in answers] == [a.text for a in answers]
        for answer in answers:
            assert answer.done is not None
            stages = list(answer.done.stages.values())
            assert all(0 <= s.first_in_ms <= s.first_out_ms <= s.last_out_ms < 60_000 for s in stages)


async def test_a_killed_worker_of_another_host_comes_back(layout: str) -> None:
    async with PipelineClient(config(layout)) as client:
        stream = client.submit(request("!repeat 1500"))
        first = await anext(stream)
        pid = client.status().workers["voice"].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="worker voice was ended by signal 9"):
            await read(stream, first)
        await until(lambda: client.status().ready)
        assert (await read(client.submit(request("back", LOUD, turn="2")))).voice == f"back; {HEARD}"


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        layout = layout_file(tmp_path / "two.toml", f"port = {port}\n", VOICE)
        with pytest.raises(
            ConfigError, match=rf"tcp://127\.0\.0\.1:{port}/.*: Address already in use .*; choose"
        ):
            await PipelineClient(config(layout)).start()


class Away:
    """A host that does not answer."""

    async def start(self, config: WorkerConfig) -> WorkerProcess:
        return await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        return None


class Breaking:
    """A host, and its worker, whose end cannot be learned."""

    pid = 1

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.breaks = asyncio.Event()

    async def start(self, config: WorkerConfig) -> WorkerProcess:
        self.started.set()
        return self

    async def ended(self) -> Ending:
        await self.breaks.wait()
        raise ZeroDivisionError

    async def end(self) -> None:
        return None

    async def close(self) -> None:
        return None


def _launcher(run: RunDir, host: Host, down: list[str]) -> Launcher:
    """Of one worker, on `host`."""
    spec = WorkerSpec("voice", "10.0.0.2", {Stage.CODE2WAV: Place("voice", host="10.0.0.2")})
    return Launcher(
        config(start_timeout_s=0.1 if isinstance(host, Away) else 10.0),
        [spec],
        run.run,
        Network(ControlPlane("10.0.0.1"), {"voice": "10.0.0.2"}, run),
        host,
        lambda name: 0.0,
        lambda name, addresses: None,
        lambda name, error: down.append(name),
    )


async def test_a_supervisor_that_breaks_says_so_and_its_worker_takes_no_turns(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("voice_app"), "propagate", True)
    run, host, down = RunDir(), Breaking(), list[str]()
    launcher = _launcher(run, host, down)
    starting = asyncio.create_task(launcher.start())
    await host.started.wait()
    launcher.worker_ready("voice", 0)
    await starting
    host.breaks.set()
    await until(lambda: not launcher.is_ready("voice"))
    assert "supervise-voice broke" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert down == ["voice"]
    await launcher.stop()
    run.remove()


async def test_a_host_that_never_starts_its_worker_is_given_up() -> None:
    run = RunDir()
    down: list[str] = []
    launcher = _launcher(run, Away(), down)
    with pytest.raises(DeadlineExceeded, match=r"host 10\.0\.0\.2 did not start it within 0\.1 s"):
        await launcher.start()
    assert down == ["voice"]
    await launcher.stop()
    run.remove()


# ------------------------------------------------------------------------------------ addresses and checks


def test_nothing_listens_on_tcp_without_another_host() -> None:
    run = RunDir()
    network = Network(ControlPlane(), {"text": "localhost", "voice": "localhost"}, run)
    assert network.inboxes("voice", 3) == (f"ipc://{run.path}/voice.3",)
    assert network.address("voice", 3, seen_from="text") == f"ipc://{run.path}/voice.3"
    run.remove()


def test_ports_are_one_after_the_other_and_unix_sockets_stay_within_the_servers_host() -> None:
    run = RunDir()
    hosts = {"text": "localhost", "voice.0": "10.0.0.2", "voice.1": "10.0.0.2"}
    network = Network(ControlPlane("10.0.0.1", private_network=True), hosts, run)
    near = f"ipc://{run.path}/text.0"
    assert network.inboxes("text", 0) == (near, f"tcp://10.0.0.1:{DEFAULT_PORT + 1}/{run.run}.text.0")
    assert network.inboxes("voice.1", 5) == (
        "inproc://self",
        f"tcp://10.0.0.2:{DEFAULT_PORT + 3}/{run.run}.voice.1.5",
    )
    assert network.address("text", 0, seen_from="server") == near
    assert (
        network.address("text", 0, seen_from="voice.0")
        == f"tcp://10.0.0.1:{DEFAULT_PORT + 1}/{run.run}.text.0"
    )
    assert network.address("voice.0", 2, seen_from="voice.1").startswith(
        f"tcp://10.0.0.2:{DEFAULT_PORT + 2}/"
    )
    assert network.address("server", 0, seen_from="voice.1").startswith(f"tcp://10.0.0.1:{DEFAULT_PORT}/")
    assert network.host("text") == "10.0.0.1"
    run.remove()


@pytest.mark.parametrize(
    ("plane", "message"),
    [
        (ControlPlane(), r"host 10\.0\.0\.2: needs \[control\] address in the layout"),
        (ControlPlane("10.0.0.1"), r"--curve-keys FOLDER or, if the network is private, \[control\] private"),
        (ControlPlane("10.0.0.1", private_network=True), ""),
        (ControlPlane("10.0.0.1", curve_keys="keys"), ""),
    ],
)
def test_ports_that_others_reach_are_secured_or_said_to_be_private(plane: ControlPlane, message: str) -> None:
    plane.check({"localhost", FAR})
    try:
        plane.check({"localhost", "10.0.0.2"})
    except VoiceAppError as error:
        assert message
        with pytest.raises(ConfigError, match=message):
            raise error from None
    else:
        assert not message


@pytest.mark.parametrize(
    ("control", "message"),
    [
        ("ports = 3", "unknown field ports; there are address, port, curve_keys, private_network"),
        ('port = "3"', "port must be a number"),
        ("port = 80", "port 80 must be between 1024 and 65535"),
        ('address = "localhost"', "address 'localhost' must be an IPv4 address"),
        ('address = "0.0.0.0"', r"address '0\.0\.0\.0' must be an IPv4 address"),
        ("private_network = 1", "private_network must be true or false"),
    ],
)
def test_a_wrong_control_table_names_field_and_fix(tmp_path: Path, control: str, message: str) -> None:
    path = layout_file(tmp_path / "l.toml", control, VOICE)
    with pytest.raises(ConfigError, match=rf"l\.toml: \[control\]: {message}"):
        PipelineClient(config(path))
