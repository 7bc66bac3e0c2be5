"""How written English is read aloud. The expected words are how a person reads the line, written by hand."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_app.models.local.spoken_form import spoken_form


def read(text: str) -> str:
    return " ".join(word.text for word in spoken_form(text))


def heard(text: str) -> str:
    """With the pauses."""
    return " ".join(word.text + word.pause for word in spoken_form(text))


SHORT_FORMS = [
    ("Dr. Smith", "doctor Smith"),
    ("Mulholland Dr. is long", "Mulholland drive is long"),
    ("Mr. and Mrs. Jones", "mister and missus Jones"),
    ("Prof. Lee", "professor Lee"),
    ("St. Louis", "saint Louis"),
    ("5 Main St.", "five Main street"),
    ("e.g. apples", "for example apples"),
    ("i.e. now", "that is now"),
    ("apples, pears, etc.", "apples pears et cetera"),
    ("cats vs. dogs", "cats versus dogs"),
    ("approx. 5", "approximately five"),
    ("No. 5", "number five"),
    ("No. It is not.", "No It is not"),
    ("Fig. 3", "figure three"),
    ("on Mon. and Tues.", "on Monday and Tuesday"),
    ("He sat. She ran.", "He sat She ran"),
    ("Martin Luther King Jr.", "Martin Luther King junior"),
    ("and/or", "and or"),
    ("rock & roll", "rock and roll"),
    ("w/ milk", "with milk"),
    ("#5", "number five"),
    ("#music", "hashtag music"),
    ("C++ and C#", "C plus plus and C sharp"),
    ("J. R. R. Tolkien", "J R R Tolkien"),
    ("World War II", "World War two"),
    ("Henry VIII", "Henry the eighth"),
    ("Louis XIV", "Louis the fourteenth"),
    ("Chapter IV", "Chapter four"),
    ("I am here", "I am here"),
    ("Ft. Worth and Mt. Everest", "fort Worth and mount Everest"),
    ("No. 10 Downing St. is in London", "number ten Downing street is in London"),
]

CAPITALS = [
    ("the FBI", "the F B I"),
    ("the FBI's", "the F B I's"),
    ("GPUs", "G P U's"),
    ("NASA", "nasa"),
    ("UNESCO", "unesco"),
    ("the U.S. army", "the U S army"),
    ("the UK", "the U K"),
    ("a CEO", "a C E O"),
    ("TV", "T V"),
    ("ChatGPT", "Chat G P T"),
    ("GPT-4", "G P T four"),
    ("MP3", "M P three"),
    ("H2O", "H two O"),
    ("COVID-19", "covid nineteen"),
    ("B12", "B twelve"),
    ("5G", "five G"),
    ("3D", "three D"),
    ("a PhD", "a P H D"),
    ("OK", "okay"),
    ("DO NOT TOUCH THIS BUTTON", "do not touch this button"),
    ("Stop NOW.", "Stop now"),
    ("vitamin A is good", "vitamin A is good"),
    ("A dog", "a dog"),
    ("T-shirt", "T shirt"),
]

ADDRESSES = [
    ("https://www.example.com/help?x=1", "example dot com slash help"),
    ("example.org", "example dot org"),
    ("joe.bloggs@mail.com", "joe dot bloggs at mail dot com"),
    ("Node.js", "Node dot J S"),
    ("notes.txt", "notes dot T X T"),
]

MARKUP = [
    ("**Bold** and *italic* and __both__", "Bold and italic and both"),
    ("# Heading", "Heading"),
    ("- one\n- two", "one two"),
    ("* one\n* two", "one two"),
    ("1. Wash it.\n2. Dry it.", "one Wash it two Dry it"),
    ("> quoted", "quoted"),
    ("use `print`", "use print"),
    ("~~gone~~", "gone"),
    ("[the docs](https://example.com/a_(b))", "the docs"),
    ("![a cat](cat.png)", "a cat"),
    ("| a | name |\n|---|:-:|\n| one | two |", "a name one two"),
    ("above\n---\nbelow", "above below"),
    ("a<br>break", "a break"),
    ("fish &amp; chips", "fish and chips"),
    ("Paris[1] is big", "Paris is big"),
    ("- [x] done", "done"),
    ("snake_case", "snake case"),
    ("Hi 😀👍🏽!", "Hi"),
    ("I ❤️ you", "I you"),
    ("🇫🇷 France", "France"),
    ("Fine :-)", "Fine"),
    ("at 10:30 (about)", "at ten thirty about"),
]

LETTERS = [
    ("café", "café"),
    ("naïve", "naïve"),
    ("Привет, мир", "privet mir"),
    ("α and β", "alpha and beta"),
    ("it’s Anna’s", "it's Anna's"),
    ("well-known", "well known"),
    ("don't", "don't"),
]

NOTHING = [
    "",
    " ",
    "\n",
    "...",
    "?!",
    "—",
    "😀",
    "🙂🙃",
    "**",
    "---",
    "```",
    "()",
    "* * *",
    "\u200b",
    "|---|",
]


@pytest.mark.parametrize(("text", "words"), [*SHORT_FORMS, *CAPITALS, *ADDRESSES, *MARKUP, *LETTERS])
def test_reads_as_a_person_does(text: str, words: str) -> None:
    assert read(text) == words


@pytest.mark.parametrize("text", NOTHING)
def test_says_nothing_where_there_is_nothing_to_say(text: str) -> None:
    assert spoken_form(text) == []


@pytest.mark.parametrize(
    "text", ["你好", "こんにちは", "안녕", "Привет", "שלום", "مرحبا", "٣", "½", "Ω", "x", "5", "%"]
)
def test_is_not_silent_where_something_is_written(text: str) -> None:
    assert all(word.text.isascii() or word.text.isalpha() for word in spoken_form(text))
    assert spoken_form(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Yes, it is.", "Yes, it is."),
        ("Really?! No...", "Really? No,"),
        ("Paris (the capital) is big", "Paris, the capital, is big"),
        ("one — two – three", "one, two, three"),
        ("f(x) is even", "F X is even"),
        ("We left at 9 p.m. It rained.", "We left at nine P M. It rained."),
        ("at 9 p.m. today", "at nine P M today"),
        ("apples, etc. Then", "apples, et cetera. Then"),
        ("e.g. This", "for example This"),
        ("Dr. Smith", "doctor Smith"),
        ("3.5", "three point five"),
        ("one\ntwo", "one. two"),
        ("one; two: three", "one; two: three"),
        ("He said no -- then left", "He said no, then left"),
        ("one - two", "one, two"),
        ("well-known", "well known"),
        ("The T. rex lived", "The T rex lived"),
        ("Take plan B. Then go", "Take plan B. Then go"),
        ("Nov 29, 2026", "November twenty ninth, twenty twenty six"),
        ("555-0142", "five five five, zero one four two"),
    ],
)
def test_pauses_where_the_punctuation_is(text: str, expected: str) -> None:
    assert heard(text) == expected


def test_each_word_knows_its_place() -> None:
    text = "**Pay** $3.50 to Dr. Smith 😀 by 10:30."
    places = [(word.text, text[word.start : word.end]) for word in spoken_form(text)]
    assert places == [
        ("Pay", "Pay"),
        ("three", "$3.50"),
        ("dollars", "$3.50"),
        ("and", "$3.50"),
        ("fifty", "$3.50"),
        ("cents", "$3.50"),
        ("to", "to"),
        ("doctor", "Dr."),
        ("Smith", "Smith"),
        ("by", "by"),
        ("ten", "10:30"),
        ("thirty", "10:30"),
    ]


PIECES = st.one_of(
    st.sampled_from(
        ["3.5", "$5", "10:30", "Dr. ", "e.g. ", "**", "`", "```", "|", "[a](b)", "http://", "😀", "\n", "- "]
    ),
    st.text(max_size=8),
    st.text(alphabet="0123456789.,:/-$%x*=+ abcAM'", max_size=12),
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_any_text_gives_words_in_order(text: str) -> None:
    words = spoken_form(text)
    assert all(0 <= word.start < word.end <= len(text) for word in words)
    assert all(a.start <= b.start and a.end <= b.end for a, b in pairwise(words))
    assert all(word.text and not any(c.isdigit() or c.isspace() for c in word.text) for word in words)


@pytest.mark.parametrize(
    "unit", ["1", "a", "1.", "a.", "1,", "1-", "[", "(", "<", "*", "| ", "a@", "http://a", "1:", "A"]
)
def test_a_hostile_text_takes_no_longer_than_its_length(unit: str) -> None:
    text = unit * 2000
    started = time.process_time()
    spoken_form(text)
    assert time.process_time() - started < 5.0
