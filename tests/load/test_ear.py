"""From the server's events to a turn's times. The events are written by hand, as the protocol has them."""

import base64
import json

import pytest

from load.ear import PATIENCE_S, Ear, decode
from load.turns import Outcome, Turn


class Talk:
    """An ear with the turns that it gave."""

    def __init__(self, *, counted: bool = True) -> None:
        self.turns: list[Turn] = []
        self.ear = Ear("asks", 1, self.turns.append, counted=counted)

    def hear(self, at: float, kind: str, **fields) -> None:
        self.ear.hear(decode(json.dumps({"type": kind, "event_id": f"event_{at}", **fields})), at)

    def ask(self, begin: float = 0.0, end: float = 2.0, recording: str = "fact-1-1") -> None:
        self.ear.begin(recording, begin)
        self.ear.end(end)

    def answer(self, at: float, response: str = "resp_1") -> None:
        self.hear(at, "response.created", response={"id": response, "status": "in_progress"})

    def sound(self, at: float, seconds: float, response: str = "resp_1") -> None:
        delta = base64.b64encode(bytes(round(seconds * 24_000) * 2)).decode()
        self.hear(at, "response.output_audio.delta", response_id=response, delta=delta)

    def text(self, at: float, response: str = "resp_1") -> None:
        self.hear(at, "response.output_audio_transcript.delta", response_id=response, delta="Bees")

    def done(self, at: float, status: str = "completed", response: str = "resp_1", **details) -> None:
        self.hear(at, "response.done", response={"id": response, "status": status, **details})


def test_a_turn_has_its_times():
    talk = Talk()
    talk.ask(begin=0.0, end=2.0)
    talk.answer(2.6)
    talk.text(2.7)
    talk.text(2.8)
    talk.sound(2.9, 0.5)
    talk.sound(3.3, 0.5)
    talk.done(3.3)
    assert not talk.ear.heard_out(3.8)
    assert talk.ear.heard_out(3.95)
    (turn,) = talk.turns
    assert turn.outcome is Outcome.HEARD
    assert turn.first_text_s == pytest.approx(0.7)
    assert turn.first_audio_s == pytest.approx(0.9)
    assert turn.audio_s == pytest.approx(1.0)
    assert turn.real_time_factor == pytest.approx(0.4)
    assert turn.ended == pytest.approx(3.9)
    assert turn.underruns == []
    assert turn.silence_s is None


@pytest.mark.parametrize("count", [1, 100, 320, 1600])
def test_the_seconds_of_a_piece_of_sound_follow_from_its_length(count):
    talk = Talk()
    talk.ask()
    talk.answer(2.5)
    talk.sound(2.6, count / 24_000)
    talk.done(2.6)
    assert talk.ear.heard_out(9.0)
    assert talk.turns[0].audio_s == pytest.approx(count / 24_000)


def test_work_counts_from_the_packet_that_completed_the_silence():
    talk = Talk()
    talk.ear.begin("fact-1-1", 0.0)
    for number in range(50):
        talk.ear.sent(number * 0.02)
    talk.ear.end(0.98)
    for number in range(50, 80):
        talk.ear.sent(number * 0.02)
    talk.hear(1.5, "input_audio_buffer.speech_stopped", audio_end_ms=1500, item_id="item_1")
    talk.answer(1.5)
    talk.sound(1.7, 0.2)
    talk.done(1.7)
    assert talk.ear.heard_out(2.0)
    # 1500 ms are complete with the 75th packet.
    assert talk.turns[0].silence_ended == pytest.approx(74 * 0.02)
    assert talk.turns[0].work_s == pytest.approx(1.7 - 74 * 0.02)


def test_a_listener_that_runs_dry_is_noted():
    talk = Talk()
    talk.ask()
    talk.answer(2.5)
    talk.sound(3.0, 0.2)
    talk.sound(3.5, 0.2)
    talk.done(3.5)
    assert talk.ear.heard_out(4.0)
    (underrun,) = talk.turns[0].underruns
    assert (underrun.at, underrun.seconds) == (pytest.approx(3.2), pytest.approx(0.3))


def test_an_interruption_counts_from_its_first_packet_until_nothing_is_heard():
    talk = Talk()
    talk.ask()
    talk.answer(2.5)
    talk.sound(3.0, 2.0)
    assert talk.ear.playing_s(3.6) == pytest.approx(0.6)
    talk.ear.begin("fact-2-1", 3.6)
    talk.sound(3.62, 0.2)
    talk.hear(4.0, "input_audio_buffer.speech_started", audio_start_ms=0, item_id="item_2")
    talk.done(4.01, "cancelled")
    (turn,) = talk.turns
    assert turn.outcome is Outcome.INTERRUPTED
    assert turn.silence_s == pytest.approx(0.4)
    assert turn.still_sent_s == pytest.approx(0.02)
    assert turn.underruns == []
    # The question that interrupted is a turn of its own.
    talk.ear.end(5.0)
    talk.answer(5.6, "resp_2")
    talk.sound(5.7, 0.1, "resp_2")
    talk.done(5.8, response="resp_2")
    assert talk.ear.heard_out(6.0)
    assert talk.turns[1].first_audio_s == pytest.approx(0.7)


