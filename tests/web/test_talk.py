"""A talk on the page, in a real Chromium, against the stub."""

import itertools
import json

import numpy as np
import pytest
import soundfile
from playwright.sync_api import expect
from stub_server import RATE, tone_answer
from talk_page import DATA, TalkPage, murmur, settings

LONG = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen."
QUANTUM = 128
BLOCK = 256
"""Frames of the tap's."""


def ask(talk: TalkPage, seconds: float = 0.6) -> None:
    """Say something and wait until the answer sounds."""
    talk.say(murmur(seconds))
    talk.state("Speaking")


def test_spoken_question_is_answered_and_heard(open_page, stub):
    talk = open_page(stub.url)
    talk.screenshot("welcome", "phone")
    talk.screenshot("welcome")
    talk.start()
    talk.say(murmur(0.8))
    talk.state("Hearing you")
    talk.until("document.querySelector('#user-level').value > 0.5")
    talk.screenshot("hearing")
    talk.state("Speaking")
    talk.until("document.querySelector('#assistant-level').value > 0.5")
    expect(talk.entries("user")).to_have_text("What is the answer?")
    talk.screenshot("speaking", "phone")
    talk.screenshot("speaking")
    talk.state("Listening")
    expect(talk.entries("assistant")).to_have_text(stub.script.answer.text)
    sound = talk.played()
    assert len(sound) / RATE == pytest.approx(len(stub.script.answer.sound) / RATE, abs=0.05)
    assert np.sqrt(np.mean(sound**2)) == pytest.approx(
        np.sqrt(np.mean(stub.script.answer.sound**2)), rel=0.05
    )


def test_words_appear_as_they_are_heard(open_page, stub):
    stub.script.answer = tone_answer("alpha beta gamma delta epsilon zeta", seconds_a_word=0.4)
    talk = open_page(stub.url)
    talk.start()
    ask(talk)
    talk.page.evaluate(
        """() => { window.seen = []; const note = () => {
            const text = document.querySelector(".entry.assistant .words")?.textContent.trim() ?? "";
            if (text !== seen.at(-1)?.text) seen.push({ text, at: performance.now() });
            requestAnimationFrame(note); }; note(); }"""
    )
    talk.state("Listening")
    seen = {each["text"]: each["at"] for each in talk.page.evaluate("seen")}
    words = stub.script.answer.text.split()
    grown = [" ".join(words[: count + 1]) for count in range(len(words))]
    assert list(seen)[-4:] == grown[-4:]
    for earlier, later in itertools.pairwise(grown[2:]):
        assert seen[later] - seen[earlier] == pytest.approx(400, abs=150)


@pytest.mark.parametrize("word_times", [True, False], ids=["word times", "no word times"])
def test_barge_in_stops_the_sound_and_keeps_what_was_heard(open_page, stub, word_times):
    stub.script.answer = tone_answer(LONG)
    stub.script.word_times = word_times
    talk = open_page(stub.url)
    talk.start()
    ask(talk)
    talk.page.wait_for_timeout(1200)
    talk.say(murmur(0.5))
    talk.state("Interrupted")
    cut = talk.page.locator(".entry.assistant[data-status=interrupted]")
    expect(cut).to_have_count(1)
    talk.screenshot("interrupted")
    talk.screenshot("interrupted", "phone")
    started = talk.events("input_audio_buffer.speech_started")[1]["at"]
    blocks = [block for block in talk.blocks() if block.at < started + 500]
    assert blocks[-1].at - started < 50
    # What the loudspeaker was given is what the server is told, and the fade of one quantum after it. On a
    # busy machine a gap brings a fade of its own, and the tap loses a block.
    [truncated] = stub.of_type("conversation.item.truncate")
    sound = np.concatenate([block.samples for block in blocks])
    frames = len(np.trim_zeros(sound))
    told = truncated["audio_end_ms"] * RATE / 1000
    assert told > RATE
    assert told - 2 * BLOCK <= frames <= told + RATE / 1000 + 2 * QUANTUM
    shown = cut.locator(".words").evaluate("p => p.firstChild.textContent").split()
    struck = cut.locator("del").inner_text().replace("Not heard:", "").split()
    assert (shown + struck) == LONG.split()[: len(shown + struck)]
    assert struck
    assert len(shown) == pytest.approx(truncated["audio_end_ms"] / 350, abs=2)


