"""What goes wrong around the page, and what it says then."""

from typing import Any

from playwright.sync_api import expect
from stub_server import Stub, tone_answer
from talk_page import murmur, settings, until

LONG = " ".join(["One two three four five six seven eight nine ten."] * 5)
"""It is never heard to its end."""
LOST = ("WebSocket connection to",)


def items(stub: Stub, count: int) -> list[dict[str, Any]]:
    """What the page made so far, once so many have come: what it sent may still be on its way."""
    until(lambda: len(stub.of_type("conversation.item.create")) >= count)
    made = stub.of_type("conversation.item.create")
    assert len(made) == count
    return made


def test_a_cut_connection_is_made_again_and_the_talk_told(open_page, stub):
    talk = open_page(stub.url)
    talk.tolerated += LOST
    talk.start()
    talk.type("First question")
    talk.state("Speaking")
    talk.state("Listening")
    stub.cut()
    talk.state("Listening")
    talk.notice("Connected again")
    told = items(stub, 3)[1:]
    assert [each["item"]["role"] for each in told] == ["user", "assistant"]
    assert told[1]["item"]["content"] == [{"type": "output_text", "text": stub.script.answer.text + " "}]
    talk.type("Second question")
    talk.state("Speaking")
    expect(talk.entries("user")).to_have_text(["First question", "Second question"])
    expect(talk.entries("assistant")).to_have_count(2)


def test_a_server_that_offers_it_is_resumed(open_page, stub):
    stub.script.offers_resume = True
    talk = open_page(stub.url)
    talk.tolerated += LOST
    talk.start()
    talk.type("First question")
    talk.state("Speaking")
    talk.state("Listening")
    stub.cut()
    talk.notice("Go on talking")
    assert stub.connections == 2
    assert len(stub.of_type("conversation.item.create")) == 1
    stub.script.forgets = True
    stub.cut()
    talk.notice("The server did not know this talk any more")
    assert stub.connections == 4
    items(stub, 3)
    talk.state("Listening")


def test_cut_in_mid_answer(open_page, stub):
    stub.script.answer = tone_answer(LONG)
    talk = open_page(stub.url)
    talk.tolerated += LOST
    talk.start()
    talk.type("Count")
    talk.state("Speaking")
    talk.hear(0.6)
    stub.cut()
    talk.notice("Connected again")
    expect(talk.page.locator(".entry.assistant[data-status=interrupted]")).to_have_count(1)
    told = items(stub, 3)[-1]["item"]
    assert told["role"] == "assistant"
    assert LONG.startswith(told["content"][0]["text"].strip())
    assert 0 < len(told["content"][0]["text"]) < len(LONG)


def test_the_camera_is_not_shown_after_a_cut_in_mid_speech(open_page, stub):
    talk = open_page(stub.url, stored=settings(frameRate=5))
    talk.tolerated += LOST
    talk.page.locator("#camera-button").click()
    expect(talk.page.locator("#camera")).to_be_visible()
    talk.start()
    talk.say(murmur(8))
    talk.state("Hearing you")
    until(lambda: stub.of_type("input_image_buffer.append"))
    # What is left of the words begins no turn.
    stub.script.onset_ms = 60_000
    stub.cut()
    talk.notice("Connected again")
    before = len(stub.of_type("input_image_buffer.append"))
    talk.page.wait_for_timeout(1000)
    assert len(stub.of_type("input_image_buffer.append")) == before


def test_server_away_and_back(open_page, stub):
    talk = open_page(stub.url)
    talk.tolerated += (*LOST, "ERR_CONNECTION_REFUSED")
    talk.start()
    stub.stop()
    talk.state("Reconnecting")
    talk.notice("The connection was lost")
    # Not a click, for which the button would have to stay: the page tries by itself too.
    talk.page.get_by_role("button", name="Try now").dispatch_event("click")
    stub.start()
    talk.state("Listening")
    talk.notice("Connected again")


def test_reload_goes_on_with_the_talk(open_page, stub):
    talk = open_page(stub.url)
    talk.start()
    talk.type("First question")
    talk.state("Speaking")
    talk.state("Listening")
    talk.page.reload()
    expect(talk.entries("user")).to_have_text("First question")
    expect(talk.page.locator("#main-label")).to_have_text("Continue the talk")
    talk.start()
    assert [each["item"]["role"] for each in items(stub, 3)[1:]] == ["user", "assistant"]
    expect(talk.entries("user")).to_have_count(1)
    expect(talk.entries("assistant")).to_have_count(1)
    talk.page.reload()
    talk.page.get_by_role("button", name="Start over").click()
    expect(talk.entries("user")).to_have_count(0)
    expect(talk.page.locator("#main-label")).to_have_text("Start talking")
    talk.page.reload()
    expect(talk.entries("user")).to_have_count(0)


