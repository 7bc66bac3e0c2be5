"""Answers that begin in the middle of the user's turn: when, which of them is kept, that none is wrong."""

import random
from collections.abc import Callable

import pytest
from fake_pipeline import spoken
from virtual_talk import LONG, VirtualTalk

from voice_app import messages as m
from voice_app.errors import StageFailed
from voice_app.server.occupancy import Occupancy
from voice_app.server.session.actions import Count, Tally
from voice_app.server.session.ahead import HELD_CHUNKS
from voice_app.server.settings import AHEAD_MS, TalkSettings

AHEAD = TalkSettings(ahead_ms=AHEAD_MS)
OTHER = m.TurnId("sess_2", "turn")
"""Another talk's turn."""


def heard_s(request: m.TurnRequest) -> float:
    """How much of the user's turn it has; there is no sound before a talk's first."""
    part = request.messages[-1].parts[-1]
    assert isinstance(part, m.AudioPart)
    return len(part.samples) / part.sample_rate


def hearing(words: Callable[[float], str], *, sure: bool = True):
    """Every request hears what `words` says of its seconds, and answers with it."""

    def answer(request: m.TurnRequest):
        said = words(heard_s(request))
        return [m.Transcript(said, sure), *spoken(f"You said {said} and {LONG}", heard=None)]

    return answer


def a_word_each_0_4_s(seconds: float) -> str:
    """The last one is 0.2 s long and is heard before it is over; after it nothing is said."""
    return " ".join(["one", "two", "three", "four", "five", "six", "seven"][: max(1, round(seconds / 0.4))])


def until(last_s: float) -> Callable[[float], str]:
    return lambda seconds: a_word_each_0_4_s(min(seconds, last_s))


def counts(t: VirtualTalk) -> list[str]:
    found = [action for _, action in t.actions if isinstance(action, Count)]
    return [count.label for count in found if count.tally is Tally.SPECULATION]


def ask(t: VirtualTalk, seconds: float) -> float:
    """Say something; gives the time between its end and the first sound of the reply."""
    t.speak(seconds)
    spoke_until = t.now
    t.silence(12)
    return t.times("response.output_audio.delta")[0] - spoke_until


def reply(t: VirtualTalk) -> str:
    return t.last("response.output_audio_transcript.done")["transcript"]


# --------------------------------------------------------------------------------------------- when


def test_work_begins_each_time_that_enough_more_was_said():
    t = VirtualTalk(hearing(a_word_each_0_4_s), AHEAD)
    t.speak(2.1)
    assert [round(heard_s(request), 1) for _, request in t.requests] == [0.8, 1.2, 1.6, 2.0]


def test_of_less_than_a_sentence_it_does_not_begin():
    t = VirtualTalk(hearing(a_word_each_0_4_s), AHEAD)
    t.speak(0.78)
    assert not t.requests


@pytest.mark.parametrize(
    "settings",
    [
        TalkSettings(),
        TalkSettings(ahead_ms=AHEAD_MS, transcribes=False),
        TalkSettings(ahead_ms=AHEAD_MS, speculate_ms=None),
    ],
)
def test_without_words_to_know_it_by_or_against_the_operator_s_will_it_does_not_begin(settings: TalkSettings):
    t = VirtualTalk(hearing(a_word_each_0_4_s), settings)
    t.speak(3)
    assert not t.requests


@pytest.mark.parametrize("detection", [None, {"type": "server_vad", "create_response": False}])
def test_where_turns_are_not_answered_it_does_not_begin(detection: dict[str, object] | None):
    t = VirtualTalk(hearing(a_word_each_0_4_s), AHEAD)
    t.update(audio={"input": {"turn_detection": detection}})
    t.speak(3)
    assert not t.requests


def test_while_another_talk_is_answered_it_does_not_begin():
    occupancy = Occupancy()
    t = VirtualTalk(hearing(a_word_each_0_4_s), AHEAD, occupancy=occupancy)
    occupancy.enter(OTHER)
    t.speak(1.5)
    assert not t.requests
    occupancy.done(OTHER)
    t.speak(0.1)
    assert len(t.requests) == 1


def test_it_gives_way_when_another_talk_is_to_be_answered():
    occupancy = Occupancy()
    t = VirtualTalk(hearing(a_word_each_0_4_s), AHEAD, occupancy=occupancy)
    t.speak(1)
    [(_, request)] = t.requests
    occupancy.enter(OTHER)
    t.speak(0.04)
    assert t.cancelled == [request.turn]


