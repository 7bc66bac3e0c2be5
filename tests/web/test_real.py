"""The page, a real Chromium, and a real server with the local pack: real speech in, real speech out."""

import io
import re
import signal

import numpy as np
import pytest
import soundfile
import soxr
from PIL import Image
from playwright.sync_api import expect
from talk_page import BLOCK, DATA, TalkPage

from voice_app.bench import heard_back

pytestmark = pytest.mark.models

RATE = 24_000


def question(name: str) -> np.ndarray:
    """A spoken question of the fixed list: [n] float32 at 24 kHz."""
    samples, rate = soundfile.read(DATA / "spoken" / f"{name}.flac", dtype="float32")
    return soxr.resample(samples, rate, RATE)


def heard(talk: TalkPage) -> str:
    """What another recogniser understands of all that the loudspeaker was given."""
    return heard_back.hear([heard_back.Spoken("", talk.played(), RATE)])[0]


def test_spoken_question_answered_interrupted_and_gone_on_with_after_a_reload(open_page, server):
    talk = open_page(server.url)
    talk.start()
    talk.say(question("sum-1-1"))
    talk.state("Speaking", timeout_s=60)
    talk.state("Listening", timeout_s=60)
    expect(talk.entries("user").first).to_contain_text(re.compile("twelve|12"))
    answer = talk.entries("assistant").first.inner_text()
    assert "84" in answer
    assert re.search("84|eighty.four", heard(talk).lower())
    talk.page.screenshot(path=talk.picture("real-answer"))

    talk.type("Tell me a long story about a cat and a dog who live in a house by the sea.")
    talk.state("Speaking", timeout_s=60)
    talk.hear(len(talk.blocks()) * BLOCK / RATE + 0.5)
    spoken = question("fact-1-1")
    said = talk.say(spoken) + 1000 * np.flatnonzero(np.abs(spoken) > 0.03)[0] / RATE
    talk.state("Interrupted")
    [cut] = talk.events("response.done")[-1:]
    stopped = max(block.at for block in talk.blocks())
    decided = talk.events("input_audio_buffer.speech_started")[-1]["at"]
    print(
        f"after speech began: silent in {stopped - said:.0f} ms, the server's word in {decided - said:.0f} ms"
    )
    assert stopped - said < 200
    assert cut["response"]["status"] == "cancelled"
    interrupted = talk.page.locator(".entry.assistant[data-status=interrupted] .words")
    expect(interrupted).to_have_count(1)
    talk.state("Speaking", timeout_s=60)
    expect(talk.entries("user").last).to_contain_text("France")
    talk.state("Listening", timeout_s=60)
    before = [each.inner_text() for each in talk.page.locator(".entry .words").all()]

    talk.page.reload()
    talk.start()
    assert [each.inner_text() for each in talk.page.locator(".entry .words").all()] == before
    talk.type("What was my first question about?")
    talk.state("Speaking", timeout_s=60)
    talk.state("Listening", timeout_s=60)
    assert talk.events("error") == []


def test_camera_question(open_page, server, launch, tmp_path):
    film = tmp_path / "cat.mjpeg"
    picture = io.BytesIO()
    Image.open(DATA / "pictures" / "cat.jpg").convert("RGB").resize((640, 480)).save(picture, "jpeg")
    film.write_bytes(picture.getvalue() * 30)
    talk = open_page(server.url, browser=launch(f"--use-file-for-fake-video-capture={film}"))
    talk.page.locator("#camera-button").click()
    talk.until("document.querySelector('#preview').videoWidth > 0")
    talk.start()
    talk.say(question("camera-1-1"))
    talk.state("Speaking", timeout_s=60)
    talk.state("Listening", timeout_s=60)
    expect(talk.page.locator(".entry.user .frames canvas").first).to_be_visible()
    expect(talk.entries("assistant")).to_contain_text(re.compile(r"\b(cat|tabby|kitten)\b", re.IGNORECASE))
    talk.page.screenshot(path=talk.picture("real-camera"))
    assert talk.events("error") == []


def test_server_killed_in_mid_answer_and_restarted(open_page, server):
    talk = open_page(server.url)
    talk.tolerated += ("WebSocket connection to", "net::ERR_CONNECTION")
    talk.start()
    talk.type("What is two plus two?")
    talk.state("Speaking", timeout_s=60)
    talk.state("Listening", timeout_s=60)
    talk.type("Tell me a long story about a cat and a dog who live in a house by the sea.")
    talk.state("Speaking", timeout_s=60)
    expect(talk.entries("assistant").last).to_contain_text(re.compile(r"\w+ \w+ \w+"))
    server.stop(signal.SIGKILL)
    talk.notice("The connection was lost. Reconnecting; your talk is kept.")
    server.start()
    talk.state("Listening", timeout_s=60)
    assert "Connected again. Go on talking." in talk.notices(), "resumed with its token"
    cut = talk.page.locator(".entry.assistant[data-status=interrupted] .words")
    expect(cut).to_have_count(1)
    talk.type("What is three plus four?")
    talk.state("Speaking", timeout_s=60)
    talk.state("Listening", timeout_s=60)
    expect(talk.entries("assistant").last).to_contain_text(re.compile("7|seven"))
    # Nothing is there twice, neither here nor with the server.
    expect(talk.page.locator(".entry")).to_have_count(6)
    expect(cut).to_have_count(1)
    assert {error["error"]["param"] for error in talk.events("error")} <= {"audio_end_ms"}
