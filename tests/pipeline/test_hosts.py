"""Workers on two hosts of one machine, by two addresses of loopback: control over TCP, data over Mooncake."""

import asyncio
import functools
import logging
import os
import re
import signal
import socket
import subprocess
import sys
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
from voice_app.pipeline import restarts
from voice_app.pipeline.client import PipelineClient
from voice_app.pipeline.control import WorkerConfig
from voice_app.pipeline.hosts.base import Ending, Host, WorkerProcess
from voice_app.pipeline.hosts.keeper import LOST
from voice_app.pipeline.launcher import Launcher, WorkerState
from voice_app.pipeline.layout import WorkerSpec
from voice_app.pipeline.network import DEFAULT_PORT, ControlPlane, Network
from voice_app.pipeline.restarts import MAX_LOAD_FAILURES
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


@pytest.mark.parametrize(("node", "host"), [("server", "127.0.0.1"), ("near", "127.0.0.1"), ("voice", FAR)])
async def test_a_port_that_is_taken_is_named(tmp_path: Path, node: str, host: str) -> None:
    """Whose ever it is; at once, and not three times."""
    first = free_ports(3)
    port = first + ["server", "near", "voice"].index(node)
    with socket.create_server((host, port)):
        client = PipelineClient(config(layout_file(tmp_path / "two.toml", f"port = {first}\n", VOICE)))
        with pytest.raises(ConfigError) as caught:
            await client.start()
    assert caught.value.message == (
        f"port {port} of host {host}, for {node}, is taken; choose another [control] port in the layout "
        "(each worker has one of its own after it), or end what listens there"
    )
    assert caught.value.param == "layout"


async def test_an_address_of_another_machine_is_named(tmp_path: Path) -> None:
    """TEST-NET-1 is nobody's."""
    network = Network(ControlPlane("192.0.2.1", private_network=True), {"voice": "10.0.0.2"}, run := RunDir())
    with pytest.raises(ConfigError, match=r"host 192\.0\.2\.1, of server, has another address; correct"):
        network.open("server")
    run.remove()


def test_a_run_folder_that_takes_no_socket_is_named() -> None:
    network = Network(ControlPlane(), {}, run := RunDir())
    run.remove()
    with pytest.raises(ConfigError, match="server cannot listen there: No such file") as caught:
        network.open("server")
    assert caught.value.param == "VOICE_APP_RUN_DIR"


def test_a_command_line_whose_workers_port_is_taken_ends_with_one_error(tmp_path: Path) -> None:
    first = free_ports(3)
    layout = layout_file(tmp_path / "two.toml", f"port = {first}\n", VOICE)
    command = [sys.executable, "-m", "voice_app", "serve", "--pack", "pipeline_toys:create", "--port", "0"]
    with socket.create_server((FAR, first + 2)):
        done = subprocess.run(
            [*command, "--layout", layout, "--data", str(tmp_path / "data")],
            capture_output=True,
            text=True,
            timeout=180,
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        f"voice-app serve: port {first + 2} of host {FAR}, for voice, is taken; choose another [control] port"
    )
    assert "Traceback" not in done.stderr


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


class Losing:
    """A host that is lost each time while its worker loads, until it is well. The first time it is."""

    pid = 1

    def __init__(self) -> None:
        self.launcher: Launcher | None = None
        self.starts = 0
        self.well = True
        self._lost = asyncio.Event()

    async def start(self, config: WorkerConfig) -> WorkerProcess:
        assert self.launcher is not None
        self.starts += 1
        self._lost = asyncio.Event()
        if self.well:
            asyncio.get_running_loop().call_soon(self.launcher.worker_ready, config.name, config.incarnation)
        else:
            self._lost.set()
        return self

    def lose(self) -> None:
        self.well = False
        self._lost.set()

    async def ended(self) -> Ending:
        await self._lost.wait()
        return LOST

    async def end(self) -> None:
        self._lost.set()

    async def close(self) -> None:
        return None


async def test_a_worker_that_was_ready_is_tried_again_however_often_its_host_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restarts, "FIRST_BACKOFF_S", 0.001)
    monkeypatch.setattr(restarts, "FAILING_BACKOFF_S", 0.002)
    run, host = RunDir(), Losing()
    host.launcher = launcher = _launcher(run, host, [])
    await launcher.start()
    host.lose()
    await until(lambda: host.starts > 2 * MAX_LOAD_FAILURES)
    assert launcher.state("voice") is WorkerState.FAILED
    assert re.fullmatch(
        r"worker voice is failed: worker voice was lost .* while it loaded \(\d+ times in a row\)",
        str(launcher.unready(frozenset({"voice"}))),
    )
    host.well = True
    await until(lambda: launcher.is_ready("voice"))
    assert launcher.workers["voice"].trouble is None
    await launcher.stop()
    run.remove()


async def test_a_worker_that_never_was_ready_is_given_up_after_as_many() -> None:
    run, host = RunDir(), Losing()
    host.well, host.launcher = False, (launcher := _launcher(run, host, []))
    with pytest.raises(WorkerDied, match=r"while it loaded \(3 times in a row\)"):
        await launcher.start()
    assert host.starts == MAX_LOAD_FAILURES
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
