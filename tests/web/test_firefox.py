"""The page in Firefox: its sound path, its clock and its looks."""

import numpy as np
import pytest
from firefox import firefox
from stub_server import RATE, WORD_S, tone_answer
from talk_page import OUTPUT, until
from test_looks import AXE_RUN

STATE = "document.querySelector('#state').textContent"
WORDS = "One two three four five six seven eight nine ten eleven twelve. " * 5
NOTE_STATES = """window.states = []; new MutationObserver(() => {
    states.push(document.querySelector("#state").textContent);
}).observe(document.querySelector("#state"), { childList: true, characterData: true, subtree: true });"""
"""Some last for a moment only."""


def test_talk_in_firefox(stub, node_modules, tmp_path):
    stub.script.answer = tone_answer(WORDS)
    with firefox(tmp_path) as browser:
        browser.open(stub.url, 1280, 800)
        browser.run(NOTE_STATES)
        browser.click("#main-button")
        # Firefox's fake microphone is a tone without end: to the stub, somebody who speaks on.
        browser.until(f"{STATE} === 'Hearing you'")
        until(lambda: np.count_nonzero(stub.heard()) > RATE // 2)
        tone = stub.heard()[-RATE // 4 :]
        spectrum = np.abs(np.fft.rfft(tone * np.hanning(len(tone))))
        assert np.fft.rfftfreq(len(tone), 1 / RATE)[np.argmax(spectrum)] == pytest.approx(1000, abs=10)
        browser.click("#main-button")  # Mute: the tone ends, the turn is over.
        browser.until(f"{STATE} === 'Speaking'")
        browser.until("document.querySelector('.entry.assistant .words')?.textContent.includes('three')")
        browser.screenshot(OUTPUT / "firefox-speaking-desktop.png")
        browser.click("#stop-button")
        browser.until("states.includes('Interrupted')")
        [truncated] = until(lambda: stub.of_type("conversation.item.truncate"))
        # "three" is shown when it begins to sound.
        assert 2 * WORD_S * 1000 <= truncated["audio_end_ms"] < len(WORDS.split()) * WORD_S * 1000
        browser.run((node_modules / "axe-core" / "axe.min.js").read_text())
        assert browser.evaluate(AXE_RUN) == []
        assert browser.log == []
