"""Workers on two hosts that are network namespaces: Ray starts them, control goes over TCP with CURVE keys,
data over Mooncake, and the cable between the hosts is cut."""

import asyncio
import base64
import contextlib
import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import needs
import numpy as np
import psutil
import pytest
import two_hosts
from pipeline_talk import Answer, config, read, request, runs, segments, settled, until
from test_hosts import ENCODERS_AND_VOICE, HEARD, LOUD, VOICE, layout_file, missing_mooncake
from test_tcp_wire import new_keys
from two_hosts import FAR, NEAR, RAY, TwoHosts
from websockets.asyncio.client import connect

from voice_app import messages as m
from voice_app.errors import ConfigError, PipelineError, TransferFailed, VoiceAppError, WorkerDied
from voice_app.messages import TurnEvent
from voice_app.pipeline.client import PipelineClient, WorkerState
from voice_app.pipeline.links import CUT_S, SILENT_S

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def ray_hosts() -> Iterator[TwoHosts]:
    """Both hosts with Ray, which takes some ten seconds: once for all tests."""
    if importlib.util.find_spec("ray") is None:
        needs.missing("Ray", "pip install 'voice-app[ray]'")
    if missing_mooncake():
        needs.missing("Mooncake", missing_mooncake())
    if missing := two_hosts.unusable():
        needs.missing(missing, "two hosts as network namespaces are made by root with ip")
    here = str(Path(__file__).parent)
    with pytest.MonkeyPatch.context() as patch:
        # Ray's workers have the environment of the node that they are on; Ray reads it when it is imported.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        with two_hosts.two_hosts() as made:
            yield made


@pytest.fixture
def hosts(ray_hosts: TwoHosts) -> TwoHosts:
    # A test that failed may have left them without a link.
    ray_hosts.heal()
    ray_hosts.complete()
    return ray_hosts


@pytest.fixture
def layout(tmp_path: Path) -> str:
    keys = new_keys(tmp_path / "keys")
    control = f'address = "{NEAR}"\ncurve_keys = "{keys.folder}"\n'
    return layout_file(tmp_path / "two.toml", control, ENCODERS_AND_VOICE, FAR)


@pytest.fixture
async def client(hosts: TwoHosts, layout: str) -> AsyncIterator[PipelineClient]:
    async with PipelineClient(msgspec.structs.replace(config(layout), ray=RAY)) as client:
        yield client
        pids = [w.pid for w in client.status().workers.values() if w.pid]
    await until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


async def outcome(stream: AsyncIterator[TurnEvent], *already: TurnEvent) -> Answer | VoiceAppError:
    try:
        return await read(stream, *already)
    except VoiceAppError as error:
        return error


async def test_two_hosts(hosts: TwoHosts, client: PipelineClient) -> None:
    """One pipeline for all, because its start takes seconds: a whole turn, a short cut, a long one, a narrow
    link, and a killed worker, each followed by a turn that works."""
    workers = client.status().workers
    assert {workers["encoders"].pid, workers["voice"].pid} <= hosts.pids(hosts.far)
    assert workers["near"].pid in hosts.pids(hosts.near)
    await _turn_works(client, "first")

    await _short_cut_heals(hosts, client)
    await _turn_works(client, "after the short cut")

    await _long_cut_fails_its_turn(hosts, client)
    await _turn_works(client, "after the long cut")
    assert all(worker.restarts == 0 for worker in client.status().workers.values())

    await _narrow_link_only_takes_longer(hosts, client)
    await _turn_works(client, "after the narrow link")

    for cut_s in (SILENT_S / 2, CUT_S + 1.0):
        await _cut_in_mid_transfer(hosts, client, cut_s)
        await _turn_works(client, f"after the transfer that was cut for {cut_s:g} s")
        await until(lambda: settled(client))
    assert all(worker.restarts == 0 for worker in client.status().workers.values())

    for victim in ("worker", "keeper"):
        await _killed_comes_back(hosts, client, victim)
        await _turn_works(client, f"after the {victim}'s death")


async def _turn_works(client: PipelineClient, text: str) -> None:
    answer = await read(client.submit(request(text, LOUD, turn=text)))
    assert answer.text == answer.voice == f"{text}; {HEARD}"


