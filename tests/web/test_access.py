"""Everybody can use the page: axe, keyboard, reduced motion; and it loads nothing from elsewhere."""

import urllib.error
import urllib.request

import pytest
from playwright.sync_api import expect
from stub_server import tone_answer

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
AXE_RUN = f"""axe.run({{ runOnly: {RULES} }}).then(
    ({{ violations }}) => violations.flatMap(({{ id, nodes }}) =>
        nodes.map(({{ target, failureSummary }}) => `${{id}}: ${{target}} ${{failureSummary}}`)))"""


def violations(talk, node_modules) -> list[str]:
    # The page's policy admits no script tag of ours; evaluate() is not under it.
    talk.page.evaluate((node_modules / "axe-core" / "axe.min.js").read_text())
    return talk.page.evaluate(AXE_RUN)


@pytest.mark.parametrize(("size", "scheme"), [("phone", "dark"), ("desktop", "light")])
def test_no_violation(open_page, stub, node_modules, scheme, size):
    stub.script.answer = tone_answer("One two three four five six seven eight nine ten eleven twelve.")
    talk = open_page(stub.url, color_scheme=scheme)
    talk.page.set_viewport_size(
        {"width": 390, "height": 844} if size == "phone" else {"width": 1280, "height": 800}
    )
    assert violations(talk, node_modules) == []
    talk.start()
    talk.type("A question")
    talk.state("Speaking")
    talk.page.wait_for_timeout(700)
    assert violations(talk, node_modules) == []
    talk.page.get_by_role("button", name="Stop").click()
    talk.state("Interrupted")
    talk.page.evaluate("probe.track.dispatchEvent(new Event('ended'))")
    talk.notice("The microphone went away")
    talk.screenshot(f"problem-{scheme}", size)
    assert violations(talk, node_modules) == []
    talk.page.get_by_role("button", name="Settings & timing").click()
    talk.screenshot(f"settings-{scheme}", size)
    assert violations(talk, node_modules) == []
    talk.page.get_by_role("tab", name="Timing").click()
    talk.screenshot(f"timing-{scheme}", size)
    assert violations(talk, node_modules) == []


def test_keyboard_alone(open_page, stub):
    talk = open_page(stub.url)
    keys = talk.page.keyboard
    order = []
    for _ in range(9):
        keys.press("Tab")
        order.append(talk.page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert order[:7] == [
        "skip",
        "panel-button",
        "scroll",
        "camera-button",
        "main-button",
        "attach-button",
        "message",
    ]
    talk.page.locator("#main-button").focus()
    keys.press("Enter")
    talk.state("Listening")
    talk.page.locator("#panel-button").focus()
    keys.press("Enter")
    assert talk.page.evaluate("document.activeElement.id") == "settings-tab"
    keys.press("ArrowRight")
    expect(talk.page.locator("#timing")).to_be_visible()
    keys.press("Escape")
    expect(talk.page.locator("#panel")).to_be_hidden()
    assert talk.page.evaluate("document.activeElement.id") == "panel-button"


def test_the_state_is_a_live_region(open_page, stub):
    talk = open_page(stub.url)
    assert talk.page.get_by_role("status").filter(has_text="Ready").count() == 1


def test_reduced_motion_moves_nothing_along_the_line(open_page, stub):
    talk = open_page(stub.url, reduced_motion="reduce")
    talk.start()
    assert talk.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--calm')") == "0s"
    assert talk.page.evaluate("document.getAnimations().length") == 0


def test_every_file_has_the_policy(stub):
    for path in ("", "main.js", "audio/capture-worklet.js", "style/page.css", "missing"):
        try:
            answer = urllib.request.urlopen(stub.url + path)
        except urllib.error.HTTPError as error:
            answer = error
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in answer.headers["content-security-policy"]
