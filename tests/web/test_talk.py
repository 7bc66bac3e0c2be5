"""A talk on the page, in a real Chromium, against the stub."""

import base64
import io
import json
import re
import time
import zipfile

import numpy as np
import pytest
import soundfile
from PIL import Image
from playwright.sync_api import expect
from stub_server import FRAMES_TAKEN, RATE, WORD_S, tone_answer
from talk_page import BLOCK, DATA, TalkPage, murmur, settings, until

QUANTUM = 128
LONG = " ".join(["One two six ten"] * 12) + "."
"""It is never heard to its end. A word has three letters: so many that the page, where it is not told when
words are spoken, takes as long for one as the stub does."""


def ask(talk: TalkPage, seconds: float = 0.6) -> None:
    """Say something and wait until the answer sounds."""
    talk.say(murmur(seconds))
    talk.state("Speaking")


def test_spoken_question_is_answered_and_heard(open_page, stub):
    talk = open_page(stub.url)
    talk.start()
    talk.say(murmur(0.8))
    talk.state("Hearing you")
    talk.until("probe.peaks['user-level'] > 0.5")
    talk.state("Speaking")
    talk.until("probe.peaks['assistant-level'] > 0.5")
    expect(talk.entries("user")).to_have_text("What is the answer?")
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
    talk.page.evaluate(
        """() => { window.seen = []; new MutationObserver(() => {
            const text = document.querySelector(".entry.assistant .words")?.textContent.trim() ?? "";
            if (text !== seen.at(-1)?.text) seen.push({ text, at: performance.now() });
            }).observe(document, { childList: true, subtree: true }); }"""
    )
    ask(talk)
    talk.state("Listening")
    blocks = talk.blocks()
    late = []
    seen = talk.page.evaluate("seen")
    for word, start in stub.script.answer.words:
        shown = next(each["at"] for each in seen if word in each["text"])
        late.append(shown - blocks[round(start * RATE / BLOCK)].at)
    assert min(late) > -20, "none before it is heard"
    assert max(late) < 150


@pytest.mark.parametrize("word_times", [True, False], ids=["word times", "no word times"])
def test_barge_in_stops_the_sound_and_keeps_what_was_heard(open_page, stub, word_times):
    stub.script.answer = tone_answer(LONG)
    stub.script.word_times = word_times
    talk = open_page(stub.url)
    talk.start()
    ask(talk)
    talk.hear(1.2)
    talk.say(murmur(0.5))
    talk.state("Interrupted")
    cut = talk.page.locator(".entry.assistant[data-status=interrupted]")
    expect(cut).to_have_count(1)
    started = talk.events("input_audio_buffer.speech_started")[1]["at"]
    blocks = [block for block in talk.blocks() if block.at < started + 500]
    assert blocks[-1].at - started < 50
    # What the loudspeaker was given is what the server is told, and the fade of one quantum after it. On a
    # busy machine gaps bring fades of their own.
    [truncated] = until(lambda: stub.of_type("conversation.item.truncate"))
    sound = np.concatenate([block.samples for block in blocks])
    frames = len(np.trim_zeros(sound))
    told = truncated["audio_end_ms"] * RATE / 1000
    assert told > RATE
    assert told - BLOCK <= frames <= told + RATE / 1000 + 4 * QUANTUM
    shown = cut.locator(".words").evaluate("p => p.firstChild.textContent").split()
    struck = cut.locator("del").inner_text().replace("Not heard:", "").split()
    assert (shown + struck) == LONG.split()[: len(shown + struck)]
    assert struck
    assert len(shown) == pytest.approx(truncated["audio_end_ms"] / 1000 / WORD_S, abs=2)


def test_the_sound_yields_to_speech_before_the_server_is_sure_of_it(open_page, stub):
    stub.script.answer = tone_answer(LONG)
    talk = open_page(stub.url)
    talk.start()
    ask(talk)
    talk.hear(0.4)
    stub.script.onset_ms = 600
    said = talk.say(murmur(1.2))
    talk.state("Interrupted")
    started = talk.events("input_audio_buffer.speech_started")[1]["at"]
    stopped = max(block.at for block in talk.blocks() if block.at < started + 500)
    assert started - said > 500
    assert stopped - said < 200