# ------------------------------------------------------------------------------------ which is kept


def test_what_heard_every_word_is_the_reply():
    """The last word was known after 1.2 s; the turn went on until 1.5 s."""
    plain = VirtualTalk(hearing(until(1.2)), TalkSettings(), first_s=0.2, each_s=0.25)
    t = VirtualTalk(hearing(until(1.2)), AHEAD, first_s=0.2, each_s=0.25)
    before, after = ask(plain, 1.5), ask(t, 1.5)
    assert before == pytest.approx(0.1 + 0.2 + 2 * 0.25, abs=0.03)
    assert after == pytest.approx(0.5, abs=0.03), "it is there when the silence has ended the turn"
    first, kept, last = (request.turn for _, request in t.requests)
    assert t.cancelled == [first, last], f"{kept} was kept"
    assert counts(t) == ["ahead", "used"]
    assert reply(t) == f"You said one two three and {LONG}"
    assert t.kinds.count("response.created") == 1


def test_the_words_are_told_once_as_the_whole_turn_was_heard():
    t = VirtualTalk(hearing(until(1.2)), AHEAD)
    t.update(audio={"input": {"transcription": {"model": "whisper-1"}}})
    ask(t, 1.5)
    [told] = t.events("conversation.item.input_audio_transcription.completed")
    assert told["transcript"] == "one two three"


def test_what_heard_less_is_not():
    t = VirtualTalk(hearing(a_word_each_0_4_s), AHEAD)
    ask(t, 1.5)
    *others, _ = (request.turn for _, request in t.requests)
    assert t.cancelled == others
    assert counts(t) == ["used"]
    assert reply(t).startswith("You said one two three four and")


def test_of_two_that_hear_the_same_the_earlier_is_kept():
    t = VirtualTalk(hearing(until(0.8)), AHEAD)
    t.speak(1.5)
    early, late = (request.turn for _, request in t.requests)
    assert t.cancelled == [late]
    t.silence(6)
    assert early not in t.cancelled
    assert "ahead" in counts(t)


def test_what_is_not_known_yet_at_the_end_is_no_reply():
    """It takes 0.5 s to know words: the pass at 1.2 s hears of them after the reply does."""
    t = VirtualTalk(hearing(until(1.2)), AHEAD, first_s=0.5)
    t.speak(1.22)
    t.silence(6)
    assert reply(t).startswith("You said one two three and")
    assert t.session.occupancy.turns == 0


def test_work_that_an_early_start_began_in_vain_goes_on():
    t = VirtualTalk(hearing(until(1.2)), AHEAD)
    t.speak(1.18)
    t.silence(0.14)
    t.speak(0.3)
    kept = t.requests[-1][1].turn
    t.silence(6)
    names = [request.turn for _, request in t.requests]
    assert kept not in t.cancelled
    assert counts(t) == ["dropped", "ahead", "used"]
    assert len({turn.key for turn in names}) == len(names), "no later one takes its place in the pipeline"
    assert reply(t).startswith("You said one two three and")


def test_doubted_words_are_not_answered_ahead():
    """What the prompt's cache has by the first token is all that is wanted of it."""
    t = VirtualTalk(hearing(until(0.8), sure=False), AHEAD)
    t.speak(1.15)
    [(_, request)] = t.requests
    assert t.cancelled == [request.turn]
    t.silence(6)
    assert reply(t).startswith("You said one two and")


def test_a_long_answer_waits_in_the_pipeline():
    t = VirtualTalk(hearing(until(0.8)), AHEAD)
    t.speak(2.5)
    turn = t.requests[0][1].turn
    assert not t.session.room(turn)
    left = [event for _, _, of, event in t._queue if of == turn]
    assert (
        sum(isinstance(event, m.AudioChunk) for event in left)
        == len(f"You said one two and {LONG}".split()) - HELD_CHUNKS
    )
    t.silence(8)
    assert reply(t) == f"You said one two and {LONG}"


# --------------------------------------------------------------------------- what makes it another question


