"""Messages within a host: whole, in order, never blocking the sender, whoever comes late or goes early."""

import asyncio
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import uvloop

from voice_app.errors import ErrorInfo, TransferFailed
from voice_app.messages import TurnId
from voice_app.pipeline import unix_sockets
from voice_app.pipeline.control import Control, EndTurn, TurnFailed
from voice_app.pipeline.unix_sockets import PACKET, Backlogs, Closed, Full, Inbox, Peer, TooLarge
from voice_app.pipeline.wire import Wire

MB = 1 << 20
Connect = Callable[..., Peer]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "inbox")


@pytest.fixture
def inbox(path: str) -> Iterator[Inbox]:
    opened = Inbox(path)
    yield opened
    opened.close()


@pytest.fixture
def connect(path: str) -> Iterator[Connect]:
    backlogs = Backlogs()
    peers: list[Peer] = []

    def one(limit: int = 10_000) -> Peer:
        peers.append(Peer(path, limit, backlogs))
        return peers[-1]

    yield one
    for peer in peers:
        peer.close()
    backlogs.close()


def read(inbox: Inbox, count: int, timeout_s: float = 20.0) -> list[bytes]:
    """The next `count` messages, or as many as come in time."""
    got: list[bytes] = []
    end = time.monotonic() + timeout_s
    while len(got) < count and (left := end - time.monotonic()) > 0:
        if (data := inbox.receive(left)) is not None:
            got.append(bytes(data))
    return got


def some(size: int, seed: int = 0) -> bytes:
    """As msgpack would be: not beginning with what marks a part."""
    return b"\x93" + random.Random(seed).randbytes(size - 1)


def send_until_full(peer: Peer, size: int) -> list[bytes]:
    """What was sent before Full was raised."""
    sent: list[bytes] = []
    while len(sent) < 100_000:
        data = some(size, len(sent))
        try:
            peer.send(data)
        except Full:
            return sent
        sent.append(data)
    raise AssertionError("there is no bound")


@pytest.mark.parametrize("size", [1, PACKET - 1, PACKET, PACKET + 1, 2 * PACKET, 20 * MB + 7])
def test_a_message_of_any_size_comes_whole_and_in_its_place(
    inbox: Inbox, connect: Connect, size: int
) -> None:
    peer = connect()
    sent = [some(10, 1), some(size, 2), some(10, 3), some(size, 4), some(10, 5)]
    for data in sent:
        peer.send(data)
    assert read(inbox, 5) == sent
    assert inbox.receive(0.0) is None


def test_messages_that_come_before_the_inbox_are_there_when_it_opens(path: str, connect: Connect) -> None:
    peer = connect()
    sent = [some(1000, n) for n in range(50)]
    for data in sent[:-1]:
        peer.send(data)
    late = Inbox(path)
    assert read(late, 49) == sent[:-1]
    peer.send(sent[-1])
    assert read(late, 1) == sent[-1:]
    late.close()


def test_a_node_that_reads_nothing_blocks_no_sender_and_gets_all_in_order_later(
    inbox: Inbox, connect: Connect
) -> None:
    peer = connect(limit=500)
    sent = send_until_full(peer, 4096)
    assert len(sent) > 500, "the socket itself takes some"
    assert read(inbox, len(sent)) == sent
    peer.send(b"\x90")
    assert read(inbox, 1) == [b"\x90"]


def test_several_threads_send_to_one_node_and_each_ones_order_is_kept(inbox: Inbox, connect: Connect) -> None:
    peer = connect()

    def send(name: int) -> None:
        for n in range(300):
            peer.send(b"\x93" + bytes((name,)) + n.to_bytes(4, "big") + bytes(5000))

    threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    got = read(inbox, 1200)
    for thread in threads:
        thread.join()
    for name in range(4):
        assert [int.from_bytes(d[2:6], "big") for d in got if d[1] == name] == list(range(300))


def test_a_flood_from_one_node_does_not_keep_another_waiting(inbox: Inbox, connect: Connect) -> None:
    flood, other = connect(), connect()
    for _ in range(200):
        flood.send(b"\x90flood")
    other.send(b"\x90other")
    assert b"\x90other" in read(inbox, 4)


_DIES_HALFWAY = """
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
s.send(b"\\x90whole")
s.send(b"\\xc1\\x01half of a message")
"""


