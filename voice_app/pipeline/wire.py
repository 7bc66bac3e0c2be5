"""A node's sockets: one inbox that it reads, and a connection to each node that it writes to.

An inbox has an address for the nodes of its host, `ipc://PATH`, and one for those of others,
`tcp://HOST:PORT/NAME`: the name is that of one incarnation, so that a new one at the same port never gets old
mail. Over TCP messages travel through ZMQ, in the frames of a link (`pipeline/links.py`), which loses
nothing; within a host through Unix sockets (`pipeline/unix_sockets.py`), or through ZMQ too where there are
none that keep messages whole.
"""

import logging
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import zmq

from voice_app.errors import TransferFailed
from voice_app.pipeline import unix_sockets
from voice_app.pipeline.control import Control, DataInSlot, DataReady, Malformed, from_bytes, to_bytes
from voice_app.pipeline.credits import Arrival
from voice_app.pipeline.curve import CurveKeys
from voice_app.pipeline.links import BEAT_S, MARK, SILENT_S, Beat, Link, LinkFull, from_frame, to_frame
from voice_app.pipeline.transport.codec import Bytes

log = logging.getLogger(__name__)

HIGH_WATER = 16384
"""Messages that may queue for one node. Credits keep the traffic far below; a node that has so many
waiting is not reading any more. Parts of a large message count by themselves within the host, where bytes are
bounded too (`unix_sockets.MOST_WAITING`); what ZMQ has is bounded by the number alone."""

_RECONNECT_MS = 20
"""A peer that is just starting opens its inbox a moment after we connect."""
_CONNECT_MS = 1000
"""An attempt over TCP that was not answered for so long is made anew."""

_TCP = "tcp://"
_IPC = "ipc://"
_UNIX_SOCKETS = sys.platform == "linux"
"""Elsewhere there are none that keep messages whole."""


