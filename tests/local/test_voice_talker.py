"""The talker's side of its scheduler's contract: when it is ready, what a step gives and consumes."""

from itertools import pairwise

import numpy as np
import pytest

from voice_app.bench.voice import Utf8Tokens
from voice_app.config import PackConfig
from voice_app.errors import InputError
from voice_app.messages import CodeFrames, PromptIds, PromptParams, TokenVector, TurnId
from voice_app.models.local import talker_ar
from voice_app.models.local.talker_ar import FEW, TalkerAr
from voice_app.schedulers.base import TalkerOutput

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def talker() -> TalkerAr:
    return talker_ar.build(PackConfig(), Utf8Tokens(), lambda line: None)


def opened(
    talker: TalkerAr, *, text: str = "", over: bool = False, params: PromptParams | None = None
) -> object:
    state = talker.open(TurnId("s", "t"))
    talker.feed(state, PromptIds((), params or PromptParams()))
    write(talker, state, text, over=over)
    return state


def write(talker: TalkerAr, state: object, text: str, *, over: bool = False) -> None:
    for byte in text.encode():
        talker.feed(state, TokenVector(byte, None))
    if over:
        talker.feed(state, TokenVector(None, None, "stop"))


def step(talker: TalkerAr, state: object) -> TalkerOutput:
    (output,) = talker.step([state])
    return output


def test_credit_comes_back_before_a_clause_is_whole(talker: TalkerAr) -> None:
    state = opened(talker, text="Once upon a ")
    assert talker.ready(state)
    output = step(talker, state)
    assert (output.frames, output.consumed, output.done) == (None, 1 + len("Once upon a "), False)
    assert not talker.ready(state)


def test_a_clause_a_step(talker: TalkerAr) -> None:
    state = opened(talker, text="Hello there! How are you? Fine. ", over=True)
    outputs = []
    while not outputs or not outputs[-1].done:
        assert talker.ready(state)
        outputs.append(step(talker, state))
    payloads = [output.frames for output in outputs if output.frames is not None]
    # The first clause comes in two parts, for an early start.
    assert [payload.segment_end for payload in payloads] == [False, True, True, True]
    assert [payload.last for payload in payloads] == [False, False, False, True]
    assert all(len(payload.frames) for payload in payloads)
    last_marks = [payload.marks[-1].chars for payload in payloads if payload.segment_end]
    assert last_marks == [
        len("Hello there!"),
        len("Hello there! How are you?"),
        len("Hello there! How are you? Fine. "),
    ]


def test_the_end_may_come_after_the_last_clause(talker: TalkerAr) -> None:
    state = opened(talker, text="Hello there! ")
    while talker.ready(state):
        assert step(talker, state).frames is not None
    write(talker, state, "", over=True)
    output = step(talker, state)
    assert output.done
    assert output.frames is not None
    assert (len(output.frames.frames), output.frames.last) == (0, True)
    assert output.frames.marks[-1].chars == len("Hello there! ")


def test_waits_for_the_prompt_which_names_the_voice(talker: TalkerAr) -> None:
    state = talker.open(TurnId("s", "t"))
    write(talker, state, "Hello!", over=True)
    output = step(talker, state)
    assert (output.frames, output.done) == (None, False)
    assert not talker.ready(state)
    talker.feed(state, PromptIds((), PromptParams()))
    assert talker.ready(state)
    assert step(talker, state).frames is not None


def test_a_further_part_of_the_prompt_changes_nothing(talker: TalkerAr) -> None:
    """It may come when the voice has spoken already: what is left of its frames stays."""
    params = PromptParams(max_frames=60)
    frames = []
    for parts in (1, 2):
        state = opened(talker, text="Good morning! Good evening! Good night! ", over=True, params=params)
        given = [step(talker, state)]
        for _ in range(parts - 1):
            talker.feed(state, PromptIds((), params))
        while not given[-1].done:
            given.append(step(talker, state))
        assert given[1].consumed == parts - 1
        frames.append(sum(len(output.frames.frames) for output in given if output.frames))
    assert frames == [60, 60]


def test_one_clause_for_all_the_least_spoken_first(talker: TalkerAr) -> None:
    talks = [opened(talker, text="Good morning! Good evening! Good night! ") for _ in range(3)]
    spoken = [0, 0, 0]
    while any(talker.ready(talk) for talk in talks):
        given = [output.frames for output in talker.step(talks)]
        assert sum(frames is not None for frames in given) == 1
        for place, frames in enumerate(given):
            spoken[place] += frames is not None and frames.segment_end
        assert max(spoken) - min(spoken) <= 1
    assert spoken == [3, 3, 3]


def test_an_unknown_voice_fails_its_own_turn(talker: TalkerAr) -> None:
    state = talker.open(TurnId("s", "t"))
    with pytest.raises(InputError, match="marvin"):
        talker.feed(state, PromptIds((), PromptParams(voice="marvin")))


