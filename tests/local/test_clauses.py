"""Where a growing reply is cut, and that the cuts do not depend on how it came in pieces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_app.models.local.clauses import Clause, ClauseCutter, Opening


def clauses(*pieces: str) -> list[Clause]:
    cutter = ClauseCutter()
    found = []
    for piece in pieces:
        cutter.push(piece)
        while cutter.peek():
            found.append(cutter.take())
    cutter.finish()
    while cutter.peek():
        found.append(cutter.take())
    assert cutter.done
    return found


def cut(*pieces: str) -> list[str]:
    return [clause.text.strip() for clause in clauses(*pieces)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Yes. It is.", ["Yes.", "It is."]),
        ("Hello! How are you? Fine.", ["Hello!", "How are you?", "Fine."]),
        ('"Stop!" she said.', ['"Stop!', '" she said.']),
        ("It is 3.5 km. Go on.", ["It is 3.5 km.", "Go on."]),
        ("Pay $1,000.50 now. Thanks.", ["Pay $1,000.50 now.", "Thanks."]),
        ("Dr. Smith and Mrs. Jones are in. Wait.", ["Dr. Smith and Mrs. Jones are in.", "Wait."]),
        ("Fruit, e.g. apples, is good.", ["Fruit, e.g. apples,", "is good."]),
        ("It starts at 10:30 a.m. on Monday.", ["It starts at 10:30 a.m. on Monday."]),
        ("It starts at 9 a.m. Be there.", ["It starts at 9 a.m.", "Be there."]),
        ("The U.S. economy grew.", ["The U.S. economy grew."]),
        ("They live in the U.S. We do not.", ["They live in the U.S.", "We do not."]),
        ("On Nov. 29, 2026, we met. Fine.", ["On Nov. 29, 2026,", "we met.", "Fine."]),
        ("Take No. 5. It is good.", ["Take No. 5.", "It is good."]),
        ("No. It is not.", ["No.", "It is not."]),
        ("J. R. R. Tolkien wrote it.", ["J. R. R. Tolkien wrote it."]),
        ("Go to example.com. Then wait.", ["Go to example.com.", "Then wait."]),
        ("Well... maybe not.", ["Well... maybe not."]),
        ("It costs 5. Then go.", ["It costs 5.", "Then go."]),
        ("1. Wash it.\n2. Dry it.", ["1. Wash it.", "2. Dry it."]),
        ("# Title\nText here.", ["# Title", "Text here."]),
        ("What?! No way.", ["What?", "! No way."]),
        ("version 2.0 is out. Try it.", ["version 2.0 is out.", "Try it."]),
        ("你好，我是小明。今天天气很好！", ["你好，我是小明。", "今天天气很好！"]),
        ("", []),
        (" \n ", []),
        ("Hi", ["Hi"]),
    ],
)
def test_cuts_at_ends_of_sentences_only(text: str, expected: list[str]) -> None:
    assert cut(text) == expected


def test_first_clause_is_short_and_later_ones_are_longer() -> None:
    text = (
        "The oldest bridge, which was built of stone, has stood here for centuries. "
        "The newer bridge, which was built of steel, has stood here for a few years, and it carries the cars."
    )
    assert cut(text) == [
        "The oldest bridge,",
        "which was built of stone,",
        "has stood here for centuries.",
        "The newer bridge, which was built of steel, has stood here for a few years,",
        "and it carries the cars.",
    ]


def test_a_comma_right_at_the_start_is_no_place_to_cut() -> None:
    assert cut("Well, I can help you.") == ["Well, I can help you."]


def test_long_sentences_without_punctuation_are_cut_before_joining_words() -> None:
    found = clauses(
        "I walked through the old town in the rain because the bus was late and nobody else wanted to come "
        "along so I had the streets to myself until the sun came out and the people came back to their tables"
    )
    assert len(found) > 2
    assert all(len(clause.text) <= 160 for clause in found)
    first_words = [clause.text.split()[0] for clause in found[1:]]
    assert set(first_words) <= {"because", "and", "so", "until"}
    assert [clause.pause for clause in found] == [","] * (len(found) - 1) + ["."]


@pytest.mark.parametrize(
    "text",
    ["word" * 200, "日本語" * 200, "some words, then " + "日本語" * 200, "1234567890" * 80, "a " * 400],
)
def test_what_has_no_end_is_cut_anyway(text: str) -> None:
    found = clauses(text)
    assert all(len(clause.text) <= 250 for clause in found)
    assert "".join(clause.text for clause in found).strip() == text.strip()


def test_a_long_text_is_not_cut_beside_a_number() -> None:
    found = clauses("the list of what they saw on that day had " + "number 7 then 12 items of 5 kg " * 12)
    for clause in found[:-1]:
        assert not clause.text.split()[-1].isdecimal()


def test_code_blocks_are_silent() -> None:
    text = "Run this:\n```python\nprint('Hello. World')\n\nx = 1\n```\nDone."
    assert [(clause.text.strip(), clause.silent) for clause in clauses(text)] == [
        ("Run this:", False),
        ("```python", True),
        ("print('Hello. World')", True),
        ("x = 1", True),
        ("```", True),
        ("Done.", False),
    ]


@pytest.mark.parametrize(
    ("so_far", "clause"),
    [
        ("Sure, I can help", None),
        ("Of course, I", "Of course,"),
        ("Of course,", "Of course,"),
        ("Hello!", "Hello!"),
        ("It is done.", None),
        ("It is done. ", "It is done."),
        ("It costs 1,", None),
        ("It costs 3.", None),
        ("Ask Dr.", None),
        ("Ask Dr. ", None),
        ("At 9 a.m. ", None),
        ("At 9 a.m. W", "At 9 a.m."),
        ("At 9 a.m. (", None),
    ],
)
def test_a_clause_is_given_as_soon_as_it_is_certain(so_far: str, clause: str | None) -> None:
    cutter = ClauseCutter()
    cutter.push(so_far)
    found = cutter.peek()
    assert (found.text if found else None) == clause


WORDS = st.sampled_from(
    [
        "Hello", "Dr.", "e.g.", "3.5", "1,", "Nov.", "29,", "2026", "U.S.", "and", "because", "the",
        "wait...", "No.", "end.", "yes!", "what?", "(so)", '"quote,"', "well,", "—", "-", "1.", "```",
        "10:30", "a.m.", "x" * 70, "😀", "**b.**",
    ]
)  # fmt: skip
TEXTS = st.lists(st.tuples(WORDS, st.sampled_from([" ", " ", " ", "\n", "\n\n", ""])), max_size=30).map(
    lambda pairs: "".join(word + gap for word, gap in pairs)
)


@given(TEXTS, st.lists(st.integers(0, 400), max_size=20))
def test_cuts_do_not_depend_on_the_pieces(text: str, places: list[int]) -> None:
    edges = [0, *sorted(place for place in places if place < len(text)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert clauses(*pieces) == clauses(text) == clauses(*text)


@given(TEXTS)
def test_clauses_are_the_text(text: str) -> None:
    found = clauses(text)
    end = 0
    for clause in found:
        assert clause.start == end
        assert clause.text.strip()
        end = clause.end
    assert "".join(clause.text for clause in found) == text[:end]
    assert not text[end:].strip()


@pytest.mark.parametrize(
    ("so_far", "opening"),
    [
        ("I think that we ", Opening("I think that we", len("I think that"))),
        ("I think that we should go.", Opening("I think that we", len("I think that"))),
        (" \n I think that we ", Opening(" \n I think that we", len(" \n I think that"))),
        ("I don't know what ", Opening("I don't know what", len("I don't know"))),
        # The last word may not be whole, or be more than a plain word.
        ("I think that we", None),
        ("I think that we, too", None),
        ("I think that 5 of them ", None),
        ("I think that Paris is ", Opening("I think that Paris", len("I think that"))),
        ("The Mona Lisa is ", Opening("The Mona Lisa is", len("The Mona Lisa"))),
        ("In May 5 people ", None),
        ("Henry VIII was ", None),
        ("The USA is ", None),
        ("Elizabeth I was ", None),
        ("Of course, I can do that ", None),
        ('"I think that we ', None),
        ("I think\nthat we are ", None),
        ("I think  that we are ", None),
        ("Absolutely everything ", Opening("Absolutely everything", len("Absolutely"))),
        ("Absolutely incomprehensibilities are ", None),
        ("Yes ", None),
        ("", None),
    ],
)
def test_what_opens_a_reply(so_far: str, opening: Opening | None) -> None:
    cutter = ClauseCutter()
    cutter.push(so_far)
    assert cutter.opening() == opening


def test_nothing_opens_once_a_clause_was_taken() -> None:
    cutter = ClauseCutter()
    cutter.push("Hello! I think that we should go. ")
    cutter.take()
    assert cutter.opening() is None


def opened(*pieces: str) -> tuple[Opening | None, Clause | None]:
    """The opening, as it is when there is first something to speak, and the first clause."""
    cutter, found = ClauseCutter(), None
    for piece in pieces:
        cutter.push(piece)
        if cutter.opening() or cutter.peek():
            found = cutter.opening()
            break
    whole = ClauseCutter()
    whole.push("".join(pieces))
    whole.finish()
    return found, whole.peek()


PLAIN_WORDS = st.sampled_from(
    ["I", "we", "a", "the", "that", "don't", "think", "absolutely", "king", "ii", "May", "Mona", "II"]
)
PLAIN_TEXTS = st.tuples(
    st.sampled_from(["", "", " ", "\n"]),
    st.lists(PLAIN_WORDS, min_size=1, max_size=6).map(" ".join),
    st.sampled_from([" ", "", ", ", ". ", "\n", "  "]),
    TEXTS,
).map("".join)


@given(PLAIN_TEXTS, st.lists(st.integers(0, 60), max_size=6))
def test_an_opening_does_not_depend_on_the_pieces_and_begins_the_first_clause(
    text: str, places: list[int]
) -> None:
    edges = [0, *sorted(place for place in places if place < len(text)), len(text)]
    opening, clause = opened(text)
    assert opened(*[text[start:end] for start, end in pairwise(edges)])[0] == opening
    assert opened(*text)[0] == opening
    if opening:
        assert clause
        assert clause.text.startswith(opening.text)
        assert opening.end < len(opening.text)
