"""Two nodes over real TCP, with a proxy between them that delays, breaks and goes deaf."""

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
from tcp_proxy import TcpProxy

from voice_app.errors import ConfigError
from voice_app.messages import TurnId
from voice_app.pipeline import links, wire
from voice_app.pipeline.control import Control, EndTurn, to_bytes
from voice_app.pipeline.curve import CurveKeys
from voice_app.pipeline.links import SILENT_S
from voice_app.pipeline.wire import Wire

MakeWire = Callable[..., Wire]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def address(port: int, name: str) -> str:
    return f"tcp://127.0.0.1:{port}/{name}"


def message(number: int) -> EndTurn:
    return EndTurn(TurnId("s", "t", number))


def first(wire: Wire, timeout_s: float = 30.0) -> Control | None:
    """The next message; None if none comes. What is not meant for the node counts for nothing."""
    end = time.monotonic() + timeout_s
    while (left := end - time.monotonic()) > 0:
        if (received := wire.receive(left)) is not None:
            return received
    return None


@pytest.fixture
def make() -> Iterator[MakeWire]:
    made: list[Wire] = []

    def one(*addresses: str, keys: CurveKeys | None = None) -> Wire:
        made.append(Wire(*addresses, keys=keys))
        return made[-1]

    yield one
    for opened in made:
        opened.close()


class Pair:
    """Nodes a and b; what a sends passes through a proxy, the way back is straight."""

    def __init__(self, make: MakeWire, delay_s: float = 0.0) -> None:
        port_a, port_b = free_port(), free_port()
        self.proxy = TcpProxy(port_b, delay_s)
        self.a = make(address(port_a, "run-a.0"))
        self.b = make(address(port_b, "run-b.0"))
        self.a.connect("b", address(self.proxy.port, "run-b.0"))
        self.b.connect("a", address(port_a, "run-a.0"))

    def read(self, count: int, timeout_s: float = 60.0) -> list[Control]:
        """The next `count` messages to b, or as many as come in time; a reads its own meanwhile."""
        got: list[Control] = []
        end = time.monotonic() + timeout_s
        while len(got) < count and time.monotonic() < end:
            assert list(self.a.waiting()) == []
            if (received := self.b.receive(0.02)) is not None:
                got.append(received)
        return got


def test_broken_connections_lose_nothing(make: MakeWire, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "voice_app")
    logging.getLogger("voice_app").propagate = True
    pair = Pair(make, delay_s=0.02)
    got: list[Control] = []
    with pair.proxy:
        for n in range(300):
            pair.a.send("b", message(n))
            if n % 100 == 50:
                pair.proxy.cut()
            elif not 40 <= n % 100 < 50:  # The last ones before a cut are all on their way.
                got += pair.read(1, 0.002)
        got += pair.read(300 - len(got))
    assert got == [message(n) for n in range(300)]
    assert "lost on the way and sent again" in caplog.text, "nothing was lost: this test tests nothing"


def test_a_silent_cut_is_noticed_and_heals(make: MakeWire) -> None:
    pair = Pair(make)
    with pair.proxy:
        pair.a.send("b", message(0))
        assert pair.read(1) == [message(0)]
        pair.proxy.silence()
        for n in range(1, 50):
            pair.a.send("b", message(n))
        assert pair.read(1, SILENT_S + 1.0) == []
        assert set(pair.b.silent(SILENT_S)) == {"a"}
        assert pair.a.silent(SILENT_S) == {}, "the way back is open"
        pair.proxy.heal()
        assert pair.read(49) == [message(n) for n in range(1, 50)]
        assert pair.b.silent(SILENT_S) == {}


def test_a_new_incarnation_at_the_same_port_gets_no_old_mail(make: MakeWire) -> None:
    port_a, port_b = free_port(), free_port()
    a, b = make(address(port_a, "run-a.0")), Wire(address(port_b, "run-b.0"))
    a.connect("b", address(port_b, "run-b.0"))
    b.connect("a", address(port_a, "run-a.0"))
    a.send("b", message(0))
    assert first(b) == message(0)
    b.close()
    for n in range(1, 20):
        a.send("b", message(n))
    newer = make(address(port_b, "run-b.1"))
    newer.connect("a", address(port_a, "run-a.0"))
    assert first(newer, 1.0) is None
    a.connect("b", address(port_b, "run-b.1"))
    a.send("b", message(20))
    assert first(newer) == message(20)