def test_the_sound_yields_to_speech_before_the_server_is_sure_of_it(open_page, stub):
    stub.script.answer = tone_answer(LONG)
    talk = open_page(stub.url)
    talk.start()
    ask(talk)
    talk.page.wait_for_timeout(400)
    stub.script.onset_ms = 600
    said = talk.say(murmur(1.2))
    talk.state("Interrupted")
    started = talk.events("input_audio_buffer.speech_started")[1]["at"]
    stopped = max(block.at for block in talk.blocks() if block.at < started + 500)
    assert started - said > 500
    assert stopped - said < 200


def test_a_cough_makes_the_answer_wait_and_go_on(open_page, stub):
    stub.script.answer = tone_answer("alpha beta gamma delta epsilon zeta", 0.3)
    talk = open_page(stub.url)
    talk.start()
    ask(talk)
    talk.page.wait_for_timeout(400)
    stub.script.onset_ms = 600
    talk.say(murmur(0.16))
    talk.state("Hearing you")
    talk.state("Speaking")
    talk.state("Listening")
    expect(talk.entries("assistant")).to_have_text(stub.script.answer.text)
    assert stub.of_type("conversation.item.truncate") == []
    # Nothing is lost; blocks that are silent in part, at the edges of the wait, count as sound here.
    assert 0 <= (len(talk.played()) - len(stub.script.answer.sound)) / RATE < 0.15


def test_stop_button_and_escape_stop_the_answer(open_page, stub):
    stub.script.answer = tone_answer(LONG)
    talk = open_page(stub.url)
    talk.start()
    ask(talk)
    talk.page.get_by_role("button", name="Stop").click()
    talk.state("Interrupted")
    expect(talk.page.locator(".entry.assistant[data-status=interrupted]")).to_have_count(1)
    talk.type("And now?")
    talk.state("Speaking")
    talk.page.keyboard.press("Escape")
    expect(talk.page.locator(".entry.assistant[data-status=interrupted]")).to_have_count(2)
    assert len(stub.of_type("conversation.item.truncate")) == 2


def test_a_typed_question_needs_no_microphone(open_page, stub):
    talk = open_page(stub.url, permissions=())
    talk.type("What is the answer?")
    expect(talk.entries("user")).to_have_text("What is the answer?")
    talk.state("Speaking")
    talk.state("Microphone off")
    expect(talk.entries("assistant")).to_have_text(stub.script.answer.text)
    assert stub.of_type("input_audio_buffer.append") == []


def test_push_to_talk_with_the_space_bar(open_page, stub):
    talk = open_page(stub.url, stored=settings(mode="push-to-talk"))
    talk.page.locator("#main-button").click()
    talk.state("Waiting for you")
    talk.page.get_by_label("Message", exact=True).press_sequentially("a b")
    expect(talk.page.get_by_label("Message", exact=True)).to_have_value("a b")
    assert stub.of_type("input_audio_buffer.clear") == []
    expect(talk.page.locator("#main-label")).to_have_text("Hold to talk")
    talk.page.locator("#scroll").focus()
    talk.page.keyboard.down("Space")
    expect(talk.page.locator("#main-label")).to_have_text("Let go to send")
    talk.say(murmur(0.6))
    talk.screenshot("push-to-talk", "phone")
    talk.page.wait_for_timeout(700)
    talk.page.keyboard.up("Space")
    talk.state("Speaking")
    assert stub.of_type("session.update")[0]["session"]["audio"]["input"]["turn_detection"] is None
    kinds = [event["type"] for event in stub.received if event["type"] != "input_audio_buffer.append"]
    assert kinds[-3:] == ["input_audio_buffer.clear", "input_audio_buffer.commit", "response.create"]
    assert 0.5 < len(stub.heard()) / RATE < 1.2


