"""A node's sockets: one inbox that it reads, and a connection to each node that it writes to."""

import logging
import threading
from collections.abc import Iterator

import zmq

from voice_app.errors import TransferFailed
from voice_app.pipeline.control import Control, Malformed, from_bytes, to_bytes

log = logging.getLogger(__name__)

HIGH_WATER = 16384
"""Messages that may queue for one node. Credits keep the traffic far below; a node that has so many
waiting is not reading any more."""

_RECONNECT_MS = 20
"""A peer that is just starting opens its inbox a moment after we connect."""


class Wire:
    """One node. `send` is safe from any thread; receiving is for one."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context(io_threads=1)
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.set(zmq.RCVHWM, HIGH_WATER)
        self._inbox.set(zmq.LINGER, 0)
        self._inbox.bind(address)
        self.address = address
        self._peers: dict[str, tuple[zmq.Socket[bytes], threading.Lock]] = {}
        self._timeout_ms = -1
        self.malformed = 0
        """Messages dropped because they made no sense."""

    def connect(self, node: str, address: str) -> None:
        """Open or replace the connection to `node`."""
        self.disconnect(node)
        socket = self._context.socket(zmq.PUSH)
        socket.set(zmq.SNDHWM, HIGH_WATER)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RECONNECT_IVL, _RECONNECT_MS)
        socket.connect(address)
        self._peers[node] = (socket, threading.Lock())

    def disconnect(self, node: str) -> None:
        """`node` is gone; what was queued for it goes too."""
        peer = self._peers.pop(node, None)
        if peer is not None:
            socket, lock = peer
            with lock:
                socket.close()

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
        peer = self._peers.get(node)
        if peer is None:
            raise TransferFailed(f"{node} is not connected")
        socket, lock = peer
        try:
            with lock:
                socket.send(data, zmq.NOBLOCK)
        except zmq.Again as error:
            raise TransferFailed(f"{node} does not read its messages") from error
        except zmq.ZMQError as error:
            # Closed between the lookup and the lock.
            raise TransferFailed(f"{node} is not connected") from error

    def receive(self, timeout_s: float | None = None) -> Control | None:
        """The next message, waiting for it; None after `timeout_s`, or for one that made no sense."""
        timeout_ms = -1 if timeout_s is None else int(1e3 * timeout_s)
        if timeout_ms != self._timeout_ms:
            self._inbox.set(zmq.RCVTIMEO, timeout_ms)
            self._timeout_ms = timeout_ms
        try:
            return self._understand(self._inbox.recv())
        except zmq.Again:
            return None

    def waiting(self) -> Iterator[Control]:
        """All messages that are there, without waiting for more."""
        while True:
            try:
                data = self._inbox.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            understood = self._understand(data)
            if understood is not None:
                yield understood

    def fileno(self) -> int:
        """Readable (edge-triggered: drain `waiting` each time) when messages may have come."""
        return self._inbox.fileno()

    def close(self) -> None:
        """Close everything; nobody may be sending or receiving."""
        for node in list(self._peers):
            self.disconnect(node)
        self._inbox.close()
        self._context.term()

    def _understand(self, data: bytes) -> Control | None:
        try:
            return from_bytes(data)
        except Malformed as error:
            self.malformed += 1
            if self.malformed == 1:
                log.warning("dropped a malformed message (further ones are only counted): %s", error)
            return None
