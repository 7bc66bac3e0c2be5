"""Talks in virtual time: turns, speculation, what is sent when."""

import base64

import pytest
from fake_pipeline import spoken
from virtual_talk import LONG, SPEECH, VirtualTalk, answering, talk

from voice_app import messages as m
from voice_app.errors import StageFailed
from voice_app.server.settings import TalkSettings


def test_a_turn_ends_after_the_silence_and_is_answered():
    t = talk("Hello there.")
    t.silence(1)
    t.speak(1)
    t.silence(3)
    order = ["speech_started", "speech_stopped", "committed"]
    assert [k for k in t.kinds if "input_audio_buffer" in k] == [f"input_audio_buffer.{k}" for k in order]
    started, stopped = (
        t.last("input_audio_buffer.speech_started"),
        t.last("input_audio_buffer.speech_stopped"),
    )
    assert started["audio_start_ms"] == 700, "300 ms of prefix"
    assert stopped["audio_end_ms"] == 2500, "500 ms of silence"
    assert t.last("response.done")["response"]["status"] == "completed"
    t.checker.finish()


def test_nothing_is_sent_before_the_turn_is_over_and_the_wait_hides_the_work():
    t = talk("Hello there.", first_s=0.2)
    t.speak(1)
    t.silence(3)
    [stopped] = t.times("input_audio_buffer.speech_stopped")
    first_audio = t.times("response.output_audio.delta")[0]
    submitted = t.requests[0][0]
    assert stopped - submitted == pytest.approx(0.42, abs=0.021), "work began at 80 ms of silence"
    assert first_audio == stopped, "all of the model's 0.2 s were hidden"
    assert len(t.requests) == 1
    told = [at for at, event in t.log if event["type"].startswith("response.")]
    assert min(told) >= stopped


def test_a_speculation_is_dropped_without_a_trace_when_the_user_goes_on():
    t = talk("Hello there.")
    t.speak(1)
    t.silence(0.3)
    t.speak(0.5)
    t.silence(0.3)
    t.speak(0.5)
    t.silence(2)
    assert len(t.requests) == 3
    turns = [request.turn for _, request in t.requests]
    assert [turn.generation for turn in turns] == [0, 1, 2]
    assert len({turn.key for turn in turns}) == 1
    assert t.cancelled == turns[:2]
    assert len(t.events("response.created")) == 1
    part = t.requests[-1][1].messages[-1].parts[0]
    assert isinstance(part, m.AudioPart)
    assert len(part.samples) / 16_000 == pytest.approx(2.6 + 0.08, abs=0.03), "the whole turn"


def test_without_speculation_the_work_starts_when_the_turn_is_over():
    t = talk("Hello there.", TalkSettings(speculate_ms=None))
    t.speak(1)
    t.silence(2)
    assert t.requests[0][0] == t.times("input_audio_buffer.speech_stopped")[0]


@pytest.mark.parametrize("seconds", [0.004, 0.05, 0.1, 0.25])
def test_a_reply_of_one_short_word_is_heard_whole(seconds: float):
    t = VirtualTalk(lambda request: spoken("Yes.", seconds, heard=None))
    t.say("Is it?")
    t.send("response.create")
    t.wait(2)
    sent = b"".join(base64.b64decode(e["delta"]) for e in t.events("response.output_audio.delta"))
    assert len(sent) / 48_000 == pytest.approx(seconds, abs=0.001)
    assert t.last("response.done")["response"]["output"][0]["content"][0]["transcript"] == "Yes."


def test_packets_that_stop_count_as_silence():
    t = talk("Hello there.")
    t.speak(1)
    t.wait(3)
    assert t.last("response.done")["response"]["status"] == "completed"
    assert t.times("input_audio_buffer.speech_stopped")[0] == pytest.approx(1000 + 1.0 + 0.5, abs=0.03)


