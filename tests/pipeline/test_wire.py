"""What is on the wire, and what is done with what should not be there."""

import ast
import asyncio
import fcntl
import logging
import os
import pickletools
import select
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest
from pipeline_talk import LOUD, PICTURE, Answer, config, outcome, read, request, runs, settled, until
from pipeline_toys import record_wire, spoil_acks

import voice_app
from voice_app import messages as m
from voice_app.errors import ConfigError, TransferFailed, TurnCancelled
from voice_app.messages import Stage, TurnId
from voice_app.pipeline import rundir
from voice_app.pipeline import wire as wire_module
from voice_app.pipeline.client import PipelineClient
from voice_app.pipeline.control import (
    AckRequest,
    DataReady,
    Edge,
    EndTurn,
    HandOffStats,
    Lane,
    Shutdown,
    from_bytes,
    lane_key,
    to_bytes,
)
from voice_app.pipeline.rundir import RunDir
from voice_app.pipeline.wire import HIGH_WATER, Wire

JUNK = [
    b"",
    b"\x00",
    b"\xc1\xc1\xc1",
    b"\x80\x04\x95\x00\x00",
    to_bytes(EndTurn(TurnId("s", "t")))[:-1],
    *map(
        msgspec.msgpack.encode,
        (
            {"type": "no such message"},
            {"type": "end", "turn": {"session": 1, "turn": "t"}},
            {"type": "ready", "lane": "a text", "seq": 0},
            ["end"],
        ),
    ),
]
_NO_LANE = msgspec.msgpack.encode([[{"session": "s", "turn": "t"}, "thinker", "no such stage"], "text"])
NO_LANE = [
    to_bytes(DataReady(b"\xc1", 0, m.TokenId(5))),
    to_bytes(DataReady(_NO_LANE, 0, m.TokenId(5))),
    to_bytes(AckRequest(_NO_LANE, (0,))),
]
"""Messages about payloads of no turn and no edge."""


def test_malformed_messages_are_dropped_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("voice_app"), "propagate", True)
    wire = Wire(f"ipc://{tmp_path}/inbox")
    stranger = _stranger(wire.address)
    for junk in JUNK:
        stranger.send(junk)
    stranger.send(to_bytes(EndTurn(TurnId("s", "t"))))
    received = [wire.receive(30.0) for _ in range(len(JUNK) + 1)]
    assert received[:-1] == [None] * len(JUNK)
    assert received[-1] == EndTurn(TurnId("s", "t"))
    assert wire.malformed == len(JUNK)
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    stranger.close()
    wire.close()


async def test_a_worker_survives_malformed_messages() -> None:
    async with PipelineClient(config()) as client:
        (run,) = runs()
        folder = f"{os.environ['VOICE_APP_RUN_DIR']}/voice-app-run-{run}"
        nodes = ("encoders.0", "text.0", "voice.0", "server.0")
        strangers = [_stranger(f"ipc://{folder}/{node}") for node in nodes]
        for stranger in strangers:
            for junk in (JUNK + NO_LANE) * 3:
                stranger.send(junk)
        answer = await read(client.submit(request("still well")))
        assert answer.voice == "still well"
        workers = client.status().workers
        await until(
            lambda: all(
                w.hand_off.malformed == 3 * len(JUNK + NO_LANE) for w in client.status().workers.values()
            )
        )
        await until(lambda: client.status().hand_off.malformed == 3 * len(JUNK + NO_LANE))
        assert [w.pid for w in client.status().workers.values()] == [w.pid for w in workers.values()]
        psutil.Process(workers["voice"].pid).kill()
        await until(lambda: client.status().workers["voice"].restarts == 1)
        assert client.status().workers["voice"].hand_off == HandOffStats(), "the figures of one that is dead"
        for stranger in strangers:
            stranger.close()


