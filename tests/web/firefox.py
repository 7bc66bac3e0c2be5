"""Firefox, driven over WebDriver BiDi: as much of it as the smoke test needs.

Playwright cannot drive a Firefox that it did not build. Firefox starts no sound without a sound server: it is
given a private PulseAudio whose only device is a null sink."""

import base64
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from needs import command
from websockets.sync.client import ClientConnection, connect

START_S = 120
REPLY_S = 60
PREFERENCES = {
    "media.navigator.streams.fake": True,
    "media.navigator.permission.disabled": True,
    "datareporting.policy.dataSubmissionEnabled": False,
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
}


class Firefox:
    """One page. `log`: what the console said, errors and warnings."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._last_id = 0
        self.log: list[str] = []
        self._send("session.new", capabilities={})
        self._send("session.subscribe", events=["log.entryAdded"])
        self._page = self._send("browsingContext.getTree")["contexts"][0]["context"]

    def open(self, url: str, width: int, height: int) -> None:
        size = {"width": width, "height": height}
        self._send("browsingContext.setViewport", context=self._page, viewport=size)
        self._send("browsingContext.navigate", context=self._page, url=url, wait="complete")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression (a promise's result), through JSON."""
        value = self.run(f"(async () => JSON.stringify(await ({expression})))()").get("value")
        return None if value is None else json.loads(value)

    def run(self, script: str) -> dict[str, Any]:
        """Run statements in the page; the last one's value, as the protocol says it."""
        target = {"context": self._page}
        made = self._send("script.evaluate", expression=script, target=target, awaitPromise=True)
        assert made["type"] == "success", made
        return made["result"]

    def until(self, expression: str, timeout_s: float = 30) -> Any:
        """Wait until the expression is true; gives its value."""
        deadline = time.monotonic() + timeout_s
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.05)
        return value

    def click(self, selector: str) -> None:
        """A real click: browsers start no sound without one."""
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = self.evaluate(f"(b => [Math.round(b.x + b.width / 2), Math.round(b.y + b.height / 2)])({box})")
        steps = [
            {"type": "pointerMove", "x": x, "y": y},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        mouse = {"type": "pointer", "id": "mouse", "actions": steps}
        self._send("input.performActions", context=self._page, actions=[mouse])

    def screenshot(self, path: Path) -> None:
        made = self._send("browsingContext.captureScreenshot", context=self._page)
        path.write_bytes(base64.b64decode(made["data"]))

    def _send(self, method: str, **params: Any) -> dict[str, Any]:
        self._last_id += 1
        self._socket.send(json.dumps({"id": self._last_id, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=REPLY_S))
            if message.get("method") == "log.entryAdded" and message["params"]["level"] in ("error", "warn"):
                self.log.append(message["params"]["text"])
            if message.get("id") == self._last_id:
                assert message["type"] == "success", message
                return message["result"]


@contextmanager
def firefox(folder: Path) -> Iterator[Firefox]:
    """A Firefox with a profile of its own in `folder`."""
    program = command("firefox-esr")
    profile = folder / "profile"
    profile.mkdir()
    lines = [f'user_pref("{name}", {json.dumps(value)});' for name, value in PREFERENCES.items()]
    (profile / "user.js").write_text("\n".join(lines))
    with sound_server(folder) as environment:
        arguments = [
            program,
            "--headless",
            "--no-remote",
            "--remote-debugging-port=0",
            "--profile",
            str(profile),
        ]
        with (folder / "firefox.log").open("w") as log:
            browser = subprocess.Popen(arguments, env=environment, stdout=log, stderr=log)
        try:
            with connect(
                f"{address(folder / 'firefox.log')}/session", max_size=None, proxy=None, open_timeout=START_S
            ) as socket:
                yield Firefox(socket)
        finally:
            browser.terminate()
            browser.wait(60)


def address(log: Path) -> str:
    """Where Firefox says that it listens."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if found := re.search(r"WebDriver BiDi listening on (ws://\S+)", log.read_text()):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"Firefox did not start: {log.read_text()[-500:]}")


@contextmanager
def sound_server(folder: Path) -> Iterator[dict[str, str]]:
    """A private PulseAudio; gives the environment in which programs find it."""
    program = command("pulseaudio")
    native = folder / "native"
    modules = [f"module-native-protocol-unix socket={native} auth-anonymous=1", "module-null-sink"]
    options = ["-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--log-level=error"]
    environment = {
        **os.environ,
        "HOME": str(folder),
        "XDG_RUNTIME_DIR": str(folder),
        "PULSE_SERVER": f"unix:{native}",
    }
    loads = [part for module in modules for part in ("-L", module)]
    server = subprocess.Popen([program, *options, *loads], env=environment, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        while not native.exists():
            assert time.monotonic() < deadline, "PulseAudio did not start"
            time.sleep(0.02)
        yield environment
    finally:
        server.terminate()
        server.wait(60)