@pytest.mark.parametrize("packet_ms", [100, 200, 400])
def test_long_packets_are_not_silence(packet_ms: int):
    """A client that sends every 400 ms has not stopped in between."""
    t = talk("Hello there.")
    packet = base64.b64encode(base64.b64decode(SPEECH) * (packet_ms // 20)).decode()
    for _ in range(2000 // packet_ms):
        t.wait(packet_ms / 1000)
        t.send("input_audio_buffer.append", audio=packet)
    assert not t.requests
    t.wait(1.5)
    assert len(t.requests) == 1


def test_audio_is_paced_to_the_ear():
    t = talk(" ".join(["word"] * 40))
    t.speak(1)
    t.silence(9)
    sent_s = 0.0
    start = t.times("response.output_audio.delta")[0]
    for at, event in t.log:
        if event["type"] == "response.output_audio.delta":
            sent_s += 3 * len(event["delta"]) / 4 / 48_000
            assert sent_s - (at - start) <= 1.15


def semantic(eagerness: str, *, complete: float | None) -> VirtualTalk:
    """A talk whose turns a model judges: `complete` is what it says, 50 ms after it is asked."""
    t = VirtualTalk(answering("Fine."), TalkSettings(semantic_vad=True))
    t.update(audio={"input": {"turn_detection": {"type": "semantic_vad", "eagerness": eagerness}}})
    t.judge = complete
    return t


@pytest.mark.parametrize(
    ("eagerness", "complete", "silence_s"),
    [("high", 0.9, 0.25), ("auto", 0.9, 0.4), ("low", 0.9, 0.7), ("high", 0.1, 2.0), ("medium", None, 4.0)],
)
def test_a_turn_that_sounds_complete_ends_early(eagerness: str, complete: float | None, silence_s: float):
    t = semantic(eagerness, complete=complete)
    t.speak(1)
    spoken_until = t.now
    t.silence(5)
    [stopped] = t.times("input_audio_buffer.speech_stopped")
    assert stopped - spoken_until == pytest.approx(silence_s, abs=0.045), "two frames"
    assert len(t.asked) == 1


def test_each_pause_is_judged_by_itself():
    t = semantic("high", complete=0.1)
    t.speak(1)
    t.silence(0.6)
    t.speak(0.5)
    t.judge = 0.9
    t.silence(1)
    assert len(t.asked) == 2
    assert t.kinds.count("input_audio_buffer.speech_stopped") == 1


def test_a_judgement_that_comes_too_late_is_of_no_account():
    t = semantic("high", complete=None)
    t.speak(1)
    t.silence(0.3)
    [(_, pause)] = t.asked
    t.speak(0.5)
    t.session.judged(pause, 1.0, t.now)
    t._act()
    t.silence(0.1)
    assert "input_audio_buffer.speech_stopped" not in t.kinds


def test_idle_timeout_prompts_the_user():
    t = talk("one two")
    t.update(audio={"input": {"turn_detection": {"idle_timeout_ms": 3000}}})
    t.speak(1)
    t.silence(0.6)
    t.clear()
    t.silence(4)
    triggered = t.last("input_audio_buffer.timeout_triggered")
    length = triggered["audio_end_ms"] - triggered["audio_start_ms"]
    assert length == pytest.approx(3000, abs=40)
    assert "response.created" in t.kinds
    t.silence(2)
    t.checker.finish()


@pytest.mark.parametrize("microphone", ["open", "gone"])
def test_an_idle_timeout_asks_the_model_to_speak_first(microphone: str):
    """Not what it makes of the silence; also where the client sends no silence at all."""
    t = talk("one two")
    t.update(audio={"input": {"turn_detection": {"idle_timeout_ms": 3000}}})
    t.say("Hello")
    t.send("response.create")
    t.wait(1)
    (t.silence if microphone == "open" else t.wait)(4)
    assert t.kinds.count("input_audio_buffer.timeout_triggered") == 1
    assert t.history()[-2:] == [("assistant", "one two"), ("user", "")]
    assert t.kinds.count("response.created") == 2
    t.wait(2)
    t.checker.finish()


def test_a_failed_turn_says_so_and_the_talk_goes_on():
    def answer(request: m.TurnRequest):
        if len(request.messages) < 3:
            return [*spoken(LONG)[:6], StageFailed("thinker: out of memory")]
        return spoken("Fine.")

    t = VirtualTalk(answer)
    t.speak(1)
    t.silence(2)
    failed = t.last("response.done")["response"]
    assert failed["status"] == "failed"
    assert failed["status_details"]["error"]["code"] == "stage_failed"
    assert failed["status_details"]["error"]["type"] == "server_error"
    assert "error" not in t.kinds, "an error event would end some clients' sessions"
    t.speak(1)
    t.silence(3)
    assert t.last("response.done")["response"]["status"] == "completed"