async def test_what_comes_of_an_older_generation_is_dropped_and_counted() -> None:
    newest = TurnId("s", "t", 4)
    async with PipelineClient(config()) as client:
        (run,) = runs()
        folder = f"{os.environ['VOICE_APP_RUN_DIR']}/voice-app-run-{run}"
        await read(client.submit(request("newest", turn="t", generation=4)))
        voice, server = (_stranger(f"ipc://{folder}/{node}") for node in ("voice.0", "server.0"))
        for generation in range(newest.generation + 1):
            old = msgspec.structs.replace(newest, generation=generation)
            late = lane_key(Lane(Edge(old, Stage.THINKER, Stage.TALKER_AR), "text", True, 0.0))
            voice.send(to_bytes(DataReady(late, 0, m.TokenVector(5, np.ones(4)))))
            late = lane_key(Lane(Edge(old, Stage.DECODE, None), "text", True, 0.0))
            server.send(to_bytes(DataReady(late, 0, m.TextDelta("old"))))
        answer = await read(client.submit(request("newer", turn="t", generation=5)))
        assert answer.voice == answer.text == "newer"
        await until(lambda: client.status().workers["voice"].hand_off.stale == 5)
        await until(lambda: client.status().hand_off.stale == 5)
        await until(lambda: settled(client))
        voice.close()
        server.close()


@pytest.mark.parametrize("fate", ["lost", "doubled", "late"])
async def test_acks_that_go_wrong_cost_no_turn(fate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wire, "send_bytes", Wire.send_bytes)  # To be put back.
    spoil_acks(fate)
    async with PipelineClient(config(model=f"acks:{fate}")) as client:
        turns = [request("!repeat 100", LOUD, PICTURE, turn=str(n)) for n in range(6)]
        streams = [client.submit(turn) for turn in turns]
        first = await anext(streams[0])
        client.cancel(turns[1].turn)
        whole = await asyncio.gather(read(streams[0], first), *(outcome(stream) for stream in streams[1:]))
        assert isinstance(whole[1], TurnCancelled)
        answers = [answer for answer in whole if isinstance(answer, Answer)]
        assert [len(answer.voice) for answer in answers] == [100] * 5
        await until(lambda: settled(client))


def _stranger(address: str) -> socket.socket:
    """What writes to the inbox of a node of this host, without being one."""
    if sys.platform != "linux":
        pytest.skip("messages within a host go through ZMQ here, and no stranger's socket reaches it")
    stranger = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stranger.connect(address.removeprefix("ipc://"))
    return stranger