async def _short_cut_heals(hosts: TwoHosts, client: PipelineClient) -> None:
    stream = client.submit(request("!repeat 1000", turn="short"))
    first = await anext(stream)
    hosts.cut()
    await asyncio.sleep(SILENT_S / 2)
    hosts.heal()
    answer = await read(stream, first)
    assert len(answer.voice) == 1000
    assert answer.voice == answer.text


async def _long_cut_fails_its_turn(hosts: TwoHosts, client: PipelineClient) -> None:
    stream = client.submit(request("!repeat 2000", turn="long"))
    first = await anext(stream)
    hosts.cut()
    start = time.monotonic()
    failed = await outcome(stream, first)
    assert isinstance(failed, TransferFailed)
    assert "was not heard of for" in failed.message
    assert time.monotonic() - start > CUT_S
    assert client.status().workers["voice"].state is WorkerState.UNREACHABLE
    assert not client.status().ready
    with pytest.raises(PipelineError, match=r"worker (encoders|voice) is unreachable, try again"):
        client.submit(request("meanwhile", turn="meanwhile"))
    hosts.heal()
    await until(lambda: client.status().ready)


async def _narrow_link_only_takes_longer(hosts: TwoHosts, client: PipelineClient) -> None:
    hosts.limit(megabits=8)
    try:
        # Some 640 KB of embeddings come back over it.
        start = time.monotonic()
        await _turn_works(client, "narrow")
        assert time.monotonic() - start > 0.5
    finally:
        hosts.unlimit()


async def _cut_in_mid_transfer(hosts: TwoHosts, client: PipelineClient, cut_s: float) -> None:
    """While the near thinker reads the far encoder's embeddings, of 2.6 MB, with 1 MB a second."""
    sound = m.AudioPart(np.full(640_000, 0.25, np.float32), 16_000)
    hosts.limit(megabits=8)
    before = hosts.sent_by_far()
    stream = client.submit(request("cut", sound, turn=f"cut for {cut_s:g} s"))
    await until(lambda: hosts.sent_by_far() - before > 500_000)
    hosts.cut()
    assert hosts.sent_by_far() - before < 2_000_000, "it was nearly there: this test tests nothing"
    await asyncio.sleep(cut_s)
    hosts.heal()
    hosts.unlimit()
    ended = await outcome(stream)
    if cut_s < CUT_S:
        assert isinstance(ended, Answer), ended
        assert ended.text == ended.voice == "cut; heard 640000 samples, sum 160000.000"
    else:
        assert isinstance(ended, TransferFailed)
        await until(lambda: client.status().ready)


async def _killed_comes_back(hosts: TwoHosts, client: PipelineClient, victim: str) -> None:
    stream = client.submit(request("!repeat 2000", turn=victim))
    first = await anext(stream)
    before = client.status().workers["voice"]
    assert before.pid is not None
    parent = psutil.Process(before.pid).parent()
    assert parent is not None
    os.kill(before.pid if victim == "worker" else parent.pid, signal.SIGKILL)
    how = "was ended by signal 9" if victim == "worker" else "was lost with its Ray actor"
    with pytest.raises(WorkerDied, match=f"worker voice {how}"):
        await read(stream, first)
    await until(lambda: client.status().ready)
    after = client.status().workers["voice"]
    assert after.restarts == before.restarts + 1
    assert after.pid in hosts.pids(hosts.far)
    await until(lambda: before.pid is not None and not psutil.pid_exists(before.pid))


async def test_a_host_that_is_lost_gets_its_workers_again(hosts: TwoHosts, client: PipelineClient) -> None:
    stream = client.submit(request("!repeat 3000", turn="lost"))
    first = await anext(stream)
    hosts.lose()
    assert isinstance(await outcome(stream, first), TransferFailed | WorkerDied)
    assert client.status().workers["near"].state is WorkerState.READY
    assert not client.status().ready
    await asyncio.to_thread(hosts.join)
    await until(lambda: client.status().ready, 120.0)
    assert client.status().workers["voice"].pid in hosts.pids(hosts.far)
    await _turn_works(client, "again")


# ------------------------------------------------------------------------------------ from the command line


