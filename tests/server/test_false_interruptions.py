"""Talks in virtual time: a noise that interrupts a reply costs neither the reply nor the question."""

import pytest
from fake_pipeline import spoken
from virtual_talk import LONG, VirtualTalk

from voice_app import messages as m
from voice_app.server.session.actions import Count, Tally
from voice_app.server.settings import TalkSettings


def coughing(request: m.TurnRequest):
    """Answers a question with `LONG`; says what was left unsaid where the user's sound holds no words."""
    if len(request.messages) == 1:
        return spoken(LONG, heard="tell me something")
    return spoken(request.unsaid, heard="") if request.unsaid else spoken("", heard="")


SILENCE: list[m.TurnEvent] = [
    m.Transcript(""),
    m.TextDone("silence", m.Usage(9, 0, 0)),
    m.AudioDone(0),
    m.TurnDone({}),
]
"""What the local pack makes of a noise, with nothing to say on."""


def noisy(request: m.TurnRequest) -> list[m.TurnEvent]:
    """Answers the question, which is the first message; to a noise after it there is nothing to say."""
    if len(request.messages) == 1:
        return spoken(LONG, heard="tell me something")
    return spoken(request.unsaid, heard="") if request.unsaid else SILENCE


def said(t: VirtualTalk) -> list[tuple[str, list[str]]]:
    """Status and words of the responses that ended."""
    return [
        (e["response"]["status"], [item["content"][0]["transcript"] for item in e["response"]["output"]])
        for e in t.events("response.done")
    ]


def outcomes(t: VirtualTalk) -> list[str]:
    """What became of the sounds over replies."""
    counted = [action for _, action in t.actions if isinstance(action, Count)]
    return [count.label for count in counted if count.tally is Tally.OVERLAP]


@pytest.mark.parametrize(
    "settings", [TalkSettings(), TalkSettings(speculate_ms=None), TalkSettings(interrupt_ms=0)]
)
def test_a_reply_that_a_noise_interrupted_goes_on_where_it_was_heard(settings: TalkSettings):
    t = VirtualTalk(coughing, settings)
    t.speak(1)
    t.silence(2)
    t.clear()
    t.speak(0.8)
    t.silence(6)
    order = [
        "input_audio_buffer.speech_started",
        "response.done",
        "conversation.item.truncated",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "response.created",
        "response.done",
    ]
    assert [kind for kind in t.kinds if kind in order] == order, "as after any interruption"
    cut, resumed = (event["response"] for event in t.events("response.done"))
    heard, rest = (done["output"][0]["content"][0]["transcript"] for done in (cut, resumed))
    assert (cut["status"], resumed["status"]) == ("cancelled", "completed")
    assert heard
    assert f"{heard} {rest}" == LONG, "no word twice, none lost"
    assert cut["output"][0]["id"] != resumed["output"][0]["id"]
    assert outcomes(t) == ["interruption", "resumed"]
    t.say("And then?")
    t.send("response.create")
    assert [text for role, text in t.history() if role == "assistant"] == [heard, rest]
    assert ("user", "<speech>") not in t.history(), "the noise is no part of the talk"
    t.wait(1)
    t.checker.finish()


def test_what_the_client_says_it_played_counts_for_what_is_resumed():
    t = VirtualTalk(coughing)
    t.speak(1)
    t.silence(2)
    t.speak(0.6)
    item = t.last("conversation.item.truncated")["item_id"]
    t.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=650)
    t.silence(6)
    assert t.requests[-1][1].unsaid == LONG.removeprefix("one two ")
    t.checker.finish()


@pytest.mark.parametrize("silence_s", [0.1, 0.3], ids=["at once", "when work on the rest has begun"])
def test_nothing_more_is_said_of_a_reply_that_the_client_deleted(silence_s: float):
    t = VirtualTalk(noisy)
    t.speak(1)
    t.silence(2)
    t.clear()
    t.speak(0.6)
    item = t.last("conversation.item.truncated")["item_id"]
    t.silence(silence_s)
    t.send("conversation.item.delete", item_id=item)
    t.silence(6)
    assert t.requests[-1][1].unsaid == ""
    assert [words for _, words in said(t)][1:] == [[]]
    assert outcomes(t) == ["interruption"]


def test_a_reply_may_be_resumed_more_than_once():
    t = VirtualTalk(coughing)
    t.speak(1)
    t.silence(1.5)
    for _ in range(2):
        t.speak(0.6)
        t.silence(1.2)
    t.silence(6)
    said = [e["response"]["output"][0]["content"][0]["transcript"] for e in t.events("response.done")]
    assert len(said) == 3
    assert all(said)
    assert " ".join(said) == LONG
    t.checker.finish()


@pytest.mark.parametrize("settings", [TalkSettings(resumes=False), TalkSettings(transcribes=False)])
def test_nothing_is_resumed_where_that_is_off_or_nobody_tells_words(settings: TalkSettings):
    t = VirtualTalk(coughing, settings)
    t.speak(1)
    t.silence(2)
    t.speak(0.8)
    t.silence(3)
    assert not any(request.unsaid for _, request in t.requests)
    assert outcomes(t) == ["interruption"]