def test_camera_frames_and_stills_go_with_the_turn(open_page, stub):
    talk = open_page(stub.url, stored=settings(frameRate=2))
    talk.page.locator("#camera-button").click()
    expect(talk.page.locator("#camera")).to_be_visible()
    talk.page.set_input_files("#picture-file", DATA / "pictures" / "cat.jpg")
    talk.paste(DATA / "pictures" / "coffee.jpg")
    expect(talk.page.locator("#pictures canvas")).to_have_count(2)
    talk.page.get_by_role("button", name="Take picture 2 away").click()
    expect(talk.page.locator("#pictures canvas")).to_have_count(1)
    talk.start()
    talk.screenshot("camera")
    talk.screenshot("camera", "phone")
    talk.say(murmur(1.2))
    talk.state("Speaking")
    items = stub.of_type("conversation.item.create")
    urls = [part["image_url"] for event in items for part in event["item"]["content"]]
    assert len(urls) >= 3
    assert all(url.startswith("data:image/jpeg;base64,") for url in urls)
    expect(talk.page.locator(".entry.user .frames canvas")).to_have_count(len(urls))
    talk.screenshot("pictures")
    talk.page.locator("#camera-button").click()
    expect(talk.page.locator("#camera")).to_be_hidden()


def test_timing_and_downloads(open_page, stub):
    talk = open_page(stub.url)
    talk.start()
    ask(talk)
    talk.state("Listening")
    talk.page.get_by_role("button", name="Settings & timing").click()
    talk.screenshot("settings")
    talk.page.get_by_role("tab", name="Timing").click()
    talk.screenshot("timing")
    talk.screenshot("timing", "phone")
    expect(talk.page.locator("#plot g")).to_have_count(1)
    with talk.page.expect_download() as sound:
        talk.page.get_by_role("button", name="Sound").click()
    channels, rate = soundfile.read(sound.value.path(), dtype="float32")
    assert rate == RATE
    user, assistant = channels.T
    assert np.sqrt(np.mean(user[np.abs(user) > 0.01] ** 2)) > 0.05
    spoken = len(stub.script.answer.sound)
    assert np.count_nonzero(
        np.convolve(np.abs(assistant), np.ones(480) / 480, "same") > 0.01
    ) == pytest.approx(spoken, rel=0.05)
    with talk.page.expect_download() as text:
        talk.page.get_by_role("button", name="Transcript").click()
    with open(text.value.path()) as file:
        saved = json.load(file)
    assert [each["role"] for each in saved["messages"]] == ["user", "assistant"]
    timing = saved["messages"][1]["timing_ms"]
    # The stub waits for 500 ms of silence, then thinks for 150 ms.
    assert timing["noticed"] == pytest.approx(500, abs=120)
    assert timing["firstText"] - timing["noticed"] == pytest.approx(150, abs=120)
    assert (
        timing["noticed"] <= timing["firstText"] <= timing["firstAudio"] <= timing["heard"] <= timing["end"]
    )


def test_settings_are_kept_and_sent(open_page, stub):
    talk = open_page(stub.url)
    talk.page.get_by_role("button", name="Settings & timing").click()
    talk.page.get_by_label("Instructions").fill("Answer in rhyme.")
    talk.page.get_by_label("You speak").select_option("de")
    talk.page.get_by_role("slider", name="Silence").fill("800")
    talk.page.get_by_text("Push to talk").click()
    talk.page.get_by_text("Hands-free").click()
    talk.page.get_by_label("API key").fill("secret")
    talk.page.reload()
    talk.start()
    assert stub.protocols == ["realtime", "openai-insecure-api-key.secret"]
    assert "secret" not in talk.page.evaluate("JSON.stringify(localStorage)")
    session = stub.of_type("session.update")[-1]["session"]
    assert session["instructions"] == "Answer in rhyme."
    assert session["audio"]["input"]["transcription"] == {"language": "de"}
    assert session["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 800
    talk.page.get_by_role("button", name="Settings & timing").click()
    for device in ("microphone", "camera"):
        assert talk.page.locator(f"select[name={device}] option").count() > 1
    talk.page.get_by_label("Decided by").select_option("semantic_vad")
    expect(talk.page.get_by_label("Eagerness")).to_be_visible()
    talk.page.wait_for_timeout(100)
    assert (
        stub.of_type("session.update")[-1]["session"]["audio"]["input"]["turn_detection"]["type"]
        == "semantic_vad"
    )


def test_a_muted_microphone_sends_silence(open_page, stub):
    talk = open_page(stub.url)
    talk.start()
    talk.page.get_by_role("button", name="Mute", exact=True).click()
    talk.state("Microphone off")
    talk.screenshot("muted")
    talk.say(murmur(0.5))
    talk.page.wait_for_timeout(600)
    assert stub.of_type("input_audio_buffer.append")
    assert not stub.heard()[-RATE // 2 :].any()