@dataclass(slots=True, eq=False)
class _Peer:
    """A connection to one node through ZMQ; `link` where it is over TCP. `lock` guards both."""

    address: str
    socket: zmq.Socket[bytes]
    link: Link | None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Wire:
    """One node. `send` is safe from any thread; receiving is for one."""

    def __init__(self, *addresses: str, keys: CurveKeys | None = None) -> None:
        """Opens the inbox at `addresses`. `keys` secure what goes over TCP. Raises zmq.ZMQError, OSError."""
        self._context = zmq.Context(io_threads=1)
        self._keys = keys
        self._door = keys.door(self._context) if keys is not None else None
        self._near: unix_sockets.Inbox | None = None
        self._far: zmq.Socket[bytes] | None = None
        """The inbox is one of these, or both; `_near_first`: which is asked next."""
        self._near_first = True
        self._name = ""
        self._backlogs: unix_sockets.Backlogs | None = None
        try:
            # Those over TCP last: what they need is set for all that are bound after it.
            for address in sorted(addresses, key=lambda address: address.startswith(_TCP)):
                self._bind(address)
        except (zmq.ZMQError, OSError):
            self._end()
            raise
        if self._near is not None and self._far is not None:
            self._near.watch(self._far.fileno())
        self.address = addresses[0]
        self._peers: dict[str, _Peer] = {}
        """Those through ZMQ; by the names of their inboxes, where they are on other hosts."""
        self._near_peers: dict[str, unix_sockets.Peer] = {}
        self._addresses: dict[str, str] = {}
        self._by_inbox: dict[str, _Peer] = {}
        self._timeout_ms = -1
        self._closing = threading.Event()
        self._beats = threading.Thread(target=self._beat_all, name="beats", daemon=True)
        if self._name:
            self._beats.start()
        self.malformed = 0
        """Messages dropped because they made no sense."""

    def connect(self, node: str, address: str) -> None:
        """Open the connection to `node`, in place of one to another address."""
        if self._addresses.get(node) == address:
            return
        self.disconnect(node)
        self._addresses[node] = address
        if _is_near(address):
            if self._backlogs is None:
                self._backlogs = unix_sockets.Backlogs()
            path = address.removeprefix(_IPC)
            self._near_peers[node] = unix_sockets.Peer(path, HIGH_WATER, self._backlogs)
            return
        socket = self._context.socket(zmq.PUSH)
        socket.set(zmq.SNDHWM, HIGH_WATER)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RECONNECT_IVL, _RECONNECT_MS)
        peer = _Peer(address, socket, None)
        if address.startswith(_TCP):
            endpoint, _, inbox = address.rpartition("/")
            peer.link = Link(self._name, inbox, time.monotonic())
            _watch(socket)
            socket.set(zmq.CONNECT_TIMEOUT, _CONNECT_MS)
            if self._keys is not None:
                self._keys.secure_client(socket)
            socket.connect(endpoint)
            # Last: from now on beats are sent on it by another thread.
            self._by_inbox[inbox] = peer
        else:
            socket.connect(address)
        self._peers[node] = peer

    def disconnect(self, node: str) -> None:
        """`node` is gone; what was queued for it goes too."""
        self._addresses.pop(node, None)
        near = self._near_peers.pop(node, None)
        if near is not None:
            near.close()
        peer = self._peers.pop(node, None)
        if peer is not None:
            with peer.lock:
                peer.socket.close()
                if peer.link is not None:
                    self._by_inbox.pop(peer.link.target, None)

    def send(self, node: str, message: Control, *, any_size: bool = False) -> None:
        """Queue `message` for `node`; never blocks. Raises TransferFailed if `node` is not there, does not
        read, or the message holds what cannot cross; TooLargeInline as `to_bytes` does."""
        try:
            data = to_bytes(message, any_size=any_size)
        except TypeError as error:
            raise TransferFailed(str(error)) from error
        self.send_bytes(node, data)

    def send_bytes(self, node: str, data: bytes) -> None:
        """`send` for what is encoded already."""
        try:
            near = self._near_peers.get(node)
            if near is not None:
                near.send(data)
            else:
                self._send_far(node, data)
        except (unix_sockets.Full, zmq.Again, LinkFull) as error:
            raise TransferFailed(f"{node} does not read its messages") from error
        except unix_sockets.TooLarge as error:
            raise TransferFailed(f"{len(data)} bytes do not fit in a message") from error
        except (unix_sockets.Closed, zmq.ZMQError) as error:
            # Closed between the lookup and the lock.
            raise TransferFailed(f"{node} is not connected") from error

    def receive(self, timeout_s: float | None = None) -> Control | None:
        """The next message, waiting for it; None after `timeout_s`, or for what was none."""
        if self._near is None:
            return self._receive_far(timeout_s)
        if self._far is None:
            return self._receive_near(timeout_s)
        # Both are asked, each first in turn. ZMQ's queue must be found empty before waiting, past beats and
        # whatever else is no message: its descriptor tells only of what comes after that.
        self._near_first = not self._near_first
        if self._near_first and (message := self._receive_near(0.0)) is not None:
            return message
        if (message := next(self._waiting_far(), None)) is not None:
            return message
        return self._receive_near(timeout_s) or next(self._waiting_far(), None)

    def waiting(self) -> Iterator[Control]:
        """All messages that are there, without waiting for more."""
        while self._near is not None and (data := self._near.receive(0.0)) is not None:
            if (message := self._understand(data)) is not None:
                yield message
        yield from self._waiting_far()

    def dropped(self, error: Exception) -> None:
        """A message made no sense: count it, log the first."""
        self.malformed += 1
        if self.malformed == 1:
            log.warning("dropped a malformed message (further ones are only counted): %s", error)

    def fileno(self) -> int:
        """Readable (perhaps edge-triggered: drain `waiting` each time) when messages may have come."""
        inbox = self._near or self._far
        assert inbox is not None
        return inbox.fileno()

    def silence(self, node: str) -> float:
        """For how many seconds `node` was not heard of; 0 for those of this host, whose end is seen."""
        peer = self._peers.get(node)
        if peer is None or peer.link is None:
            return 0.0
        with peer.lock:
            return peer.link.silence(time.monotonic())

    def silent(self, longer_than_s: float) -> dict[str, float]:
        """The nodes that were not heard of for longer, and for how many seconds."""
        silences = {node: self.silence(node) for node, peer in list(self._peers.items()) if peer.link}
        return {node: silence for node, silence in silences.items() if silence > longer_than_s}

    def close(self) -> None:
        """Close everything; nobody may be sending or receiving."""
        self._closing.set()
        if self._beats.is_alive():
            self._beats.join()
        for node in list(self._addresses):
            self.disconnect(node)
        self._end()

    def _end(self) -> None:
        if self._backlogs is not None:
            self._backlogs.close()
        if self._near is not None:
            self._near.close()
        if self._far is not None:
            self._far.close()
        if self._door is not None:
            self._door.stop()
        self._context.term()

    def _bind(self, address: str) -> None:
        if _is_near(address):
            self._near = unix_sockets.Inbox(address.removeprefix(_IPC))
            return
        if self._far is None:
            self._far = self._context.socket(zmq.PULL)
            self._far.set(zmq.RCVHWM, HIGH_WATER)
            self._far.set(zmq.LINGER, 0)
        if not address.startswith(_TCP):
            self._far.bind(address)
            return
        endpoint, _, self._name = address.rpartition("/")
        _watch(self._far)
        if self._keys is not None:
            self._keys.secure_server(self._far)
        self._far.bind(endpoint)

    def _receive_near(self, timeout_s: float | None) -> Control | None:
        assert self._near is not None
        data = self._near.receive(timeout_s)
        return None if data is None else self._understand(data)

    def _receive_far(self, timeout_s: float | None) -> Control | None:
        data = self._next_far(timeout_s)
        return None if data is None else self._understand_far(data)

    def _waiting_far(self) -> Iterator[Control]:
        while (data := self._next_far(0.0)) is not None:
            if (message := self._understand_far(data)) is not None:
                yield message

    def _next_far(self, timeout_s: float | None) -> Bytes | None:
        if self._far is None:
            return None
        timeout_ms = -1 if timeout_s is None else int(1e3 * timeout_s)
        if timeout_ms != self._timeout_ms:
            self._far.set(zmq.RCVTIMEO, timeout_ms)
            self._timeout_ms = timeout_ms
        try:
            return self._far.recv()
        except zmq.Again:
            return None

    def _send_far(self, node: str, data: bytes) -> None:
        peer = self._peers.get(node)
        if peer is None:
            raise TransferFailed(f"{node} is not connected")
        with peer.lock:
            if peer.link is None:
                peer.socket.send(data, zmq.NOBLOCK)
            else:
                _send_frame(peer.socket, peer.link, data)

    def _understand(self, data: Bytes) -> Control | None:
        try:
            return from_bytes(data)
        except Malformed as error:
            self.dropped(error)
            return None

    def _understand_far(self, data: Bytes) -> Control | None:
        if data[:1] != _MARK:
            return self._understand(data)
        try:
            return self._unframe(data)
        except (Malformed, msgspec.DecodeError) as error:
            self.dropped(error)
            return None

    # ------------------------------------------------------------------------------------ other hosts

    def _unframe(self, data: Bytes) -> Control | None:
        head, body = from_frame(data)
        peer = self._by_inbox.get(head.source)
        if peer is None or peer.link is None or head.target != self._name:
            return None  # From or for another incarnation. It is sent again if it was too early.
        now = time.monotonic()
        if isinstance(head, Beat):
            self._heard(peer, peer.link, head, now)
            return None
        with peer.lock:
            arrival = peer.link.accept(head, now)
            asks = arrival is Arrival.GAP and peer.link.asks
        if asks:
            self._beat(peer, lost=True)
        return _noted(from_bytes(body), peer.link.ahead) if arrival is Arrival.FRESH else None

    def _heard(self, peer: _Peer, link: Link, beat: Beat, now: float) -> None:
        with peer.lock:
            silence, was_silent, link.silent = link.silence(now), link.silent, False
            lost = link.heard(beat, now)
            again = link.again(beat)
            for head, body in again:
                if not _try_send(peer.socket, to_frame(head, body)):
                    break  # The other end will ask for the rest.
        if was_silent:
            log.warning("%s is heard of again after %.1f s", peer.address, silence)
        if again:
            log.info("%d messages to %s were lost on the way and sent again", len(again), peer.address)
        if lost:
            self._beat(peer, lost=True)

    def _beat(self, peer: _Peer, *, lost: bool = False) -> None:
        with peer.lock:
            if peer.link is not None:
                _try_send(peer.socket, to_frame(peer.link.beat(time.monotonic(), lost=lost)))

    def _beat_all(self) -> None:
        while not self._closing.wait(BEAT_S):
            for peer in list(self._by_inbox.values()):
                now = time.monotonic()
                with peer.lock:
                    due = peer.link is not None and peer.link.beat_due(now)
                    silent = peer.link is not None and peer.link.falls_silent(now)
                if due:
                    self._beat(peer)
                if silent:
                    log.warning("%s was not heard of for %g s", peer.address, SILENT_S)