def test_an_answer_that_was_sent_out_is_silent_when_it_is_played_even_if_nobody_stops_it():
    talk = Talk()
    talk.ask()
    talk.answer(2.5)
    talk.sound(3.0, 1.0)
    talk.done(3.0)
    talk.ear.begin("fact-2-1", 3.9)
    assert not talk.ear.heard_out(4.5)
    assert talk.turns[0].outcome is Outcome.INTERRUPTED
    assert talk.turns[0].silence_s == pytest.approx(0.1)


def test_speech_over_an_answer_holds_its_sound_on_purpose():
    talk = Talk()
    talk.ask()
    talk.answer(2.5)
    talk.sound(3.0, 0.2)
    talk.ear.begin("fact-2-1", 3.1)
    talk.sound(4.0, 0.2)
    talk.done(4.0)
    talk.ear.heard_out(5.0)
    assert talk.turns[0].underruns == []


def test_a_turn_whose_end_the_server_took_back_is_measured_by_the_answer_to_all_of_it():
    talk = Talk()
    talk.ear.begin("fact-1-1", 0.0)
    talk.answer(0.9)
    talk.sound(1.0, 0.3)
    talk.done(1.2, "cancelled")
    talk.ear.end(2.0)
    talk.answer(2.5, "resp_2")
    talk.sound(2.6, 0.1, "resp_2")
    talk.done(2.6, response="resp_2")
    assert talk.ear.heard_out(3.0)
    (turn,) = talk.turns
    assert turn.early
    assert turn.first_audio_s == pytest.approx(0.6)
    assert turn.audio_s == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("status", "details", "outcome", "detail"),
    [
        (
            "failed",
            {"status_details": {"error": {"code": "overloaded", "message": "x"}}},
            "failed",
            "overloaded",
        ),
        ("failed", {}, "failed", ""),
        ("cancelled", {}, "cut off", ""),
        ("completed", {}, "wordless", ""),
    ],
)
def test_what_is_no_answer_says_why(status, details, outcome, detail):
    talk = Talk()
    talk.ask()
    talk.answer(2.5)
    talk.done(2.6, status, **details)
    (turn,) = talk.turns
    assert (turn.outcome, turn.detail) == (outcome, detail)
    assert turn.first_audio_s is None


def test_words_without_a_sound_are_no_answer():
    talk = Talk()
    talk.ask()
    talk.answer(2.5)
    talk.text(2.6)
    talk.done(2.7)
    assert talk.turns[0].outcome is Outcome.SOUNDLESS


def test_half_a_question_that_was_taken_for_no_speech_ends_no_turn():
    talk = Talk()
    talk.ear.begin("fact-1-1", 0.0)
    talk.answer(0.9)
    talk.done(1.0)
    talk.ear.end(2.0)
    talk.answer(2.5, "resp_2")
    talk.sound(2.6, 0.1, "resp_2")
    talk.done(2.6, response="resp_2")
    assert talk.ear.heard_out(3.0)
    assert [turn.outcome for turn in talk.turns] == [Outcome.HEARD]
    assert talk.ear.faults == []


def test_patience_ends_and_a_late_answer_is_no_answer_to_nothing():
    talk = Talk()
    talk.ask(end=2.0)
    assert talk.ear.waits_s(3.5) == pytest.approx(1.5)
    assert not talk.ear.heard_out(2.0 + PATIENCE_S)
    assert talk.ear.heard_out(2.1 + PATIENCE_S)
    assert talk.turns[0].outcome is Outcome.UNANSWERED
    assert talk.ear.waits_s(30.0) == 0
    talk.answer(40.0)
    assert talk.ear.faults == []
    talk.answer(41.0, "resp_2")
    assert talk.ear.faults == [(41.0, "an answer to nothing")]


def test_whoever_leaves_takes_all_open_turns_along():
    talk = Talk()
    talk.ask()
    talk.answer(2.5)
    talk.sound(3.0, 5.0)
    talk.ear.begin("fact-2-1", 3.5)
    talk.ear.leave(3.6)
    assert [turn.outcome for turn in talk.turns] == [Outcome.LEFT, Outcome.LEFT]
    assert talk.ear.heard_out(3.7)


def test_the_greeting_brings_what_is_needed_to_resume():
    talk = Talk()
    session = {"id": "sess_1", "extensions": {"resume": {"token": "tok", "resumed": True, "ttl_s": 1}}}
    talk.hear(0.5, "session.created", session=session)
    ear = talk.ear
    assert (ear.session, ear.resume_token, ear.resumed, ear.greeted) == ("sess_1", "tok", True, 0.5)
    assert ear.last_event_id == "event_0.5"


def test_error_events_are_kept_with_their_time():
    talk = Talk()
    talk.hear(1.0, "error", error={"type": "x", "code": "rate_limit_exceeded", "message": "m"})
    assert talk.ear.faults == [(1.0, "rate_limit_exceeded")]


def test_what_a_slow_reader_waits_for_is_its_own_fault():
    talk = Talk(counted=False)
    talk.ask()
    assert talk.ear.waits_s(9.0) == 0
    talk.ear.leave(9.0)
    assert not talk.turns[0].counted
