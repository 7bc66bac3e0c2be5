"""Messages between the nodes of one host: Unix sockets that keep each message whole (SOCK_SEQPACKET; Linux).

The sender's own call wakes the reader. Through ZMQ it wakes a thread of the sender's, which wakes one of the
reader's process, which wakes the reader: for a small message that is most of its time (`docs/performance.md`,
"Crossing an edge"). What the other end has no room for, or what is sent before it listens, waits at the
sender, in order and bounded.
"""

import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator

log = logging.getLogger(__name__)

PACKET = 80 * 1024
"""Bytes that travel at once, or fewer where a socket takes no more: a message with an array of 64 KB, in one
piece. Larger ones travel in parts, of which the socket takes as many as it has room for: at Linux's own
setting, 208 KB, five."""
LARGEST = 1 << 29
"""Bytes of a message in parts; the largest slot has a quarter of so many."""
MOST_WAITING = 1 << 28
"""Bytes that wait for one node: with so many, nothing more is taken for it."""

_PART_MARK = 0xC1
"""First byte of a part; no msgpack begins with it. The second says whether more follow."""
_MORE, _LAST = bytes((_PART_MARK, 1)), bytes((_PART_MARK, 0))
_SEND_BUFFER = 1 << 20
"""The kernel clips it to what the system allows."""
_SMALLEST_PACKET = 4096
"""Fits in a socket at the smallest buffer that Linux gives."""
_BUFFER_OVERHEAD = 32
"""Bytes of its buffer that the socket needs for itself, however large one packet is."""
_AT_ONCE = 16
"""Packets sent on while those who send to the same node wait: 1.3 MB."""
_RETRY_MS = 20
"""A peer that is just starting opens its inbox a moment after we connect."""
_ACCEPT_AGAIN_S = 0.5
"""With no descriptor left for a connection, it waits for so long, or until another is closed."""


class Full(Exception):
    """As many messages as may wait for the other end do."""


class Closed(Exception):
    """The connection was closed at this end."""


class TooLarge(Exception):
    """More than LARGEST bytes."""


def _new_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)