def test_only_the_turn_that_interrupted_resumes():
    """Words are answered, and no later noise takes up what they cut off."""
    t = VirtualTalk(lambda request: spoken(LONG if len(request.messages) == 1 else "Fine.", heard="stop"))
    t.speak(1)
    t.silence(2)
    t.speak(0.8)
    t.silence(3)
    assert t.requests[-1][1].unsaid, "it was not known that these would be words"
    assert t.last("response.done")["response"]["output"][0]["content"][0]["transcript"] == "Fine."
    assert outcomes(t) == ["interruption"]
    t.speak(0.8)
    t.silence(3)
    assert t.requests[-1][1].unsaid == ""


def test_what_a_turn_without_an_end_cut_off_is_not_resumed():
    """Turn detection was switched off in the midst of it: later noise is no part of that turn."""
    t = VirtualTalk(coughing, check=False)
    t.speak(1)
    t.silence(2)
    t.speak(0.6)
    assert outcomes(t) == ["interruption"]
    t.update(audio={"input": {"turn_detection": None}})
    t.update(audio={"input": {"turn_detection": {"type": "server_vad"}}})
    asked = len(t.requests)
    t.speak(0.8)
    t.silence(3)
    assert len(t.requests) > asked
    assert not any(request.unsaid for _, request in t.requests)


def interrupted_in_thought(t: VirtualTalk) -> None:
    """A question, and a noise as long as an interruption while its answer is thought of."""
    t.speak(1)
    t.silence(0.7)
    t.clear()
    t.speak(0.5)
    t.silence(0.6)


@pytest.mark.parametrize("settings", [TalkSettings(), TalkSettings(speculate_ms=None)])
def test_a_question_whose_answer_a_noise_cut_off_before_its_first_word_is_answered(settings: TalkSettings):
    t = VirtualTalk(noisy, settings, first_s=1.5)
    interrupted_in_thought(t)
    t.silence(9)
    order = [
        "input_audio_buffer.speech_started",
        "response.done",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "response.created",
        "response.done",
        "response.created",
        "response.done",
    ]
    assert [kind for kind in t.kinds if kind in order] == order
    assert said(t) == [("cancelled", []), ("completed", []), ("completed", [LONG])]
    assert len(t.requests[-1][1].messages) == 1, "the noise is not asked about"
    assert outcomes(t) == ["interruption", "answered_anew"]
    question = t.events("conversation.item.input_audio_transcription.completed")
    assert not question, "transcription is off: nothing of it is told"
    t.checker.finish()


def test_an_answer_of_which_only_words_were_there_is_made_anew():
    """Its first words were written, none was heard, and how it would have ended is not known."""
    t = VirtualTalk(noisy, each_s=0.5)
    t.speak(1)
    t.silence(0.9)
    t.clear()
    t.speak(0.5)
    assert t.last("response.done")["response"]["output"], "it had begun"
    t.silence(25)
    assert t.requests[-2][1].unsaid == "", "no half answer is said on"
    assert said(t) == [("cancelled", [""]), ("completed", []), ("completed", [LONG])]
    t.checker.finish()


def test_an_answer_that_was_heard_in_part_goes_on_as_far_as_its_words_were_there():
    t = VirtualTalk(noisy, each_s=0.2)
    t.speak(1)
    t.silence(2.5)
    t.clear()
    t.speak(0.5)
    t.silence(20)
    (_, [heard]), (status, [rest]) = said(t)
    assert heard
    assert status == "completed"
    assert LONG.startswith(f"{heard} {rest}")
    assert f"{heard} {rest}" != LONG
    assert outcomes(t) == ["interruption", "resumed"]


def test_a_question_is_answered_anew_once():
    t = VirtualTalk(noisy, first_s=1.5)
    interrupted_in_thought(t)
    t.silence(1.5)
    assert len(t.events("response.created")) == 2, "the answer to the noise, and the question's own again"
    t.speak(0.5)
    t.silence(9)
    assert [words for _, words in said(t)] == [[], [], [], []]
    assert outcomes(t).count("answered_anew") == 1
    t.checker.finish()


@pytest.mark.parametrize(
    ("settings", "heard"),
    [
        (TalkSettings(resumes=False), ""),
        (TalkSettings(transcribes=False), ""),
        (TalkSettings(), "stop"),
    ],
    ids=["off", "nobody tells words", "words"],
)
def test_no_question_is_answered_anew(settings: TalkSettings, heard: str):
    silence = [m.Transcript(heard), *SILENCE[1:]]
    t = VirtualTalk(lambda r: noisy(r) if len(r.messages) == 1 else silence, settings, first_s=1.5)
    interrupted_in_thought(t)
    t.silence(9)
    assert [words for _, words in said(t)] == [[], []]


def test_a_question_that_was_deleted_is_not_answered_anew():
    t = VirtualTalk(noisy, first_s=1.5)
    t.speak(1)
    t.silence(0.7)
    question = t.last("input_audio_buffer.committed")["item_id"]
    t.speak(0.5)
    t.silence(0.6)
    t.send("conversation.item.delete", item_id=question)
    t.silence(9)
    assert [words for _, words in said(t)] == [[], []]


def test_speech_that_was_not_understood_resumes_nothing():
    """The local pack tells no words of it, and asks to say it again."""
    sorry = "Sorry, I did not understand that."
    t = VirtualTalk(lambda r: spoken(LONG if len(r.messages) == 1 else sorry, heard="" if r.unsaid else "hi"))
    t.speak(1)
    t.silence(2)
    t.clear()
    t.speak(1.2)
    t.silence(6)
    assert [words for _, words in said(t)][1:] == [[sorry]]
    assert outcomes(t) == ["interruption"]
