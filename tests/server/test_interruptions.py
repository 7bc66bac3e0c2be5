"""Talks in virtual time: speech over a reply, and what of the reply stays."""

import base64
import gc
import time

import numpy as np
import pytest
from fake_pipeline import spoken
from virtual_talk import LONG, LoudnessDetector, VirtualTalk, answering, talk

from voice_app import messages as m
from voice_app.server.protocol.config import AudioInput
from voice_app.server.session.microphone import Microphone
from voice_app.server.session.turn_types import Frame
from voice_app.server.settings import TalkSettings


def test_an_interruption_stops_everything_and_keeps_what_was_heard():
    t = talk()
    t.speak(1)
    t.silence(0.4)
    t.clear()
    t.silence(1.4)
    playing_since = t.times("response.output_audio.delta")[0]
    interrupted_at = t.now
    t.speak(1)
    last_audio = t.times("response.output_audio.delta")[-1]
    assert last_audio <= interrupted_at + 0.021, "held at the first frame of speech"
    done = t.last("response.done")["response"]
    assert done["status"] == "cancelled"
    assert done["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    kinds = t.kinds
    assert kinds.index("input_audio_buffer.speech_started") < kinds.index("response.done")
    heard_s = t.times("input_audio_buffer.speech_started")[0] - playing_since
    words = int((heard_s + 0.002) / 0.3)
    heard = " ".join(LONG.split()[:words])
    assert done["output"][0]["content"][0]["transcript"] == heard
    assert t.last("conversation.item.truncated")["audio_end_ms"] == pytest.approx(heard_s * 1000, abs=25)
    t.silence(6)
    assert t.history()[-2:] == [("assistant", heard), ("user", "<speech>")]
    t.checker.finish()


def test_the_work_is_cancelled_before_anything_is_sent():
    t = talk(each_s=0.2)
    t.speak(1)
    t.silence(1.5)
    t.clear()
    t.actions.clear()
    t.speak(1)
    at = t.times("input_audio_buffer.speech_started")[0]
    batch = [action for when, action in t.actions if when == at]
    assert type(batch[0]).__name__ == "Cancel"


def test_the_turn_whose_answer_was_interrupted_is_remembered():
    """Both turns of the user stay, with what was heard of the answer between them."""
    t = talk(each_s=0.1)
    t.say("First")
    t.send("response.create")
    t.wait(0.2)
    t.silence(0.5)
    t.speak(1)
    t.silence(2)
    roles = [(role, text) for role, text in t.history() if role != "system"]
    assert roles[0] == ("user", "First")
    assert roles[1][0] == "assistant"
    assert roles[2] == ("user", "<speech>")


def test_nothing_of_an_old_reply_is_in_the_next_one():
    """Two talks of the same words, one with an interrupted reply before: the same second reply."""

    def second_reply(*, interrupted: bool) -> bytes:
        t = VirtualTalk(lambda r: spoken(LONG if len(r.messages) == 1 and interrupted else "Fine."))
        t.speak(1)
        t.silence(2.0)
        t.speak(1)
        t.silence(3)
        last = t.last("response.created")["response"]["id"]
        deltas = [e["delta"] for e in t.events("response.output_audio.delta") if e["response_id"] == last]
        assert len({e["response_id"] for e in t.events("response.output_audio.delta")}) == 2
        return b"".join(map(base64.b64decode, deltas))

    assert second_reply(interrupted=True) == second_reply(interrupted=False)


def test_speech_after_the_last_audio_was_sent_still_stops_the_playback():
    """Generation and sending are over, the loudspeaker is not."""
    t = talk("one two three", TalkSettings(lead_s=10.0))
    t.speak(1)
    t.silence(0.7)
    assert t.kinds[-1] == "response.done"
    t.clear()
    t.speak(1)
    assert t.events("conversation.item.truncated")
    t.silence(2)
    assert t.history()[-2][0] == "assistant"
    assert t.history()[-2][1] in ("one", "one two")


def test_a_cough_does_not_interrupt():
    t = talk()
    t.speak(1)
    t.silence(1.5)
    t.clear()
    t.speak(0.04)
    t.silence(4)
    assert "input_audio_buffer.speech_started" not in t.kinds
    assert t.last("response.done")["response"]["status"] == "completed"


def test_how_long_speech_must_be_is_the_operators():
    """A cough that would pass begins a turn, and one that would begin a turn passes."""
    for onset_ms, sound_s, told in (
        (40, 0.04, 1),
        (60, 0.04, 0),
        (200, 0.18, 0),
        (None, 0.12, 0),
        (None, 0.14, 1),
    ):
        t = talk(settings=TalkSettings() if onset_ms is None else TalkSettings(onset_ms=onset_ms))
        t.speak(sound_s)
        t.silence(1)
        assert t.kinds.count("input_audio_buffer.speech_started") == told


def test_any_speech_interrupts_where_the_operator_says_so():
    t = VirtualTalk(answering(heard="Mm-hm."), TalkSettings(interrupt_ms=0))
    t.speak(1)
    t.silence(1.5)
    t.speak(TalkSettings().onset_ms / 1000)
    t.silence(0.1)
    assert t.last("response.done")["response"]["status"] == "cancelled"


@pytest.mark.parametrize(("words", "kept"), [("Mm-hm.", True), ("", True), ("Yeah.", True), ("Stop.", False)])
def test_a_short_sound_over_a_reply_is_judged_by_its_words(words: str, kept: bool):
    def answer(request: m.TurnRequest):
        first = len(request.messages) == 1
        return spoken(LONG if first else "Fine.", heard="hello" if first else words)

    t = VirtualTalk(answer, first_s=0.08)
    t.speak(1)
    t.silence(1.5)
    t.speak(0.3)
    t.silence(6)
    statuses = [event["response"]["status"] for event in t.events("response.done")]
    if kept:
        assert statuses == ["completed"]
        assert t.kinds.count("input_audio_buffer.speech_started") == 1
        whole = sum(3 * len(e["delta"]) // 4 for e in t.events("response.output_audio.delta"))
        assert whole / 48_000 == pytest.approx(12 * 0.3, abs=0.001), "it went on where it was held"
        gaps = [
            b - a
            for a, b in zip(
                t.times("response.output_audio.delta"),
                t.times("response.output_audio.delta")[1:],
                strict=False,
            )
        ]
        assert max(gaps) < 1.0, "and the listener, a second behind, heard no gap"
    else:
        assert statuses == ["cancelled", "completed"]
        assert t.history()[-1] == ("user", "<speech>")
    t.checker.finish()


def test_the_next_turn_never_waits_for_the_old_one():
    t = talk(each_s=2.0)
    t.speak(1)
    t.silence(1)
    t.speak(1)
    before = len(t.requests)
    t.silence(0.2)
    assert len(t.requests) == before + 1
    t.silence(0.5)
    assert t.kinds.count("response.created") == 2


def test_interrupt_response_false_lets_the_reply_end_and_then_answers():
    t = talk("one two three")
    t.update(audio={"input": {"turn_detection": {"interrupt_response": False}}})
    t.speak(1)
    t.silence(0.6)
    t.speak(0.3)
    t.silence(6)
    assert [e["response"]["status"] for e in t.events("response.done")] == ["completed", "completed"]
    t.checker.finish()


def test_half_an_hour_with_two_hundred_interruptions_takes_less_than_a_second():
    """The core alone: frames come already judged, without the sound (decoding, resampling, detection).

    A second of a processor that adds up three million numbers in 0.1 s; a slower one has more. Other work on
    the machine only ever adds to the time: the quickest of three counts."""
    times: list[float] = []
    while len(times) < 3 and min(times, default=1.0) >= 1.0:
        slowness = max(1.0, _addition() / 0.1)
        times.append(_half_an_hour() / slowness)
    assert min(times) < 1.0


def _addition() -> float:
    """Processor seconds that three million numbers take."""
    begin, total = time.process_time(), 0
    for number in range(3_000_000):
        total += number & 7
    return time.process_time() - begin


def _half_an_hour() -> float:
    """Processor seconds that the talk took."""
    script = spoken("one two three four five six", heard="hello", rate=24_000)
    settings = TalkSettings(lead_s=0.4)
    t = VirtualTalk(lambda request: script, settings, each_s=0.3, check=False, make_microphone=JudgedFrames)
    gc.collect()
    gc.freeze()  # What other tests left is not searched through again and again.
    begin = time.process_time()
    for _ in range(200):
        for level, packets in ((b"\1", 10), (b"\0", 13), (b"\1", 7), (b"\0", 15)):
            packet = base64.b64encode(level * 10).decode()
            for _ in range(packets):
                t.wait(0.2)
                t.send("input_audio_buffer.append", audio=packet)
    seconds = time.process_time() - begin
    gc.unfreeze()
    assert t.now - 1000 >= 1799
    cancelled = [e for e in t.events("response.done") if e["response"]["status"] == "cancelled"]
    assert len(cancelled) >= 200
    return seconds


SPEECH, SILENCE = Frame(0), Frame(20)


class JudgedFrames(Microphone):
    """Each byte is a frame: speech or not."""

    def __init__(self, config: AudioInput) -> None:
        super().__init__(config, LoudnessDetector)
        self._ms = 0

    @property
    def position_ms(self) -> int:
        return self._ms

    def hear(self, data: bytes) -> list[Frame]:
        self._ms += 20 * len(data)
        return [SPEECH if byte else SILENCE for byte in data]

    def cut(self, start_ms: int, end_ms: int) -> np.ndarray:
        return np.zeros(0, np.int16)