class Inbox:
    """Where messages of all nodes of this host arrive. For one thread."""

    def __init__(self, path: str) -> None:
        """Listens at `path`. Raises OSError."""
        self._path = path
        self._listener = _new_socket()
        try:
            self._listener.bind(path)
            self._listener.listen(socket.SOMAXCONN)
        except OSError:
            self._listener.close()
            raise
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._connections: dict[int, socket.socket] = {}
        self._parts: dict[int, bytearray] = {}
        self._ready: list[tuple[int, int]] = []
        self._accept_again: threading.Timer | None = None
        """There since a connection could not be taken."""
        # Read into one place and copied from there: made for each message at the size that one may have,
        # bytes would keep malloc busy.
        self._buffer = memoryview(bytearray(PACKET))

    def watch(self, descriptor: int) -> None:
        """Have `receive` return, and `fileno` be readable, when `descriptor` is readable too."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def receive(self, timeout_s: float | None) -> bytes | bytearray | None:
        """The next message, waiting for it; None after `timeout_s`, or if what is watched became readable.
        Connections take turns."""
        end = time.monotonic() + timeout_s if timeout_s else None
        while True:
            if not self._ready:
                self._ready = self._epoll.poll(timeout_s)
                if not self._ready:
                    return None
            descriptor, events = self._ready.pop()
            connection = self._connections.get(descriptor)
            if connection is not None:
                try:
                    size = connection.recv_into(self._buffer)
                except (BlockingIOError, ConnectionError):
                    continue
                data = bytes(self._buffer[:size])
                if size and data[0] != _PART_MARK:
                    return data
                if (message := self._uncommon(connection, events, data)) is not None:
                    return message
            elif descriptor == self._listener.fileno():
                self._accept()
            else:
                return None
            if end is not None:
                timeout_s = max(0.0, end - time.monotonic())

    def fileno(self) -> int:
        """Readable while there is something to read."""
        return self._epoll.fileno()

    def close(self) -> None:
        self._wait_no_more()
        for connection in self._connections.values():
            connection.close()
        self._epoll.close()
        self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # It was given up meanwhile.
        except OSError as error:
            self._accept_later(error)
            return
        self._wait_no_more()
        connection.setblocking(False)
        self._connections[connection.fileno()] = connection
        self._epoll.register(connection, select.EPOLLIN | select.EPOLLRDHUP)

    def _accept_later(self, error: OSError) -> None:
        """No descriptor is left, or no memory: what waits to be taken would wake the reader for ever."""
        if self._accept_again is None:
            log.warning("a connection has to wait: %s", error.strerror)
        self._wait_no_more()
        self._epoll.modify(self._listener, 0)
        self._accept_again = threading.Timer(_ACCEPT_AGAIN_S, self._listen)
        self._accept_again.daemon = True
        self._accept_again.start()

    def _listen(self) -> None:
        self._epoll.modify(self._listener, select.EPOLLIN)

    def _wait_no_more(self) -> None:
        if self._accept_again is not None:
            self._accept_again.cancel()
            self._accept_again.join()
            self._accept_again = None

    def _uncommon(self, connection: socket.socket, events: int, data: bytes) -> bytes | bytearray | None:
        if data:
            return self._join(connection, data)
        # A message of no bytes looks like the end, and is not one of ours.
        return self._gone(connection) if events & select.EPOLLRDHUP else data

    def _join(self, connection: socket.socket, data: bytes) -> bytes | bytearray | None:
        """The whole message, when its last part is there."""
        mark = data[: len(_MORE)]
        if mark not in (_MORE, _LAST):
            return data  # For the reader to complain of.
        parts = self._parts.setdefault(connection.fileno(), bytearray())
        parts += memoryview(data)[len(mark) :]
        if mark == _MORE and len(parts) <= LARGEST:
            return None
        del self._parts[connection.fileno()]
        return parts if mark == _LAST else mark

    def _gone(self, connection: socket.socket) -> None:
        descriptor = connection.fileno()
        self._epoll.unregister(descriptor)
        del self._connections[descriptor]
        self._parts.pop(descriptor, None)
        connection.close()
        if self._accept_again is not None:
            self._listen()


def _packets(data: bytes, largest: int) -> Iterator[bytes]:
    """`data` whole, or in parts of `largest` bytes."""
    if len(data) <= largest:
        yield data
        return
    size = largest - len(_MORE)
    view = memoryview(data)
    for start in range(0, len(data), size):
        mark = _MORE if start + size < len(data) else _LAST
        yield b"".join((mark, view[start : start + size]))


class Peer:
    """The way to one node's inbox. Safe to use from several threads. `limit`: of messages that wait here."""

    def __init__(self, path: str, limit: int, backlogs: "Backlogs") -> None:
        self._path = path
        self._limit = limit
        self._backlogs = backlogs
        self._lock = threading.Lock()
        self._backlog: deque[bytes] = deque()
        self._waiting = 0
        """Bytes of the backlog."""
        self._packet = _SMALLEST_PACKET
        self._closed = False
        self._socket = self._connected()

    def send(self, data: bytes) -> None:
        """Never blocks. Raises Full, Closed, TooLarge."""
        with self._lock:
            if self._socket is not None and not self._backlog and len(data) <= self._packet:
                try:
                    self._socket.send(data)
                except OSError:
                    pass  # No room, or nobody there any more: `flush` finds out.
                else:
                    return
            self._keep(data)

    def flush(self) -> int | None:
        """Send what waits; gives a descriptor that is writable when there is room for more, -1 if only time
        can tell (nobody listens yet), None if nothing waits any more. No more than some at once: those who
        send have to wait meanwhile."""
        with self._lock:
            for _ in range(_AT_ONCE):
                if not self._backlog:
                    return None
                if self._socket is None:
                    self._socket = self._connected()
                    if self._socket is None:
                        return -1
                try:
                    self._socket.send(self._backlog[0])
                except BlockingIOError:
                    return self._socket.fileno()
                except ConnectionError:
                    # The process behind it ended; whoever knows so closes this.
                    self._drop()
                    return -1
                except OSError:
                    return -1  # The kernel has no memory for it.
                self._waiting -= len(self._backlog.popleft())
            return self._socket.fileno() if self._backlog and self._socket is not None else None

    def close(self) -> None:
        """What waits is dropped."""
        with self._lock:
            self._closed = True
            self._backlog.clear()
            self._waiting = 0
            self._drop()

    def _keep(self, data: bytes) -> None:
        if self._closed:
            raise Closed
        if len(self._backlog) >= self._limit or self._waiting >= MOST_WAITING:
            raise Full
        if len(data) > LARGEST:
            raise TooLarge
        for packet in _packets(data, self._packet):
            self._backlog.append(packet)
            self._waiting += len(packet)
        self._backlogs.add(self)

    def _connected(self) -> socket.socket | None:
        try:
            connection = _new_socket()
        except OSError:
            return None  # Too many files are open: `flush` tries again.
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
            got = connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            self._packet = min(PACKET, got - _BUFFER_OVERHEAD)
            connection.connect(self._path)
        except OSError:
            connection.close()
            return None
        return connection

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Backlogs:
    """Sends on what had to wait, in a thread that is started when that first happens."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._late: set[Peer] = set()
        self._closed = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="backlogs", daemon=True)

    def add(self, peer: Peer) -> None:
        """Something waits at `peer`."""
        with self._lock:
            if self._closed:
                return
            self._late.add(peer)
            if self._thread.ident is None:
                self._thread.start()
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """What waits is sent no more."""
        with self._lock:
            self._closed = True
            os.eventfd_write(self._wake, 1)
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._wake)

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    return
                late, self._late = self._late, set()
            room = select.poll()
            room.register(self._wake, select.POLLIN)
            timeout_ms: int | None = None
            for peer in late:
                descriptor = peer.flush()
                if descriptor is None:
                    continue
                if descriptor < 0:
                    timeout_ms = _RETRY_MS
                else:
                    room.register(descriptor, select.POLLOUT)
                with self._lock:
                    self._late.add(peer)
            room.poll(timeout_ms)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
