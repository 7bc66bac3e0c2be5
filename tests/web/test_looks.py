"""Every main state of the page: no violation of axe's rules, and pictures in tests/output/web to look at."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import expect
from stub_server import Stub, tone_answer
from talk_page import DATA, SIZES, TalkPage, murmur, settings

LONG = " ".join(["One two three four five six seven eight nine ten."] * 60)
"""It is never heard to its end."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
AXE_RUN = f"""axe.run({{ runOnly: {json.dumps(RULES)} }}).then(
    ({{ violations }}) => violations.flatMap(({{ id, nodes }}) =>
        nodes.map(({{ target, failureSummary }}) => `${{id}}: ${{target}} ${{failureSummary}}`)))"""
LOOKS: list[tuple[str, Literal["dark", "light"]]] = [("phone", "dark"), ("desktop", "light")]
MORE: list[tuple[str, Literal["dark", "light"]]] = [("phone", "light"), ("desktop", "dark")]
TOO_WIDE = "Math.max(0, document.querySelector('.controls').getBoundingClientRect().right - innerWidth)"
AT_REST = """Promise.allSettled(document.getAnimations()
    .filter((each) => each.effect.getComputedTiming().endTime !== Infinity)
    .map((each) => each.finished)).then(() => true)"""
"""Colours and what else passes over into another."""

Look = Callable[..., None]


@pytest.fixture(scope="session")
def axe(node_modules: Path) -> str:
    return (node_modules / "axe-core" / "axe.min.js").read_text()


@pytest.fixture
def look(axe: str) -> Look:
    """Judges the page as it is and keeps its pictures under a name: on a dark phone and a light desktop, and
    with `more` the other way round too."""

    def judge(talk: TalkPage, name: str, *, more: bool = False) -> None:
        # The page's policy admits no script tag of ours; evaluate() is not under it.
        talk.page.evaluate(axe)
        for size, scheme in LOOKS + MORE * more:
            width, height = SIZES[size]
            talk.page.set_viewport_size({"width": width, "height": height})
            talk.page.emulate_media(color_scheme=scheme)
            talk.page.evaluate(AT_REST)
            talk.page.screenshot(path=talk.picture(f"{name}-{size}-{scheme}"))
            assert talk.page.evaluate(AXE_RUN) == [], (name, size, scheme)
            assert talk.page.evaluate(TOO_WIDE) == 0, (name, size)

    return judge


def test_a_talk(open_page: Callable[..., TalkPage], stub: Stub, look: Look):
    stub.script.answer = tone_answer(LONG)
    talk = open_page(stub.url)
    look(talk, "welcome", more=True)
    talk.start()
    look(talk, "listening")
    talk.say(murmur(5))
    talk.state("Hearing you")
    look(talk, "hearing")
    talk.state("Speaking")
    expect(talk.entries("assistant")).to_contain_text("five")
    look(talk, "speaking", more=True)
    talk.page.get_by_role("button", name="Stop").click()
    talk.state("Interrupted")
    look(talk, "interrupted")
    talk.page.get_by_text("answered in").click()
    look(talk, "timing-of-a-turn")
    talk.page.get_by_role("button", name="Mute", exact=True).click()
    look(talk, "muted")
    talk.page.get_by_role("button", name="Settings & timing").click()
    look(talk, "settings", more=True)
    talk.page.get_by_role("tab", name="Timing").click()
    look(talk, "timing", more=True)


def test_push_to_talk_and_camera(open_page: Callable[..., TalkPage], stub: Stub, look: Look):
    talk = open_page(stub.url, stored=settings(mode="push-to-talk", frameRate=2))
    talk.page.locator("#camera-button").click()
    talk.page.set_input_files("#picture-file", DATA / "pictures" / "cat.jpg")
    talk.page.locator("#main-button").click()
    talk.state("Waiting for you")
    look(talk, "camera")
    talk.page.get_by_role("button", name="Take picture 1 away").click()
    talk.page.locator("#scroll").focus()
    talk.page.keyboard.down("Space")
    talk.say(murmur(2))
    talk.until("probe.peaks['user-level'] > 0.5")
    look(talk, "push-to-talk")
    talk.page.keyboard.up("Space")
    talk.state("Speaking")
    look(talk, "seen")


def test_problems(open_page: Callable[..., TalkPage], stub: Stub, look: Look):
    talk = open_page(stub.url)
    talk.tolerated += ("WebSocket connection to", "ERR_CONNECTION_REFUSED")
    talk.fail_media("NotAllowedError")
    talk.page.locator("#main-button").click()
    talk.notice("The microphone is blocked")
    talk.type("What do bees make?")
    talk.state("Speaking")
    look(talk, "refused", more=True)
    stub.stop()
    talk.state("Reconnecting")
    look(talk, "reconnecting")
    stub.start()
    talk.notice("Connected again")
    talk.page.reload()
    expect(talk.page.locator("#main-label")).to_have_text("Continue the talk")
    look(talk, "reloaded")
