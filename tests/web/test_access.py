"""Everybody can use the page: keyboard, reduced motion; and it loads nothing from elsewhere. (For axe, see
test_looks.py.)"""

import urllib.error
import urllib.request

from playwright.sync_api import expect


def test_keyboard_alone(open_page, stub):
    talk = open_page(stub.url)
    keys = talk.page.keyboard
    order = []
    for _ in range(10):
        keys.press("Tab")
        order.append(talk.page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert order == [
        "skip",
        "panel-button",
        "scroll",
        *["plain"] * 3,
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
