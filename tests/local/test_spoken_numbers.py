"""How numbers, dates, times, money and measures are read aloud. The expected words are how a person reads the
line, written by hand."""

import pytest

from voice_app.models.local.spoken_form import spoken_form

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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *NUMBERS, *ORDINALS, *YEARS, *DATES, *TIMES, *MONEY, *MEASURES, *FRACTIONS, *SUMS, *TELEPHONE,
    ],
)  # fmt: skip
def test_reads_as_a_person_does(text: str, words: str) -> None:
    assert " ".join(word.text for word in spoken_form(text)) == words