def test_an_address_for_this_host_and_one_for_others(make: MakeWire, tmp_path: Path) -> None:
    port = free_port()
    hub = make(f"ipc://{tmp_path}/hub", address(port, "run-hub.0"))
    near = make(f"ipc://{tmp_path}/near")
    near.connect("hub", f"ipc://{tmp_path}/hub")
    far_port = free_port()
    far = make(address(far_port, "run-far.0"))
    far.connect("hub", address(port, "run-hub.0"))
    hub.connect("far", address(far_port, "run-far.0"))
    near.send("hub", message(1))
    assert first(hub) == message(1)
    far.send("hub", message(2))
    assert first(hub) == message(2)


def test_beats_to_a_node_that_is_away_leave_room_for_messages(
    make: MakeWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours of it within a second: its queue is a small one, and beats are quick."""
    monkeypatch.setattr(wire, "HIGH_WATER", 100)
    for module in (wire, links):
        monkeypatch.setattr(module, "BEAT_S", 0.002)
    port = free_port()
    a = make(address(free_port(), "run-a.0"))
    a.connect("b", address(port, "run-b.0"))
    while a.silence("b") < 1.0:
        assert a.receive(0.1) is None
    a.send("b", message(0))


# ---------------------------------------------------------------------------------------------- CURVE keys


@pytest.fixture
def keys(tmp_path: Path) -> CurveKeys:
    return new_keys(tmp_path / "keys")


def new_keys(folder: Path) -> CurveKeys:
    """As the message of the error tells to make them."""
    with pytest.raises(ConfigError) as caught:
        CurveKeys.load(folder)
    command = caught.value.message.partition("make them with: ")[2].rpartition(", and copy")[0]
    subprocess.run(["sh", "-c", command.replace("python", sys.executable)], check=True)
    return CurveKeys.load(folder)


def test_with_keys_only_those_who_have_them_get_through(
    make: MakeWire, keys: CurveKeys, tmp_path: Path
) -> None:
    port_a, port_b = free_port(), free_port()
    hub = make(f"ipc://{tmp_path}/hub", address(port_a, "run-hub.0"), keys=keys)
    friend = make(address(port_b, "run-far.0"), keys=keys)
    friend.connect("hub", address(port_a, "run-hub.0"))
    hub.connect("far", address(port_b, "run-far.0"))
    friend.send("hub", message(1))
    assert first(hub) == message(1)

    # Without keys; with keys of one's own, but the hub's public key; in plain text, as a node of this host.
    stranger = make(address(free_port(), "run-far.0"))
    stranger.connect("hub", address(port_a, "run-hub.0"))
    stranger.send("hub", message(2))
    other = new_keys(tmp_path / "other")
    liar = zmq.Context.instance().socket(zmq.PUSH)
    liar.curve_serverkey, liar.curve_publickey, liar.curve_secretkey = keys.public, other.public, other.secret
    liar.connect(f"tcp://127.0.0.1:{port_a}")
    liar.send(to_bytes(message(3)))
    plain = zmq.Context.instance().socket(zmq.PUSH)
    plain.connect(f"tcp://127.0.0.1:{port_a}")
    plain.send(to_bytes(message(4)))
    assert first(hub, 1.0) is None
    near = make(f"ipc://{tmp_path}/near")
    near.connect("hub", f"ipc://{tmp_path}/hub")
    near.send("hub", message(5))
    assert first(hub) == message(5), "the host's own nodes need none"
    for one in (liar, plain):
        one.close(0)


def test_a_port_that_is_taken_leaves_no_thread(keys: CurveKeys, tmp_path: Path) -> None:
    before = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(zmq.ZMQError, match="in use"):
        Wire(f"ipc://{tmp_path}/hub", address(taken.getsockname()[1], "run-hub.0"), keys=keys)
    assert threading.active_count() == before


def test_keys_that_are_not_there_or_that_others_can_read(tmp_path: Path, keys: CurveKeys) -> None:
    with pytest.raises(ConfigError, match=r"control\.key_secret: no CURVE keys .*create_certificates"):
        CurveKeys.load(tmp_path / "none")
    (keys.folder / "control.key_secret").chmod(0o644)
    with pytest.raises(ConfigError, match="others can read it: chmod 600"):
        CurveKeys.load(keys.folder)
    (keys.folder / "control.key_secret").write_text("nonsense")
    (keys.folder / "control.key_secret").chmod(0o600)
    with pytest.raises(ConfigError, match="no CURVE keys"):
        CurveKeys.load(keys.folder)
