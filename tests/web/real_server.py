"""`voice-app serve` as a process of its own."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

START_S = 240


class Server:
    """Its port stays the same over restarts."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self._process: subprocess.Popen | None = None
        self._data = tempfile.TemporaryDirectory(prefix="voice-app-talks-")

    def start(self) -> None:
        command = [sys.executable, "-m", "voice_app", "serve", "--port", str(self.port)]
        command += ["--data", self._data.name]
        self._process = subprocess.Popen(command, env={**os.environ, "VOICE_APP_LOG": "warning"})
        deadline = time.monotonic() + START_S
        while not self._ready():
            assert self._process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server did not get ready"
            time.sleep(0.1)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.url + "ready", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait(60)
        self._process = None
