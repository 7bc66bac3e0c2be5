"""A TCP proxy between two nodes that delays what passes, breaks connections, and goes deaf."""

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self


class TcpProxy:
    """Listens on a port of loopback and passes everything on to `port`, each way `delay_s` late.

    `cut` ends all connections together with what is under way in them; while `deaf`, what arrives is
    swallowed without a word, as on a link that is down."""

    def __init__(self, port: int, delay_s: float = 0.0) -> None:
        self._target = port
        self._delay_s = delay_s
        self._deaf = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            _end(connection)

    def silence(self) -> None:
        """From now on nothing passes, and nobody is told."""
        self._deaf.set()

    def heal(self) -> None:
        self._deaf.clear()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _end(self._listener)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # The listener was closed.
            try:
                far = socket.create_connection(("127.0.0.1", self._target), 1.0)
            except OSError:
                _end(near)
                continue
            with self._lock:
                self._open |= {near, far}
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if self._delay_s:
                    time.sleep(self._delay_s)  # The delay is what is simulated.
                if not self._deaf.is_set():
                    target.sendall(data)
        except OSError:
            pass  # Cut.
        for one in (source, target):
            _end(one)


def _end(connection: socket.socket) -> None:
    """Close at once: what is under way is dropped, and who waits in it wakes."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