def test_a_cough_makes_the_answer_wait_and_go_on(open_page, stub):
    stub.script.answer = tone_answer("alpha beta gamma delta epsilon zeta eta theta iota kappa", 0.4)
    talk = open_page(stub.url)
    talk.start()
    ask(talk)
    talk.hear(0.4)
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
    until(lambda: len(stub.of_type("conversation.item.truncate")) == 2)


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
    pressed = time.monotonic()
    talk.page.keyboard.down("Space")
    expect(talk.page.locator("#main-label")).to_have_text("Let go to send")
    talk.say(murmur(0.6))
    until(lambda: np.count_nonzero(stub.heard()) > 0.55 * RATE)
    talk.page.keyboard.up("Space")
    held_s = time.monotonic() - pressed
    talk.state("Speaking")
    assert stub.of_type("session.update")[0]["session"]["audio"]["input"]["turn_detection"] is None
    kinds = [event["type"] for event in stub.received if event["type"] != "input_audio_buffer.append"]
    assert kinds[-3:] == ["input_audio_buffer.clear", "input_audio_buffer.commit", "response.create"]
    assert 0.55 < len(stub.heard()) / RATE < held_s + 0.1


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
    talk.say(murmur(1.2))
    talk.state("Speaking")
    [still] = stub.of_type("conversation.item.create")
    [part] = still["item"]["content"]
    assert part["image_url"].startswith("data:image/jpeg;base64,")
    assert stub.of_type("input_image_buffer.append") == [], "what was chosen is what is looked at"
    expect(talk.page.locator(".entry.user .frames canvas")).to_have_count(1)
    talk.state("Listening")
    talk.say(murmur(3))
    talk.state("Speaking")
    frames = stub.of_type("input_image_buffer.append")
    assert len(frames) >= 3
    with Image.open(io.BytesIO(base64.b64decode(frames[-1]["image"]))) as picture:
        assert picture.format == "JPEG"
        assert max(picture.size) == 640
    # Of all frames, the turn shows those that the server says it took.
    expect(talk.page.locator(".entry.user").last.locator(".frames canvas")).to_have_count(FRAMES_TAKEN)
    talk.page.locator("#camera-button").click()
    expect(talk.page.locator("#camera")).to_be_hidden()


def test_a_turn_tells_where_its_time_went(open_page, stub):
    talk = open_page(stub.url)
    talk.start()
    said = talk.say(murmur(0.6))
    talk.state("Speaking")
    ended = talk.state("Listening")
    talk.page.get_by_role("button", name="Settings & timing").click()
    talk.page.get_by_role("tab", name="Timing").click()
    expect(talk.page.locator("#plot g")).to_have_count(1)
    rows = talk.page.locator("#steps tbody tr")
    expect(rows.locator(".by")).to_have_text(["server", "server", "server", "this page", "this page"])
    silence, think, _, travel, speak = [
        float(text.removesuffix(" s")) for text in rows.locator("td:not(.by)").all_inner_texts()
    ]
    # The stub waits for 500 ms of silence, then thinks for 150 ms, or what the machine makes of it.
    told = talk.events("response.done")[0]["response"]["timing"]
    assert silence == pytest.approx(0.5, abs=0.03)
    assert silence + think == pytest.approx(told["first_text_ms"] / 1000, abs=0.011)
    assert think >= stub.script.think_s
    # From the end of the words to the first sound; what is not the stub's is the page's, and the browser's.
    sound = talk.blocks()
    assert 0 < travel < (sound[0].at - said) / 1000 - 0.6 - silence - think + 0.1
    assert len(stub.script.answer.sound) / RATE - 0.05 < speak < (ended - sound[0].at) / 1000 + 0.05
    talk.page.get_by_text("answered in").click()
    expect(talk.page.locator(".lag .steps tbody tr")).to_have_count(5)
    talk.page.get_by_role("button", name="Close the panel").click()