async def test_no_pickle_on_the_wire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the server and both workers send in a whole turn, byte for byte, is msgpack and arrays."""
    monkeypatch.setattr(Wire, "send_bytes", Wire.send_bytes)  # To be put back.
    record_wire(tmp_path / "server")
    sound = m.AudioPart(np.random.default_rng(3).standard_normal(8000).astype(np.float32), 16_000)
    async with PipelineClient(config(model=f"wire:{tmp_path / 'workers'}")) as client:
        assert (await read(client.submit(request("abc", sound)))).kinds[-1] == "TurnDone"
    workers, server = (_recorded(tmp_path / name) for name in ("workers", "server"))
    assert len(workers) > 20
    assert not any(map(_is_pickle, workers + server))
    assert {"DataReady", "DataAck", "TurnEnded", "WorkerReady", "StageReport"} <= _kinds(workers)
    assert {"DataReady", "DataAck", "EndTurn"} <= _kinds(server)


def _recorded(log: Path) -> list[bytes]:
    """The messages that `record_wire` wrote."""
    messages: list[bytes] = []
    data = log.read_bytes()
    while data:
        size = int.from_bytes(data[:4], "little")
        messages.append(data[4 : 4 + size])
        data = data[4 + size :]
    return messages


def _kinds(messages: list[bytes]) -> set[str]:
    return {type(from_bytes(message)).__name__ for message in messages}


def _is_pickle(data: bytes) -> bool:
    try:
        operations = [op.name for op, _, _ in pickletools.genops(data)]
    except ValueError:
        return False
    return operations[-1:] == ["STOP"]


def test_no_module_of_ours_imports_pickle() -> None:
    root = Path(voice_app.__file__).parent
    names = {
        name.split(".")[0]
        for package in ("pipeline", "schedulers", "server")
        for path in (root / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in _imports(node)
    }
    assert "msgspec" in names
    assert not names & {"pickle", "cloudpickle", "dill", "marshal", "shelve", "multiprocessing"}


def _imports(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            return [node.module or ""]
        case _:
            return []


def test_the_clients_process_imports_no_model_library() -> None:
    code = (
        "import sys, voice_app.pipeline.client\n"
        "heavy = {'torch', 'onnxruntime', 'transformers', 'ctranslate2', 'onnx', 'gruut', 'safetensors'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert result.stdout == "[]\n"


def test_a_node_that_does_not_read_fails_the_send_and_never_blocks(tmp_path: Path) -> None:
    wire = Wire(f"ipc://{tmp_path}/inbox")
    wire.connect("gone", f"ipc://{tmp_path}/nobody")
    with pytest.raises(TransferFailed, match="gone does not read"):
        _send_many(wire, 2 * HIGH_WATER)
    with pytest.raises(TransferFailed, match="never is not connected"):
        wire.send("never", Shutdown())
    wire.close()


def _send_many(wire: Wire, count: int) -> None:
    for _ in range(count):
        wire.send("gone", Shutdown())


def test_zmq_within_the_host_where_unix_sockets_keep_no_message_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS."""
    monkeypatch.setattr(wire_module, "_UNIX_SOCKETS", False)
    here, there = Wire(f"ipc://{tmp_path}/here"), Wire(f"ipc://{tmp_path}/there")
    here.connect("there", there.address)
    sent = [EndTurn(TurnId("s", "t", n)) for n in range(20)]
    for message in sent:
        here.send("there", message)
    with pytest.raises(OSError, match=r"wrong type"):
        _stranger(there.address)
    assert select.select([there.fileno()], [], [], 30.0)[0] != []
    assert [there.receive(30.0) for _ in range(10)] == sent[:10]
    rest: list[object] = [*there.waiting()]
    while len(rest) < 10 and select.select([there.fileno()], [], [], 30.0)[0]:
        rest += there.waiting()
    assert rest == sent[10:]
    here.close()
    there.close()


# ---------------------------------------------------------------------------------------------- run folder

_KILLED_RUN = """
import os, signal
from voice_app.pipeline.rundir import RunDir
RunDir()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_run_folder_is_private_and_swept_only_when_its_owner_is_gone() -> None:
    run = RunDir()
    assert run.path.stat().st_mode & 0o777 == 0o700
    assert rundir.sweep() == []
    subprocess.run([sys.executable, "-c", _KILLED_RUN], check=False)
    swept = rundir.sweep()
    assert len(swept) == 1
    assert run.path.exists()
    run.remove()
    assert not run.path.exists()


def test_a_sweep_while_the_run_folder_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, swept = fcntl.flock, []

    def flock(descriptor: int, how: int) -> None:
        if not how & fcntl.LOCK_NB:
            swept.extend(rundir.sweep())
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    run = RunDir()
    assert swept == []
    assert rundir.sweep() == []
    assert run.path.exists()
    run.remove()


def test_a_folder_whose_maker_was_killed_is_swept_after_a_while() -> None:
    left = RunDir()
    (left.path / "lock").unlink()
    assert rundir.sweep() == []
    os.utime(left.path, (0, 0))
    assert rundir.sweep() == [left.path]
    left.remove()


def test_a_socket_path_that_would_be_too_long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VOICE_APP_RUN_DIR", str(tmp_path / ("x" * 80)))
    with pytest.raises(ConfigError, match=r"VOICE_APP_RUN_DIR .*too long .* at most \d+ bytes"):
        RunDir()
    # Nobody chose this one: a shorter one is taken.
    monkeypatch.delenv("VOICE_APP_RUN_DIR")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / ("x" * 80)))
    run = RunDir()
    assert len(run.address("w" * 20 + ".9999999")) - len("ipc://") <= 103
    run.remove()


def test_a_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICE_APP_RUN_DIR", "/dev/null")
    with pytest.raises(ConfigError, match=r"cannot be made: .*; set VOICE_APP_RUN_DIR"):
        RunDir()
