"""The extension `timing`: what a response says of where its time went."""

import pytest
from fake_pipeline import spoken
from virtual_talk import VirtualTalk

FIRST_S, EACH_S, PACKET_S = 0.4, 0.1, 0.02
WORD_S = 0.3


@pytest.fixture
def talk() -> VirtualTalk:
    """The pipeline's first event (what it heard) comes 400 ms after it is asked, the others each 100 ms
    later: the first word is the second, its sound the third. Work begins after 80 ms of silence."""
    answer = spoken("one two three four five", seconds_per_word=WORD_S)
    made = VirtualTalk(lambda request: answer, first_s=FIRST_S, each_s=EACH_S)
    made.update(extensions={"timing": True})
    return made


def done(talk: VirtualTalk) -> dict[str, int]:
    return talk.last("response.done")["response"]["timing"]


def test_a_spoken_turn_is_timed_from_the_end_of_speech(talk):
    talk.speak(1)
    talk.silence(5)
    timing = done(talk)
    assert timing["created_ms"] == 500, "the silence that ends a turn"
    assert timing["first_text_ms"] == pytest.approx(1000 * (0.08 + FIRST_S + EACH_S), abs=1000 * PACKET_S)
    assert timing["first_audio_ms"] - timing["first_text_ms"] == pytest.approx(1000 * EACH_S, abs=1)
    # All five words are sent when the last is a second or less ahead of the ear.
    assert timing["done_ms"] > timing["first_audio_ms"]
    assert list(timing) == ["created_ms", "first_text_ms", "first_audio_ms", "done_ms"]


def test_a_response_that_the_client_asks_for_is_timed_from_then(talk):
    talk.say("hello")
    talk.send("response.create")
    talk.wait(5)
    timing = done(talk)
    assert timing["created_ms"] == 0
    assert timing["first_text_ms"] == pytest.approx(1000 * (FIRST_S + EACH_S), abs=1)


def test_an_interrupted_answer_is_timed_as_far_as_it_came(talk):
    talk.speak(1)
    talk.silence(0.6)
    talk.speak(1)
    response = talk.last("response.done")["response"]
    assert response["status"] == "cancelled"
    # Speech over an answer interrupts it after 400 ms, or earlier by its words.
    assert 600 < response["timing"]["done_ms"] <= 1000


def test_nobody_else_is_told():
    talk = VirtualTalk(lambda request: spoken("one two"), first_s=FIRST_S)
    talk.speak(1)
    talk.silence(3)
    assert "timing" not in talk.last("response.done")["response"]
