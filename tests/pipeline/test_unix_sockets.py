"""Messages within a host: whole, in order, never blocking the sender, whoever comes late or goes early."""

import contextlib
import os
import random
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from voice_app.pipeline import unix_sockets
from voice_app.pipeline.unix_sockets import PACKET, Backlogs, Closed, Full, Inbox, Peer, TooLarge

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no Unix sockets that keep messages whole")

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


def read(inbox: Inbox, count: int, timeout_s: float = 60.0) -> list[bytes]:
    """The next `count` messages, or as many as come in time."""
    got: list[bytes] = []
    end = time.monotonic() + timeout_s
    while len(got) < count and (left := end - time.monotonic()) > 0:
        if (data := inbox.receive(left)) is not None:
            got.append(bytes(data))
    return got


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """None but those that are closed meanwhile."""
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def idle() -> Backlogs:
    """Sends nothing on: `flush` is the test's."""
    backlogs = Backlogs()
    backlogs.close()
    return backlogs


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


def test_a_stranger_that_sends_no_more_is_no_stream_of_empty_messages(path: str, inbox: Inbox) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.connect(path)
        stranger.send(b"\x90")
        stranger.shutdown(socket.SHUT_WR)
        assert read(inbox, 1) == [b"\x90"]
        assert inbox.receive(0.0) is None
        assert len(os.listdir("/proc/self/fd")) == before + 1, "its own end only"


def test_a_connection_that_finds_no_descriptor_is_taken_once_another_is_closed(
    inbox: Inbox, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_sockets, "_ACCEPT_AGAIN_S", 1000.0)
    first = connect()
    first.send(b"\x901")
    assert read(inbox, 1) == [b"\x901"]
    second = connect()
    second.send(b"\x902")
    with no_descriptor_left():
        assert inbox.receive(0.0) is None
        assert not select.select([inbox.fileno()], [], [], 0.0)[0], "an event loop has no rest"
        first.send(b"\x903")
        assert read(inbox, 1) == [b"\x903"], "the others are read meanwhile"
        first.close()
        assert read(inbox, 1) == [b"\x902"]


def test_a_connection_that_finds_no_descriptor_is_taken_after_a_while(
    inbox: Inbox, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_sockets, "_ACCEPT_AGAIN_S", 0.01)
    connect().send(b"\x90")
    with no_descriptor_left():
        for _ in range(3):
            assert select.select([inbox.fileno()], [], [], 20.0)[0], "an event loop is not woken"
            assert inbox.receive(0.0) is None
    assert read(inbox, 1) == [b"\x90"]


def test_where_a_socket_has_little_room_messages_go_in_smaller_parts(
    inbox: Inbox, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_sockets, "_SEND_BUFFER", 1)
    peer = connect()
    sent = [some(size, size) for size in (10, 4096, 10_000, PACKET, 10, MB)]
    for data in sent:
        peer.send(data)
    assert read(inbox, len(sent)) == sent


def test_what_waits_is_bounded_in_bytes_too(
    path: str, idle: Backlogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_sockets, "MOST_WAITING", MB)
    peer = Peer(path, 10_000, idle)
    assert len(send_until_full(peer, 64 * 1024)) == 16
    with contextlib.closing(Inbox(path)) as inbox:
        while peer.flush() is not None:
            assert inbox.receive(20.0) is not None
        while inbox.receive(0.0) is not None:
            pass
        sent = len(send_until_full(peer, 64 * 1024))
        read_again = 0
        while inbox.receive(0.0) is not None:
            read_again += 1
        assert sent - read_again == 16, "what was sent on waits no more"
    peer.close()


def test_who_sends_waits_for_some_packets_of_those_that_wait_only(
    path: str, idle: Backlogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_sockets, "_AT_ONCE", 3)
    peer = Peer(path, 100, idle)
    sent = [some(10, n) for n in range(7)]
    for data in sent:
        peer.send(data)
    with contextlib.closing(Inbox(path)) as inbox:
        for part in (sent[:3], sent[3:6]):
            descriptor = peer.flush()
            assert descriptor is not None
            assert descriptor >= 0
            assert read(inbox, 3) == part
            assert inbox.receive(0.0) is None
        assert peer.flush() is None
        assert read(inbox, 1) == sent[6:]
    peer.close()


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