_MARK = bytes((MARK,))


def _is_near(address: str) -> bool:
    return _UNIX_SOCKETS and address.startswith(_IPC)


def _noted(message: Control, ahead: float) -> Control:
    """`message` from a host whose monotonic clock is so many seconds `ahead` of ours, with a note of it."""
    if isinstance(message, DataReady | DataInSlot):
        return msgspec.structs.replace(message, ahead=ahead)
    return message


def _watch(socket: zmq.Socket[bytes]) -> None:
    """Over TCP, have ZMQ notice a cut and connect anew; TCP alone would wait for minutes."""
    socket.set(zmq.HEARTBEAT_IVL, int(1e3 * BEAT_S))
    socket.set(zmq.HEARTBEAT_TIMEOUT, int(1e3 * SILENT_S))
    socket.set(zmq.HEARTBEAT_TTL, int(1e3 * SILENT_S))


def _send_frame(socket: zmq.Socket[bytes], link: Link, body: bytes) -> None:
    head = link.send(body, time.monotonic())
    try:
        socket.send(to_frame(head, body), zmq.NOBLOCK)
    except zmq.ZMQError:
        link.unsend()
        raise


def _try_send(socket: zmq.Socket[bytes], frame: bytes) -> bool:
    try:
        socket.send(frame, zmq.NOBLOCK)
    except zmq.ZMQError:
        return False  # Its queue is full, or it was just closed.
    return True
