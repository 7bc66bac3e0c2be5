"""The input audio buffer: appended, committed, cleared; and audio in other formats."""

import base64

import numpy as np
import pytest
from fake_pipeline import answer
from virtual_talk import SPEECH, VirtualTalk

from voice_app import messages as m
from voice_app.errors import StageFailed


def manual() -> VirtualTalk:
    t = VirtualTalk(answer)
    t.update(audio={"input": {"turn_detection": None}})
    return t


def test_manual_turns():
    t = manual()
    t.speak(1)
    t.send("input_audio_buffer.commit")
    assert t.kinds[-3:] == [
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
    ]
    assert not t.requests, "the client decides when to answer"
    t.send("response.create")
    t.wait(3)
    assert t.last("response.done")["response"]["status"] == "completed"
    part = t.requests[0][1].messages[-1].parts[0]
    assert isinstance(part, m.AudioPart)
    assert len(part.samples) == pytest.approx(16_000, abs=40)


def test_words_that_could_not_be_found_out():
    """A turn that nobody answers, lost in the pipeline: the client is not left waiting for its words."""
    t = VirtualTalk(lambda request: [StageFailed("it broke")])
    t.update(audio={"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}})
    t.speak(1)
    t.send("input_audio_buffer.commit")
    t.wait(2)
    told = t.last("conversation.item.input_audio_transcription.failed")
    assert told["item_id"] == t.last("input_audio_buffer.committed")["item_id"]
    assert told["error"]["code"] == "stage_failed"


def test_an_empty_commit_is_refused():
    t = manual()
    t.speak(0.08)
    t.send("input_audio_buffer.commit")
    assert t.error()["code"] == "input_audio_buffer_commit_empty"


def test_clear_forgets_the_sound():
    t = manual()
    t.speak(1)
    t.send("input_audio_buffer.clear")
    assert t.kinds[-1] == "input_audio_buffer.cleared"
    t.send("input_audio_buffer.commit")
    assert t.error()["code"] == "input_audio_buffer_commit_empty"


def test_commit_while_the_user_speaks_takes_the_announced_id(t: VirtualTalk):
    t.speak(1)
    started = t.last("input_audio_buffer.speech_started")["item_id"]
    t.send("input_audio_buffer.commit")
    assert t.last("input_audio_buffer.committed")["item_id"] == started
    t.silence(2)
    assert "input_audio_buffer.speech_stopped" not in t.kinds


def test_odd_bytes_are_joined():
    """15 ms at 44.1 kHz, or any careless cut, gives half a sample."""
    t = manual()
    pcm = base64.b64decode(SPEECH) * 10
    for start in range(0, len(pcm), 333):
        t.send("input_audio_buffer.append", audio=base64.b64encode(pcm[start : start + 333]).decode())
    t.send("input_audio_buffer.commit")
    t.send("conversation.item.retrieve", item_id=t.last("input_audio_buffer.committed")["item_id"])
    part = t.last("conversation.item.retrieved")["item"]["content"][0]
    got = np.frombuffer(base64.b64decode(part["audio"]), "<i2").astype(float)
    sent = np.frombuffer(pcm, "<i2").astype(float)[: len(got)]
    assert np.corrcoef(got[600:4000], sent[600:4000])[0, 1] > 0.95


@pytest.mark.parametrize("audio", ["%%%", "YQ=", "ä"])
def test_bad_base64_is_refused(t: VirtualTalk, audio: str):
    t.send("input_audio_buffer.append", audio=audio)
    assert (t.error()["code"], t.error()["param"]) == ("invalid_value", "audio")


def test_telephone_audio_in_and_out():
    t = VirtualTalk(answer)
    telephone = {"format": {"type": "audio/pcmu"}}
    t.update(audio={"input": telephone, "output": telephone})
    loud, quiet = base64.b64encode(b"\x00\x00\x00\x00\x80\x80\x80\x80" * 20), base64.b64encode(b"\xff" * 160)
    for packet, count in ((loud, 50), (quiet, 150)):
        for _ in range(count):
            t.wait(0.02)
            t.send("input_audio_buffer.append", audio=packet.decode())
    assert t.last("input_audio_buffer.speech_stopped")["audio_end_ms"] == pytest.approx(1500, abs=40)
    voice = b"".join(base64.b64decode(e["delta"]) for e in t.events("response.output_audio.delta"))
    assert len(voice) / 8000 == pytest.approx(4 * 0.3, abs=0.005)
    assert t.last("response.done")["response"]["audio"]["output"]["format"] == {"type": "audio/pcmu"}
