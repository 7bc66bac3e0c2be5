"""A node's messages within its host and over TCP: read in turns, all of them, and nothing left behind."""

import asyncio
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import uvloop

from voice_app.errors import ErrorInfo, TransferFailed
from voice_app.messages import TurnId
from voice_app.pipeline.control import Control, EndTurn, TurnFailed
from voice_app.pipeline.wire import Wire

MB = 1 << 20
FAR = 1 << 40
"""What comes over TCP is numbered from here."""


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
    assert there.receive(30.0) == message(0)
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
    assert there.receive(30.0) == message(1)
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
        end = time.monotonic() + 60.0
        while (left := end - time.monotonic()) > 0:
            if (received := hub.receive(left)) is not None:
                return received
        return None

    for sender, number in ((near, 0), (far, 1), (near, 2), (far, 3)):  # Nothing else is there to wake it.
        sender.send("hub", message(number))
        assert first() == message(number)
    for n in range(count):
        far.send("hub", message(FAR + n))
    got = [first()]  # The others follow.
    near.send("hub", message(0))
    got += [first(), first()]
    assert message(0) in got, "what comes within the host waits until nothing else is there"
    sent, end = 1, time.monotonic() + 60.0
    while got[-1] != message(FAR + count - 1) and time.monotonic() < end:
        near.send("hub", message(sent))
        sent += 1
        got.append(first())
    assert got[-1] == message(FAR + count - 1), "what comes over TCP waits until nothing else is there"
    got += [first() for _ in range(count + sent - len(got))]
    numbers = [received.turn.generation for received in got if isinstance(received, EndTurn)]
    assert [n for n in numbers if n < FAR] == list(range(sent))
    assert [n for n in numbers if n >= FAR] == list(range(FAR, FAR + count))
    for sender in (near, far):
        sender.send("hub", message(0))
    assert [first(), first()] == [message(0)] * 2
    for wire in (hub, near, far):
        wire.close()


def test_a_beat_over_tcp_hides_no_message_behind_it(tmp_path: Path) -> None:
    """ZMQ's descriptor tells only of what comes to a queue that was found empty."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        port, far_port = one.getsockname()[1], other.getsockname()[1]
    hub = Wire(f"ipc://{tmp_path}/hub", f"tcp://127.0.0.1:{port}/run-hub.0")
    near = Wire(f"ipc://{tmp_path}/near")
    far = Wire(f"tcp://127.0.0.1:{far_port}/run-far.0")
    near.connect("hub", f"ipc://{tmp_path}/hub")
    hub.connect("far", f"tcp://127.0.0.1:{far_port}/run-far.0")
    far.connect("hub", f"tcp://127.0.0.1:{port}/run-hub.0")
    far.send("hub", message(0))
    while hub.receive(30.0) != message(0):  # Until the connection stands.
        pass
    got: list[Control] = []

    def read_one() -> None:
        while (received := hub.receive(None)) is None:
            pass
        got.append(received)

    for n in range(1, 5):  # `near_first` is the one and the other.
        while list(hub.waiting()):  # The queue is empty, and ZMQ knows that somebody sleeps.
            pass
        assert select.select([hub.fileno()], [], [], 30.0)[0], "a beat, by the far node's own thread"
        far.send("hub", message(n))
        thread = threading.Thread(target=read_one, daemon=True)
        thread.start()
        thread.join(30.0)
        stuck = thread.is_alive()
        near.send("hub", message(99))  # Wakes it, whatever it missed.
        thread.join(30.0)
        assert not stuck
        assert got.pop() == message(n)
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
            async with asyncio.timeout(60.0):
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