def changed_meanwhile(change: Callable[[VirtualTalk], None]) -> VirtualTalk:
    t = VirtualTalk(hearing(until(0.8)), AHEAD)
    t.speak(1.0)
    change(t)
    t.speak(0.15)
    t.silence(6)
    return t


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update(instructions="Answer in French."),
        lambda t: t.say("Mind the dog."),
        lambda t: t.update(audio={"output": {"speed": 1.2}}),
    ],
    ids=["instructions", "an item", "the voice"],
)
def test_what_the_client_changes_meanwhile_is_in_the_reply(change: Callable[[VirtualTalk], None]):
    t = changed_meanwhile(change)
    ahead, *_, last = (request.turn for _, request in t.requests)
    assert ahead in t.cancelled
    assert last not in t.cancelled
    assert "ahead" not in counts(t)
    assert reply(t).startswith("You said one two and")


def test_without_a_change_it_is_kept():
    assert "ahead" in counts(changed_meanwhile(lambda t: None))


# ---------------------------------------------------------------------------------------- how it ends


def test_its_failure_is_nobody_s():
    def answer(request: m.TurnRequest):
        if heard_s(request) < 1.35:
            return [m.Transcript("one"), StageFailed("thinker: out of memory")]
        return hearing(until(0.4))(request)

    t = VirtualTalk(answer, AHEAD)
    ask(t, 1.3)
    assert reply(t).startswith("You said one and")
    assert t.last("response.done")["response"]["status"] == "completed"
    assert "error" not in t.kinds


@pytest.mark.parametrize("how", ["clear", "close", "commit", "off"])
def test_it_ends_with_the_turn(how: str):
    t = VirtualTalk(hearing(until(0.8)), AHEAD)
    t.speak(1.1)
    [(_, request)] = t.requests
    match how:
        case "clear":
            t.send("input_audio_buffer.clear")
        case "close":
            t.session.close(t.now)
            t._act()
        case "commit":
            t.send("input_audio_buffer.commit")
        case _:
            t.update(audio={"input": {"turn_detection": None}})
    assert t.cancelled == [request.turn]
    assert t.session.occupancy.turns == 0


def test_a_next_turn_has_nothing_of_the_last():
    t = VirtualTalk(hearing(until(0.8)), AHEAD)
    ask(t, 1.3)
    first = {request.turn for _, request in t.requests}
    t.clear()
    t.silence(4)
    ask(t, 1.3)
    used = [request.turn for _, request in t.requests if request.turn not in first | set(t.cancelled)]
    assert len(used) == 1
    assert len(t.events("response.created")) == 1


@pytest.mark.parametrize("seed", range(200))
def test_whatever_is_said_and_when_the_whole_of_it_is_answered(seed: int):
    """Sounds and pauses of any length, words that change as more is heard, a pipeline that is fast or slow,
    others who come and go: each reply is to just what the whole turn said, and nothing is left behind."""
    dice = random.Random(seed)
    occupancy = Occupancy()
    changes = sorted(dice.uniform(0, 4) for _ in range(dice.randrange(6)))

    def words(seconds: float) -> str:
        return f"text {sum(change < seconds for change in changes)}"

    answered: dict[m.TurnId, str] = {}

    def answer(request: m.TurnRequest):
        answered[request.turn] = words(heard_s(request))  # What it hears, and will be asked to stand for.
        return hearing(words, sure=dice.random() < 0.7)(request)

    t = VirtualTalk(
        answer, AHEAD, first_s=dice.uniform(0.03, 0.6), each_s=dice.uniform(0.005, 0.2), occupancy=occupancy
    )
    for _ in range(dice.randrange(1, 12)):
        t.speak(dice.uniform(0.02, 2.5))
        t.silence(dice.choice([0.06, 0.1, 0.14, 0.2, 0.4, 1, 3, 6]))
        if dice.random() < 0.3:
            occupancy.enter(OTHER)
        elif dice.random() < 0.5:
            occupancy.done(OTHER)
    t.silence(12)
    said, due = "", {}
    for at, event in t.log:
        match event["type"]:
            case "input_audio_buffer.committed":
                said = answered[[request.turn for begun, request in t.requests if begun <= at][-1]]
            case "response.created":
                due[event["response"]["id"]] = said
            case "response.output_audio_transcript.done":
                assert event["transcript"].startswith(
                    f"You said {due[event['response_id']]} and one"[: len(event["transcript"])]
                )
            case "response.done":
                assert event["response"]["status"] in ("completed", "cancelled")
            case "error":
                pytest.fail(str(event))
            case _:
                pass
    t.session.close(t.now)
    t._act()
    occupancy.done(OTHER)
    assert occupancy.turns == 0