@pytest.mark.models
async def test_a_server_with_a_worker_on_another_host(hosts: TwoHosts, tmp_path: Path) -> None:
    """`voice-app serve --ray`: a turn, a killed worker, a turn, and an orderly end."""
    keys = new_keys(tmp_path / "keys")
    layout = layout_file(tmp_path / "two.toml", f'address = "{NEAR}"\n', VOICE, FAR)
    options = ("--layout", layout, "--ray", RAY, "--curve-keys", str(keys.folder), "--port", str(PORT))
    command = [sys.executable, "-m", "voice_app", "serve", *options, "--data", str(tmp_path / "data")]
    log = tmp_path / "log"
    with log.open("w") as written:
        server = await asyncio.create_subprocess_exec(*command, stderr=written)
    try:
        first = await _served(server, log, restarts=0)
        run = runs()
        assert first in hosts.pids(hosts.far)
        await _talk("Hello!")
        os.kill(first, signal.SIGKILL)
        second = await _served(server, log, restarts=1)
        assert second in hosts.pids(hosts.far)
        await _talk("What do bees make?")
        children = psutil.Process(server.pid).children(recursive=True)
        server.terminate()
        assert await asyncio.wait_for(server.wait(), 60.0) == 0, _read(log)
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()
    assert "Traceback" not in _read(log)
    assert not psutil.wait_procs([*children, *_processes(first, second)], timeout=5.0)[1]
    for host in (hosts.near, hosts.far):
        left = [" ".join(process.cmdline()) for process in _processes(*hosts.pids(host))]
        assert not [line for line in left if "voice_app" in line or "Keeper" in line]
    assert runs() == set()
    assert segments(run) == set()


PORT = 8123


def _read(log: Path) -> str:
    return log.read_text()


async def _served(server: asyncio.subprocess.Process, log: Path, *, restarts: int) -> int:
    """Once the server is ready, and its voice was started again so often: the voice's process."""
    async with asyncio.timeout(240.0), httpx.AsyncClient(base_url=f"http://127.0.0.1:{PORT}") as http:
        while True:
            assert server.returncode is None, _read(log)
            with contextlib.suppress(httpx.HTTPError):
                ready = (await http.get("/ready")).json()
                voice = next((row for row in ready["stages"] if row["stage"] == "talker_ar"), None)
                if ready["ready"] and voice and voice["restarts"] == restarts:
                    return voice["pid"]
            await asyncio.sleep(0.1)


async def _talk(text: str) -> None:
    """A spoken answer to it comes over the WebSocket, whole."""
    content = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": "user", "content": content}
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(60.0), connect(f"ws://127.0.0.1:{PORT}/v1/realtime") as socket:
        await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
        await socket.send(json.dumps({"type": "response.create"}))
        while not events or events[-1]["type"] != "response.done":
            events.append(json.loads(await socket.recv()))
    response = events[-1]["response"]
    assert response["status"] == "completed"
    assert response["output"][0]["content"][0]["transcript"]
    sound = [event["delta"] for event in events if event["type"] == "response.output_audio.delta"]
    assert sum(len(base64.b64decode(piece)) for piece in sound) > 10_000


def _processes(*pids: int) -> list[psutil.Process]:
    """Those of them that are there."""
    found: list[psutil.Process] = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


async def test_no_cluster_at_the_address(hosts: TwoHosts, layout: str) -> None:
    """Refused before Ray itself would try for half a minute."""
    start = PipelineClient(msgspec.structs.replace(config(layout), ray=f"{NEAR}:6380")).start()
    with pytest.raises(ConfigError, match=rf"--ray {NEAR}:6380: .*ray start --head"):
        await start


def test_what_a_killed_run_left_is_removed_and_nothing_else(hosts: TwoHosts) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = f"{two_hosts.PREFIX}{gone.pid}-far"
    subprocess.run(["ip", "netns", "add", left], check=True)
    # It says so once it is in there.
    command = ["ip", "netns", "exec", left, "sh", "-c", "echo; exec sleep 600"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    two_hosts.sweep()
    assert process.wait(60.0) == -signal.SIGKILL
    process.stdout.close()
    names = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
    assert left not in names
    assert hosts.far in names


async def test_a_host_that_the_cluster_does_not_have_is_named(hosts: TwoHosts, tmp_path: Path) -> None:
    control = f'address = "{NEAR}"\nprivate_network = true\n'
    layout = layout_file(tmp_path / "two.toml", control, ENCODERS_AND_VOICE, "10.77.0.3")
    start = PipelineClient(msgspec.structs.replace(config(layout), ray=RAY)).start()
    with pytest.raises(
        ConfigError, match=rf"host 10\.77\.0\.3: no node of the Ray cluster .* {NEAR}, {FAR}; "
    ):
        await start