def test_refused_microphone(open_page, stub):
    talk = open_page(stub.url, permissions=())
    talk.page.locator("#main-button").click()
    talk.notice("The microphone is blocked for this page. Allow it in the site settings")
    talk.state("Microphone off")
    talk.type("Then I type")
    talk.state("Speaking")
    talk.context.grant_permissions(["microphone"])
    talk.page.get_by_role("button", name="Use microphone").click()
    talk.state("Listening")
    expect(talk.page.locator("#notices")).not_to_contain_text("blocked")


def test_the_browser_asks_for_the_microphone(open_page, stub):
    talk = open_page(stub.url)
    held = "await new Promise((allow) => { window.allow = allow })"
    talk.page.evaluate(
        f"""() => {{ const real = navigator.mediaDevices.getUserMedia;
            navigator.mediaDevices.getUserMedia = async (wanted) => {{ {held}; return real(wanted) }} }}"""
    )
    talk.page.locator("#main-button").click()
    talk.state("Waiting for the microphone")
    expect(talk.page.locator("#hint")).to_have_text(
        "Your browser asks whether this page may use it: allow it."
    )
    talk.page.evaluate("allow()")
    talk.state("Listening")


def test_a_speaker_that_is_gone(open_page, stub):
    talk = open_page(stub.url, stored=settings(speaker="gone"))
    talk.start()
    talk.notice("The chosen speaker is not there. You hear the answers on the system's own")
    talk.type("Can I hear you?")
    talk.state("Speaking")


def test_no_microphone_and_no_camera(open_page, stub):
    talk = open_page(stub.url)
    talk.fail_media("NotFoundError")
    talk.page.locator("#main-button").click()
    talk.notice("No microphone was found. Plug one in")
    talk.page.locator("#camera-button").click()
    talk.notice("No camera was found. You can add a picture instead")
    talk.fail_media("NotReadableError")
    talk.page.locator("#main-button").click()
    talk.notice("Another program is using the microphone")


def test_unplugged_microphone(open_page, stub):
    talk = open_page(stub.url)
    talk.start()
    talk.page.evaluate("probe.track.dispatchEvent(new Event('ended'))")
    talk.notice("The microphone went away")
    talk.state("Microphone off")
    talk.page.get_by_role("button", name="Use microphone").click()
    talk.state("Listening")


def test_a_stalling_network_is_counted_and_said(open_page, stub):
    stub.script.answer = tone_answer("One two three four five six seven.")
    # Longer than what was sent before, 0.5 s, and what a busy page needs to begin to play that.
    stub.script.gap_s = 2.0
    talk = open_page(stub.url)
    talk.start()
    talk.say(murmur(0.6))
    talk.state("Speaking")
    talk.page.get_by_role("button", name="Settings & timing").click()
    talk.page.get_by_role("tab", name="Timing").click()
    expect(talk.page.locator("#figures")).to_contain_text("2gaps in sound")
    talk.notice("The network is slow: the answer comes with gaps.")
    expect(talk.entries("assistant")).to_have_text(stub.script.answer.text)


def test_a_slow_way_up_is_said(open_page, stub):
    talk = open_page(stub.url)
    talk.start()
    slow = (
        "Object.defineProperty(WebSocket.prototype, 'bufferedAmount', { configurable: true, get: () => %d })"
    )
    talk.page.evaluate(f"void {slow % 200_000}")
    talk.notice("The network is slow: your voice reaches the server late.")
    talk.page.evaluate(f"void {slow % 0}")
    expect(talk.page.locator("#notices")).to_be_empty()


def test_a_full_server(open_page, stub):
    stub.script.refuse = (1013, "full")
    talk = open_page(stub.url)
    talk.page.locator("#main-button").click()
    talk.notice("The server is full at the moment")
    stub.script.refuse = None
    talk.state("Listening")


def test_a_server_that_ends_the_talk(open_page, stub):
    stub.script.refuse = (1008, "invalid API key")
    talk = open_page(stub.url)
    talk.page.locator("#main-button").click()
    talk.notice("The server ended the talk: invalid API key.")
    talk.state("Ready")
    expect(talk.page.locator("#main-label")).to_have_text("Start talking")


def test_a_failed_answer(open_page, stub):
    stub.script.error = {"code": "stage_lost", "message": "the voice was restarted"}
    talk = open_page(stub.url)
    talk.start()
    talk.type("Hello")
    talk.notice("This answer failed: the voice was restarted. Ask again.")
    talk.state("Listening")


def test_a_file_that_is_no_picture(open_page, stub):
    talk = open_page(stub.url)
    talk.page.set_input_files(
        "#picture-file", {"name": "a.png", "mimeType": "image/png", "buffer": b"nothing"}
    )
    talk.notice("That file is not a picture")