def test_download_has_both_voices_and_the_transcript(open_page, stub):
    talk = open_page(stub.url)
    talk.page.set_input_files("#picture-file", DATA / "pictures" / "cat.jpg")
    talk.start()
    ask(talk)
    talk.state("Listening")
    with talk.page.expect_download() as download:
        talk.page.get_by_role("button", name="Download this talk").click()
    assert re.fullmatch(r"talk-[\dT-]+\.zip", download.value.suggested_filename)
    with zipfile.ZipFile(download.value.path()) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == ["picture-1.jpg", "talk.json", "talk.wav"]
        channels, rate = soundfile.read(io.BytesIO(archive.read("talk.wav")), dtype="float32")
        saved = json.loads(archive.read("talk.json"))
        kept = io.BytesIO(archive.read("picture-1.jpg"))
        with Image.open(kept) as picture, Image.open(DATA / "pictures" / "cat.jpg") as shown:
            assert picture.size == shown.size
    assert rate == RATE
    user, assistant = channels.T
    assert np.sqrt(np.mean(user[np.abs(user) > 0.01] ** 2)) > 0.05
    spoken = len(stub.script.answer.sound)
    audible = np.convolve(np.abs(assistant), np.ones(480) / 480, "same") > 0.01
    assert np.count_nonzero(audible) == pytest.approx(spoken, rel=0.05)
    question, answer = saved["messages"]
    assert (question["role"], question["pictures"]) == ("user", ["picture-1.jpg"])
    assert (answer["role"], answer["heard"].strip()) == ("assistant", stub.script.answer.text)
    assert answer["starts_in_sound_ms"] == pytest.approx(1000 * np.argmax(audible) / RATE, abs=60)
    page = answer["timing_ms"]["page"]
    assert page["noticed"] <= page["first_text"] <= page["first_audio"] <= page["heard"] <= page["end"]
    assert answer["timing_ms"]["server"]["created_ms"] == pytest.approx(500, abs=30)


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
    session = until(lambda: stub.of_type("session.update"))[-1]["session"]
    assert session["instructions"] == "Answer in rhyme."
    assert session["audio"]["input"]["transcription"] == {"language": "de"}
    assert session["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 800
    talk.page.get_by_role("button", name="Settings & timing").click()
    for device in ("microphone", "camera"):
        assert talk.page.locator(f"select[name={device}] option").count() > 1
    talk.page.get_by_label("Decided by").select_option("semantic_vad")
    expect(talk.page.get_by_label("Eagerness")).to_be_visible()
    until(
        lambda: (
            stub.of_type("session.update")[-1]["session"]["audio"]["input"]["turn_detection"]["type"]
            == "semantic_vad"
        )
    )


@pytest.mark.parametrize(
    ("languages", "offered", "kept"),
    [
        (["en"], ["English"], "en"),
        (["en", "yue", "de"], ["any language", "English", "Cantonese", "German"], "de"),
        (["en", "fr"], ["any language", "English", "French"], None),
        ([], ["any language", "German"], "de"),
    ],
)
def test_the_languages_offered_are_those_that_the_server_hears(open_page, stub, languages, offered, kept):
    """`kept`: what becomes of German, chosen on another server."""
    talk = open_page(stub.url)
    talk.page.get_by_role("button", name="Settings & timing").click()
    talk.page.get_by_label("You speak").select_option("de")
    stub.script.languages = languages
    talk.page.reload()
    talk.page.get_by_role("button", name="Settings & timing").click()
    expect(talk.page.locator("select[name=language] option")).to_have_text(offered)
    expect(talk.page.get_by_label("You speak")).to_have_value(kept or "")
    names = talk.page.locator("#voice-names option").evaluate_all("found => found.map(o => o.value)")
    assert names == ["joe", "default"]
    talk.start()
    asked = until(lambda: stub.of_type("session.update"))[-1]["session"]["audio"]["input"]["transcription"]
    assert asked == ({"language": kept} if kept else {})


def test_a_muted_microphone_sends_silence(open_page, stub):
    talk = open_page(stub.url)
    talk.start()
    talk.page.get_by_role("button", name="Mute", exact=True).click()
    talk.state("Microphone off")
    before = len(stub.heard())
    talk.say(murmur(0.5))
    until(lambda: len(stub.heard()) - before > RATE)
    assert not stub.heard()[before:].any()
