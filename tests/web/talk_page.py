"""The page as a test drives it."""

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import BrowserContext, Page, expect

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
OUTPUT = HERE.parent / "output" / "web"
DEADLINE_S = 30
"""Of whatever is waited for: no test passes sooner or later by it."""
expect.set_options(timeout=1000 * DEADLINE_S)
SIZES = {"phone": (390, 844), "desktop": (1280, 800)}


BLOCK = 240
"""Frames, 10 ms."""


def pcm16(samples: np.ndarray) -> str:
    """[n] float32 in [-1, 1] as base64 of 16-bit PCM."""
    return base64.b64encode((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()).decode()


def murmur(seconds: float, rate: int = 24_000) -> np.ndarray:
    """A sound that is loud enough to be taken for speech: [n] float32."""
    time = np.arange(round(seconds * rate)) / rate
    return (0.3 * np.sin(2 * np.pi * 180 * time) * (0.7 + 0.3 * np.sin(2 * np.pi * 4 * time))).astype(
        np.float32
    )


def settings(**changes: Any) -> dict[str, Any]:
    """The page's stored settings, to be opened with."""
    return {"voice-app.settings": json.dumps(changes)}


def until(true: Callable[[], Any]) -> Any:
    """Wait for what happens outside of the page; gives it."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := true()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
    return found


@dataclass(frozen=True)
class Block:
    """`at`: when it was played, ms of the page's clock. `samples`: [240] float32 at 24 kHz."""

    at: float
    samples: np.ndarray


class TalkPage:
    """`stored`: entries of the local storage. `own_microphone`: the microphone is the test's (`say`), not the
    browser's. `errors`: what the console and uncaught exceptions said. `requests`: all addresses that were
    asked for."""

    def __init__(
        self,
        context: BrowserContext,
        url: str,
        stored: dict[str, str] | None = None,
        own_microphone: bool = True,
    ) -> None:
        self.context = context
        self.url = url
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.tolerated: tuple[str, ...] = ("ScriptProcessorNode is deprecated",)
        """Parts of console messages that a test brings about: a browser logs each failed connection."""
        context.add_init_script(path=HERE / "probe.js")
        if not own_microphone:
            context.add_init_script("window.probeRealMicrophone = true")
        for name, value in (stored or {}).items():
            context.add_init_script(f"localStorage[{json.dumps(name)}] ??= {json.dumps(value)}")
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self._console(message.type, message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("websocket", lambda socket: self.requests.append(socket.url))
        self.page.goto(url)

    def _console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(part in text for part in self.tolerated):
            self.errors.append(text)

    # ---------------------------------------------------------------------------------------- actions

    def start(self) -> None:
        """Press the main button; the microphone is then heard."""
        self.page.locator("#main-button").click()
        self.state("Listening")

    def say(self, samples: np.ndarray) -> float:
        """Speak [n] float32 at 24 kHz into the microphone; gives when, in ms of the page's clock."""
        return self.page.evaluate("data => probe.say(data)", pcm16(samples))

    def type(self, text: str) -> None:
        self.page.get_by_label("Message", exact=True).fill(text)
        self.page.keyboard.press("Enter")

    def paste(self, picture: Path) -> None:
        """Paste a JPEG file."""
        data = base64.b64encode(picture.read_bytes()).decode()
        self.page.evaluate(
            """data => {
                const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
                const clipboardData = new DataTransfer();
                clipboardData.items.add(new File([bytes], "pasted.jpg", { type: "image/jpeg" }));
                document.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true }));
            }""",
            data,
        )

    def fail_media(self, name: str) -> None:
        """From now on, microphone and camera fail with a DOMException of that name."""
        fail = f"async () => {{ throw new DOMException('none', '{name}') }}"
        self.page.evaluate(f"void (navigator.mediaDevices.getUserMedia = {fail})")

    # --------------------------------------------------------------------------------------- findings

    def state(self, words: str, timeout_s: float = DEADLINE_S) -> float:
        """Wait until the state is `words`, or was since the one that was waited for before: some last for a
        moment only. Gives when it became so, ms of the page's clock."""
        self.until(f"probe.reached({json.dumps(words)})", timeout_s)
        return self.page.evaluate("probe.states[probe.state].at")

    def until(self, expression: str, timeout_s: float = DEADLINE_S) -> None:
        """Wait until the expression is true. (Playwright's own wait is a thing that the policy forbids.)"""
        deadline = time.monotonic() + timeout_s
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            self.page.wait_for_timeout(20)

    def notice(self, words: str) -> None:
        """Wait for a notice that says `words`; it may have gone by itself."""
        self.until(f"probe.notices.some((text) => text.includes({json.dumps(words)}))")

    def hear(self, seconds: float) -> None:
        """Wait until so much sound has been played, of all answers together."""
        self.until(f"probe.blocks.length >= {seconds * 24_000 / BLOCK}")

    def notices(self) -> list[str]:
        """All that were ever shown."""
        return self.page.evaluate("probe.notices")

    def entries(self, role: str):
        return self.page.locator(f".entry.{role} .words")

    def blocks(self) -> list[Block]:
        """The blocks, with sound in them, that the loudspeaker was given."""
        found = self.page.evaluate("probe.blocks.map(b => ({ at: b.at, samples: Array.from(b.pcm) }))")
        return [Block(each["at"], np.array(each["samples"], np.float32)) for each in found]

    def played(self) -> np.ndarray:
        """All their sound: [n] float32 at 24 kHz."""
        return np.concatenate([np.zeros(0, np.float32), *(block.samples for block in self.blocks())])

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Server events of that type, with `at` in ms of the page's clock."""
        return self.page.evaluate("kind => probe.events.filter(e => e.type === kind)", kind)

    def sent(self, kind: str) -> list[dict[str, Any]]:
        """Client events of that type."""
        return self.page.evaluate("kind => probe.sent.filter(e => e.type === kind)", kind)

    def picture(self, name: str) -> Path:
        """Where a picture of the page is kept, for looking at."""
        return OUTPUT / f"{name}.png"