@pytest.mark.parametrize("speed", [0.0, -1.0, 100.0, float("nan")])
def test_a_speed_that_nobody_speaks_at(talker: TalkerAr, speed: float) -> None:
    state = talker.open(TurnId("s", "t"))
    with pytest.raises(InputError, match="speed"):
        talker.feed(state, PromptIds((), PromptParams(speed=speed)))


def test_characters_split_over_tokens_are_counted_whole(talker: TalkerAr) -> None:
    state = opened(talker, text="Café à la crème! ", over=True)
    chars = []
    while talker.ready(state):
        output = step(talker, state)
        assert output.frames is not None
        chars += [mark.chars for mark in output.frames.marks]
        if output.done:
            break
    assert chars == [4, 6, 9, 16, 17]


def test_bytes_that_are_no_character_are_counted_as_the_detokenizer_does(talker: TalkerAr) -> None:
    state = opened(talker)
    for byte in b"Hi \xff there \xe2\x82":
        talker.feed(state, TokenVector(byte, None))
    write(talker, state, "", over=True)
    output = step(talker, state)
    while not output.done:
        output = step(talker, state)
    assert output.frames is not None
    shown = b"Hi \xff there \xe2\x82".decode(errors="replace")
    assert output.frames.marks[-1].chars == len(shown)


OPENS = "I think that we should go to the park today, since it is warm. "
"""With an opening: its first three words."""


def spoken(talker: TalkerAr, *pieces: str, params: PromptParams | None = None) -> list[CodeFrames]:
    """All that is given for a reply that comes in `pieces`, each spoken as far as it can be."""
    state, given = opened(talker, params=params), list[CodeFrames]()
    for piece in (*pieces, None):
        write(talker, state, piece or "", over=piece is None)
        while talker.ready(state):
            output = step(talker, state)
            given += [output.frames] if output.frames is not None else []
            if output.done:
                return given
    raise AssertionError("a reply that is over has an end")


def sound(given: list[CodeFrames]) -> np.ndarray:
    return np.concatenate([part.frames for part in given])


def marks(given: list[CodeFrames]) -> list[tuple[int, int]]:
    return [(mark.chars, mark.frame) for part in given for mark in part.marks]


@pytest.mark.parametrize(
    "text", [OPENS, " \n I don't know what you mean", "I think that we ", "I am so sad."]
)
@pytest.mark.parametrize("speed", [0.25, 1.0, 4.0])
def test_a_reply_sounds_the_same_however_it_comes(talker: TalkerAr, text: str, speed: float) -> None:
    params = PromptParams(speed=speed)
    whole = spoken(talker, text, params=params)
    for pieces in (tuple(text), (text[:16], text[16:])):
        other = spoken(talker, *pieces, params=params)
        np.testing.assert_allclose(sound(other), sound(whole), atol=1e-4)
        assert marks(other) == marks(whole)
    assert all(one[0] < two[0] and one[1] <= two[1] for one, two in pairwise(marks(whole)))
    assert marks(whole)[-1][0] == len(text)
    assert marks(whole)[-1][1] <= len(sound(whole))


def test_the_opening_comes_before_its_clause_is_whole_which_goes_on_at_the_next_word(
    talker: TalkerAr,
) -> None:
    early = opened(talker, text="I think that we ")
    begun = []
    while talker.ready(early):
        frames = step(talker, early).frames
        assert frames is not None
        begun.append(frames)
    assert marks(begun)[-1] == (len("I think that"), len(sound(begun)))
    assert not any(part.segment_end for part in begun), "the clause belongs to the same segment"
    whole = spoken(talker, OPENS)
    first = whole[: 1 + [part.segment_end for part in whole].index(True)]
    np.testing.assert_allclose(sound(whole)[: len(sound(begun))], sound(begun), atol=1e-4)
    clause = OPENS[: OPENS.index(",") + 1]
    assert [clause[:chars].split()[-1] for chars, _ in marks(first)] == clause.split()


@pytest.mark.parametrize("most", [1, 32, 33, 53, 54, 60])
def test_a_limit_of_frames_holds_in_and_after_the_opening(talker: TalkerAr, most: int) -> None:
    given = spoken(talker, *OPENS, params=PromptParams(max_frames=most))
    assert len(sound(given)) == most
    assert [part.last for part in given] == [False] * (len(given) - 1) + [True]
    np.testing.assert_allclose(sound(given), sound(spoken(talker, OPENS))[:most], atol=1e-4)


def test_in_company_a_reply_begins_with_its_clause(talker: TalkerAr) -> None:
    others = [opened(talker) for _ in range(FEW)]
    late = opened(talker, text="I think that we ")
    while talker.ready(late):
        assert step(talker, late).frames is None
    for state in others:
        talker.close(state)
    assert talker.ready(late)
    assert step(talker, late).frames is not None
