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


NUMBERS = [
    ("0", "zero"),
    ("7 cats", "seven cats"),
    ("21 days", "twenty one days"),
    ("100", "one hundred"),
    ("366 days", "three hundred sixty six days"),
    ("1,000,000", "one million"),
    ("1,234,567 people", "one million two hundred thirty four thousand five hundred sixty seven people"),
    ("3.14159", "three point one four one five nine"),
    ("0.5", "zero point five"),
    (".5", "point five"),
    ("-3.5", "minus three point five"),
    ("−7", "minus seven"),
    ("007", "zero zero seven"),
    ("3 million", "three million"),
    ("1\u00a0000\u202f000 people", "one million people"),
    ("(items 1-8)", "items one to eight"),
    ("2.5 billion", "two point five billion"),
    ("5M users", "five million users"),
    ("Chapter 12", "Chapter twelve"),
    (
        "12345678901234567890",
        "one two three four five six seven eight nine zero one two three four five six seven eight nine zero",
    ),
    ("6.02e23", "six point zero two times ten to the power of twenty three"),
]  # fmt: skip

ORDINALS = [
    ("1st", "first"),
    ("2nd place", "second place"),
    ("the 3rd", "the third"),
    ("12th", "twelfth"),
    ("21st", "twenty first"),
    ("101st", "one hundred first"),
    ("1,000th", "one thousandth"),
]

YEARS = [
    ("in 1999", "in nineteen ninety nine"),
    ("in 1905", "in nineteen oh five"),
    ("in 1900", "in nineteen hundred"),
    ("in 2000", "in two thousand"),
    ("in 2007", "in two thousand seven"),
    ("in 2026", "in twenty twenty six"),
    ("in 1066", "in one thousand sixty six"),
    ("1939–1945", "nineteen thirty nine to nineteen forty five"),
    ("the 1990s", "the nineteen nineties"),
    ("the '90s", "the nineties"),
    ("the 2010s", "the twenty tens"),
    ("the 1800s", "the eighteen hundreds"),
]

DATES = [
    ("2026-11-29", "November twenty ninth twenty twenty six"),
    ("Nov 29", "November twenty ninth"),
    ("Nov. 29, 2026", "November twenty ninth twenty twenty six"),
    ("November 29, 2026", "November twenty ninth twenty twenty six"),
    ("July 4th", "July fourth"),
    ("4 July 1776", "the fourth of July seventeen seventy six"),
    ("the 4th of July", "the fourth of July"),
    ("11/29/2026", "November twenty ninth twenty twenty six"),
    ("29/11/2026", "November twenty ninth twenty twenty six"),
    ("29.11.2026", "November twenty ninth twenty twenty six"),
    ("May 2026", "May twenty twenty six"),
    ("2026-11-29T10:30:00Z", "November twenty ninth twenty twenty six ten thirty"),
]

TIMES = [
    ("10:30", "ten thirty"),
    ("10:30 am", "ten thirty A M"),
    ("10:30am", "ten thirty A M"),
    ("10:05 a.m.", "ten oh five A M"),
    ("12:00", "twelve o'clock"),
    ("9 p.m.", "nine P M"),
    ("9PM", "nine P M"),
    ("20:15", "twenty fifteen"),
    ("10:30:15", "ten thirty and fifteen seconds"),
    ("9:30-10:30", "nine thirty to ten thirty"),
    ("a ratio of 3:1", "a ratio of three to one"),
    ("May 5 at 5 pm", "May fifth at five P M"),
]

MONEY = [
    ("$1", "one dollar"),
    ("$5", "five dollars"),
    ("$3.50", "three dollars and fifty cents"),
    ("$1.01", "one dollar and one cent"),
    ("$0.99", "ninety nine cents"),
    ("$20.00", "twenty dollars"),
    ("$1,234.56", "one thousand two hundred thirty four dollars and fifty six cents"),
    ("$2.5 billion", "two point five billion dollars"),
    ("$3M", "three million dollars"),
    ("-$5", "minus five dollars"),
    ("€5", "five euros"),
    ("5 €", "five euros"),
    ("£2.50", "two pounds and fifty pence"),
    ("¥500", "five hundred yen"),
    ("100 USD", "one hundred dollars"),
    ("50¢", "fifty cents"),
    ("$5-$10", "five dollars to ten dollars"),
    ("$9/month", "nine dollars per month"),
]