def test_half_a_message_of_a_node_that_died_is_dropped_with_it(
    path: str, inbox: Inbox, connect: Connect
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    subprocess.run([sys.executable, "-c", _DIES_HALFWAY, path], check=True)
    assert read(inbox, 1) == [b"\x90whole"]
    assert inbox.receive(0.0) is None
    assert len(os.listdir("/proc/self/fd")) == before, "its connection is closed"
    peer = connect()
    peer.send(b"\x90")
    assert read(inbox, 1) == [b"\x90"]


@pytest.mark.parametrize("part", [b"", b"\xc1", b"\xc1\x02", b"\xc1\xc1\xc1"])
def test_what_no_node_sends_is_handed_on_for_the_reader_to_complain_of(
    path: str, inbox: Inbox, part: bytes
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.connect(path)
        stranger.send(part)
        stranger.send(b"\x90")
        assert read(inbox, 2) == [part, b"\x90"]


def test_a_message_without_end_is_given_up(
    path: str, inbox: Inbox, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_sockets, "LARGEST", 1000)
    with pytest.raises(TooLarge):
        connect().send(some(PACKET + 1))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.connect(path)
        for _ in range(11):
            stranger.send(b"\xc1\x01" + bytes(100))
        assert read(inbox, 1) == [b"\xc1\x01"], "which is no message"


def test_a_node_that_ended_fails_no_send_until_it_is_disconnected(path: str, connect: Connect) -> None:
    first = Inbox(path)
    peer = connect(limit=20)
    peer.send(b"\x901")
    assert read(first, 1) == [b"\x901"]
    first.close()
    assert len(send_until_full(peer, 10)) == 20
    peer.close()
    with pytest.raises(Closed):
        peer.send(b"\x90")


# ------------------------------------------------------------------------------------------- as the wire's


def message(number: int) -> EndTurn:
    return EndTurn(TurnId("s", "t", number))


def test_closing_leaves_no_file_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    process = psutil.Process()
    before = (process.num_fds(), threading.active_count())
    here = Wire(f"ipc://{tmp_path}/here")
    there = Wire(f"ipc://{tmp_path}/there")
    here.connect("there", f"ipc://{tmp_path}/there")
    here.connect("nobody", f"ipc://{tmp_path}/nobody")
    here.send("nobody", message(0))
    for n in range(5000):
        here.send("there", message(n))
    assert there.receive(5.0) == message(0)
    assert threading.active_count() == before[1] + 1, "what waits is sent by one thread"
    here.close()
    there.close()
    assert (process.num_fds(), threading.active_count()) == before
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TransferFailed, match="not connected"):
        here.send("there", message(0))


def test_a_new_address_takes_the_place_of_the_old_one_and_gets_no_old_mail(tmp_path: Path) -> None:
    here = Wire(f"ipc://{tmp_path}/here")
    here.connect("worker", f"ipc://{tmp_path}/worker.0")
    here.send("worker", message(0))
    there = Wire(f"ipc://{tmp_path}/worker.1")
    here.connect("worker", f"ipc://{tmp_path}/worker.1")
    here.send("worker", message(1))
    assert there.receive(5.0) == message(1)
    here.disconnect("worker")
    with pytest.raises(TransferFailed, match="worker is not connected"):
        here.send("worker", message(2))
    here.close()
    there.close()


def test_what_comes_within_the_host_and_over_tcp_is_read_in_turns(tmp_path: Path) -> None:
    """Both wake the reader, none is lost, and neither waits until the other has no more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as server:
        far_port = server.getsockname()[1]
    hub = Wire(f"ipc://{tmp_path}/hub", f"tcp://127.0.0.1:{port}/run-hub.0")
    near = Wire(f"ipc://{tmp_path}/near")
    far = Wire(f"tcp://127.0.0.1:{far_port}/run-far.0")
    near.connect("hub", f"ipc://{tmp_path}/hub")
    far.connect("hub", f"tcp://127.0.0.1:{port}/run-hub.0")
    hub.connect("far", f"tcp://127.0.0.1:{far_port}/run-far.0")
    count = 200

    def first() -> Control | None:
        end = time.monotonic() + 10.0
        while (left := end - time.monotonic()) > 0:
            if (received := hub.receive(left)) is not None:
                return received
        return None

    for sender, number in ((near, 0), (far, 1), (near, 2), (far, 3)):  # Nothing else is there to wake it.
        sender.send("hub", message(number))
        assert first() == message(number)
    for n in range(count):
        near.send("hub", message(n))
        far.send("hub", message(1000 + n))
    got = [received.turn.generation for _ in range(2 * count) if isinstance(received := first(), EndTurn)]
    assert [n for n in got if n < 1000] == list(range(count))
    assert [n for n in got if n >= 1000] == list(range(1000, 1000 + count))
    for sender in (near, far):
        sender.send("hub", message(0))
    assert [first(), first()] == [message(0)] * 2
    for wire in (hub, near, far):
        wire.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_event_loop_is_woken_for_every_message(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    here = Wire(f"ipc://{tmp_path}/here")
    there = Wire(f"ipc://{tmp_path}/there")
    here.connect("there", f"ipc://{tmp_path}/there")
    large = TurnFailed(TurnId("s", "t"), ErrorInfo("x", "m" * (3 * MB)))

    async def talk() -> list[Control]:
        got: list[Control] = []
        more = asyncio.Event()

        def readable() -> None:
            got.extend(there.waiting())
            more.set()

        asyncio.get_running_loop().add_reader(there.fileno(), readable)
        for n in range(50):
            here.send("there", message(n) if n % 10 else large)
            async with asyncio.timeout(10.0):
                while len(got) <= n:
                    more.clear()
                    await more.wait()
        asyncio.get_running_loop().remove_reader(there.fileno())
        return got

    with asyncio.Runner(loop_factory=loop) as runner:
        got = runner.run(talk())
    assert got == [message(n) if n % 10 else large for n in range(50)]
    here.close()
    there.close()