MEASURES = [
    ("5%", "five percent"),
    ("3.5 %", "three point five percent"),
    ("10-15%", "ten to fifteen percent"),
    ("20°C", "twenty degrees celsius"),
    ("1 °C", "one degree celsius"),
    ("-5 °F", "minus five degrees fahrenheit"),
    ("a 90° turn", "a ninety degree turn"),
    ("100 km/h", "one hundred kilometers per hour"),
    ("60 mph", "sixty miles per hour"),
    ("1 mph", "one mile per hour"),
    ("10 m/s", "ten meters per second"),
    ("5 kg", "five kilograms"),
    ("1 kg", "one kilogram"),
    ("1.5 kg", "one point five kilograms"),
    ("1,000 m", "one thousand meters"),
    ("10 m²", "ten square meters"),
    ("10 m^2", "ten square meters"),
    ("2 km3", "two cubic kilometers"),
    ("6 ft", "six feet"),
    ("1 ft", "one foot"),
    ("5'10\"", "five foot ten"),
    ("6 ft 2 in", "six foot two"),
    ("180 lbs", "one hundred eighty pounds"),
    ("16 GB of RAM", "sixteen gigabytes of ram"),
    ("3 GHz", "three gigahertz"),
    ("250 ml", "two hundred fifty milliliters"),
    ("2 kWh", "two kilowatt hours"),
    ("5-10 kg", "five to ten kilograms"),
    ("2 tbsp of oil", "two tablespoons of oil"),
    ("1.5x faster", "one point five times faster"),
    ("10x faster", "ten times faster"),
    ("a 5-km walk", "a five kilometer walk"),
]

FRACTIONS = [
    ("1/2", "one half"),
    ("1/2 cup", "half a cup"),
    ("½ inch", "half an inch"),
    ("1/2 of it", "one half of it"),
    ("3/4", "three quarters"),
    ("2/3", "two thirds"),
    ("1/8", "one eighth"),
    ("1 1/2 hours", "one and a half hours"),
    ("2 3/4", "two and three quarters"),
    ("½", "one half"),
    ("2½ cups", "two and a half cups"),
    ("24/7", "twenty four seven"),
    ("50/50", "fifty fifty"),
    ("9/10", "nine out of ten"),
    ("22/7", "twenty two over seven"),
]

SUMS = [
    ("12 x 7 = 84", "twelve times seven equals eighty four"),
    ("12 × 7 = 84", "twelve times seven equals eighty four"),
    ("3 * 4 = 12", "three times four equals twelve"),
    ("3*4=12", "three times four equals twelve"),
    ("5 + 3 = 8", "five plus three equals eight"),
    ("10 - 4 = 6", "ten minus four equals six"),
    ("20 / 5 = 4", "twenty divided by five equals four"),
    ("20 ÷ 5 = 4", "twenty divided by five equals four"),
    ("1000 + 1100 = 2100", "one thousand plus one thousand one hundred equals two thousand one hundred"),
    ("5 > 3", "five is greater than three"),
    ("2 < 3", "two is less than three"),
    ("x ≤ 5", "X is less than or equal to five"),
    ("2^3", "two cubed"),
    ("10^6", "ten to the power of six"),
    ("a² + b² = c²", "A squared plus B squared equals C squared"),
    ("x² + y²", "X squared plus Y squared"),
    ("√16 = 4", "the square root of sixteen equals four"),
    ("π ≈ 3.14", "pi about three point one four"),
    ("~5", "about five"),
    ("±2", "plus or minus two"),
    ("1920x1080 pixels", "nineteen twenty by one thousand eighty pixels"),
]

TELEPHONE = [
    ("555-0142", "five five five zero one four two"),
    ("(555) 123-4567", "five five five one two three four five six seven"),
    ("+1 555 123 4567", "plus one five five five one two three four five six seven"),
    ("call 911", "call nine one one"),
    ("200-1000 people", "two hundred to one thousand people"),
    ("192.168.1.1", "one nine two dot one six eight dot one dot one"),
    ("version 3.11.2", "version three point eleven point two"),
]

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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *NUMBERS, *ORDINALS, *YEARS, *DATES, *TIMES, *MONEY, *MEASURES, *FRACTIONS, *SUMS, *TELEPHONE,
        *SHORT_FORMS, *CAPITALS, *ADDRESSES, *MARKUP, *LETTERS,
    ],
)  # fmt: skip
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
    started = time.perf_counter()
    spoken_form(text)
    assert time.perf_counter() - started < 5.0
