"""Built-in functions, asked in the many ways that a recogniser may write them. Expected values are worked out
by hand."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from num2words import num2words

from voice_app.errors import InputError
from voice_app.models.functions import EXACT, TOOLS, plan

NOW = datetime(2026, 11, 29, 21, 5, tzinfo=UTC)
"""A Sunday."""


def said(question: str, *earlier: str, seen: str = "", now: datetime = NOW) -> str | None:
    result = plan(question, now, earlier, seen)
    return result.spoken if result else None


def tool(name: str, **arguments: object) -> str:
    return next(tool for tool in TOOLS if tool.spec.name == name).call(arguments, NOW)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is twelve times seven?", "12 times 7 is 84."),
        ("what's 12 times seven", "12 times 7 is 84."),
        ("12x7", "12 times 7 is 84."),
        ("Hey, can you tell me what 12 × 7 is?", "12 times 7 is 84."),
        ("seven times twelve equals", "7 times 12 is 84."),
        ("What do you get if you multiply twelve by seven?", "12 times 7 is 84."),
        ("How much do 6 and 7 make?", "6 plus 7 is 13."),
        ("17 plus 25", "17 plus 25 is 42."),
        ("What's seventeen + twenty-five?", "17 plus 25 is 42."),
        ("The sum of 17 and 25, please.", "17 plus 25 is 42."),
        ("Add five to twelve.", "5 plus 12 is 17."),
        ("Subtract 5 from 20", "20 minus 5 is 15."),
        ("50-8", "50 minus 8 is 42."),
        ("What is minus five plus ten?", "Minus 5 plus 10 is 5."),
        ("One thousand minus one", "1000 minus 1 is 999."),
        ("What's 1,000 minus 1?", "1000 minus 1 is 999."),
        ("Divide 100 by 8.", "100 divided by 8 is 12.5."),
        ("what is ten divided by three", "10 divided by 3 is about 3.33."),
        ("What is 1 divided by 300?", "1 divided by 300 is about 0.0033."),
        ("What is ten over zero?", "You can't divide by zero."),
        ("How much is 15% of 80?", "15 percent of 80 is 12."),
        ("what's twenty percent of two hundred and fifty", "20 percent of 250 is 50."),
        ("What is half of ninety?", "Half of 90 is 45."),
        ("What's a third of ninety?", "A third of 90 is 30."),
        ("two thirds of nine", "2 thirds of 9 is 6."),
        ("three quarters of eighty", "3 quarters of 80 is 60."),
        ("Double 16", "Double 16 is 32."),
        ("What is nine squared?", "9 squared is 81."),
        ("three cubed", "3 cubed is 27."),
        ("two to the power of ten", "2 to the power of 10 is 1024."),
        ("What's the square root of 144?", "The square root of 144 is 12."),
        ("square root of two", "The square root of 2 is about 1.41."),
        ("three and a half times two", "3 and a half times 2 is 7."),
        ("five point five plus point five", "5.5 plus 0.5 is 6."),
        ("What's 0.1 plus 0.2?", "0.1 plus 0.2 is 0.3."),
        ("two plus three times four", "2 plus 3 times 4 is 14."),
        ("ten thousand times ten", "10000 times 10 is 100,000."),
        ("What is to plus to?", "2 plus 2 is 4."),
        ("what's for times six", "4 times 6 is 24."),
        ("What is nine to the power of fifty?", "That number is too long to say."),
    ],
)
def test_sums(question: str, answer: str) -> None:
    assert said(question) == answer


@given(st.integers(0, 99_999), st.integers(0, 99_999), st.sampled_from(["plus", "minus", "times"]))
def test_any_sum_in_words_or_digits(a: int, b: int, operator: str) -> None:
    value = {"plus": a + b, "minus": a - b, "times": a * b}[operator]
    digits = said(f"What is {a} {operator} {b}?")
    words = said(f"what's {num2words(a)} {operator} {num2words(b)}")
    assert digits == words
    assert digits is not None
    assert digits.endswith((f" is {value}.", f" is {value:,}."))


@pytest.mark.parametrize(
    "question",
    [
        "What is the capital of France?",
        "I have two dogs and three cats.",
        "What is love?",
        "five",
        "What is 5?",
        "How long is the Nile?",
        "Tell me about the year 2000.",
        "Who are the three musketeers?",
        "Why is the sky blue?",
        "Is Christmas a holiday?",
        "How many days left until my birthday?",
        "",
        "...",
        "½ ² % + - × ÷",
    ],
)
def test_what_is_left_to_the_model(question: str) -> None:
    assert said(question) is None


@given(st.text(max_size=60), st.lists(st.text(max_size=60), max_size=3))
def test_nothing_that_is_said_breaks_it(question: str, earlier: list[str]) -> None:
    said(question, *earlier)


@pytest.mark.parametrize(
    "question",
    [
        "What is 9 ^ 64" + " squared" * 17,
        "What is 0.9 ^ 64" + " cubed" * 20,
        "What is 2 to the power of minus 64" + " squared" * 30,
    ],
)
def test_a_chain_of_powers_ends_at_once_and_the_talk_goes_on(question: str) -> None:
    start = time.process_time()
    assert said(question) == "That number is too long to say."
    assert said("and double that", question) is None
    assert time.process_time() - start < 1


@pytest.mark.parametrize("digits", [31, 400, 6000])
@pytest.mark.parametrize(
    "question",
    [
        "What is {} plus 1?", "What is 0.{} times 2?", "1 divided by {}", "What is the square root of {}?",
        "{} 4ths of 2", "How many kilometers is {} miles?", "How many kilometers is {}.5 miles?",
        "What day of the week was July 4th {}?", "How many days until July {}?", "{}",
    ],
)  # fmt: skip
def test_endless_digits_are_left_to_the_model(question: str, digits: int) -> None:
    asked = question.format("9" * digits)
    assert said(asked) is None
    assert said("What is 2 plus 2?", asked) == "2 plus 2 is 4."


@pytest.mark.parametrize("words", ["half of ", "minus ", "2 plus "])
def test_an_endless_expression_is_left_to_the_model(words: str) -> None:
    assert said("What is " + words * 1500 + "2") is None


@pytest.mark.parametrize(
    "question", ["And double that?", "now times two", "Multiply that by two", "and that times 2"]
)
def test_a_sum_goes_on_from_the_last(question: str) -> None:
    answer = said(question, "What is 6 times 7?")
    assert answer is not None
    assert answer.endswith((" 84.", "42 is 84."))


def test_a_sum_goes_on_over_several_turns() -> None:
    assert said("plus ten", "What is 6 times 7?", "and double that") == "84 plus 10 is 94."


@pytest.mark.parametrize(
    "question",
    [
        "What time is it?", "what's the time", "Can you tell me what time it is?", "Do you have the time?",
        "What's the time now, please?", "Hey, what time do we have?", "I'd like to know what time it is.",
    ],
)  # fmt: skip
def test_time(question: str) -> None:
    assert said(question) == "It's 9:05 PM."


def test_midnight_and_noon() -> None:
    assert said("what time is it", now=NOW.replace(hour=0)) == "It's 12:05 AM."
    assert said("what time is it", now=NOW.replace(hour=12, minute=30)) == "It's 12:30 PM."


def test_time_elsewhere() -> None:
    assert said("What time is it in Tokyo?") == "It's 6:05 AM in Tokyo."
    assert said("what's the time in new york") == "It's 4:05 PM in New York."
    assert said("What time is it in Gotham?") == "I don't know the time in Gotham."


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What's today's date?", "Today is Sunday, November 29, 2026."),
        ("What is the day's date?", "Today is Sunday, November 29, 2026."),
        ("What is the date today?", "Today is Sunday, November 29, 2026."),
        ("what date is it", "Today is Sunday, November 29, 2026."),
        ("What day is it today?", "Today is Sunday, November 29."),
        ("what day of the week is it", "Today is Sunday, November 29."),
        ("Which day is today?", "Today is Sunday, November 29."),
        ("What month is it?", "It's November."),
        ("What year is it?", "It's 2026."),
        ("What day is tomorrow?", "Tomorrow is Monday, November 30, 2026."),
        ("What's tomorrow's date?", "Tomorrow is Monday, November 30, 2026."),
        ("What day was yesterday?", "Yesterday was Saturday, November 28, 2026."),
        ("What's the day after tomorrow?", "The day after tomorrow is Tuesday, December 1, 2026."),
        ("How many days until Christmas?", "It's 26 days until Christmas."),
        ("How many days are there till December twenty-fifth?", "It's 26 days until December 25."),
        ("How many days were left until New Year's Eve?", "It's 32 days until New Year's Eve."),
        ("how many weeks until christmas", "It's 3 weeks and 5 days until Christmas."),
        ("How long until New Year's?", "It's 33 days until New Year's Day."),
        ("How many days is it to the fourth of July?", "It's 217 days until July 4."),
        ("How many days until tomorrow is Friday?", None),
        ("How many days until Sunday?", "It's 7 days until Sunday."),
        ("When is Halloween?", "Halloween is on Sunday, October 31, 2027."),
        ("What day of the week is December 25th?", "December 25 is a Friday."),
        ("What day was January 1st, 2000?", "January 1, 2000 was a Saturday."),
        ("What day is the thirty-first of February?", None),
    ],
)  # fmt: skip
def test_dates(question: str, answer: str | None) -> None:
    assert said(question) == answer


@given(st.dates(datetime(2026, 11, 30).date(), datetime(2027, 11, 28).date()))
def test_days_until_any_date(day) -> None:
    days = (day - NOW.date()) // timedelta(1)
    answer = said(f"How many days until {day:%B} {num2words(day.day, to='ordinal')}?")
    assert answer == f"It's {days} day{'s' * (days != 1)} until {day:%B} {day.day}."


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How many kilometers is 5 miles?", "5 miles is about 8.05 kilometers."),
        ("Convert ten kilometres to miles.", "10 kilometers is about 6.21 miles."),
        (
            "what's 100 degrees fahrenheit in celsius",
            "100 degrees Fahrenheit is about 37.78 degrees Celsius.",
        ),
        (
            "What is minus forty Celsius in Fahrenheit?",
            "Minus 40 degrees Celsius is minus 40 degrees Fahrenheit.",
        ),
        ("How many feet are in a mile?", "1 mile is 5280 feet."),
        ("How many grams are in two kilos?", "2 kilograms is 2000 grams."),
        ("How many minutes are there in an hour?", "1 hour is 60 minutes."),
        ("how many seconds in a day", "1 day is 86,400 seconds."),
        ("How many days are in a week?", "1 week is 7 days."),
        ("How many meters are in two and a half kilometers?", "2.5 kilometers is 2500 meters."),
        ("How many ounces in a pound?", "1 pound is 16 ounces."),
        ("Convert 3 miles to pounds.", "I can't turn miles into pounds."),
    ],
)
def test_units(question: str, answer: str) -> None:
    assert said(question) == answer


@pytest.mark.parametrize(
    ("told", "question", "answer"),
    [
        ("My name is Anna.", "What's my name?", "Your name is Anna."),
        ("my name is anna", "Do you remember my name?", "Your name is Anna."),
        ("Hi, I'm Tom and I like tea.", "Who am I?", "Your name is Tom."),
        ("Hello, my name's Peter, nice to meet you.", "Can you tell me my name?", "Your name is Peter."),
        ("Call me Bob.", "What did I say my name was?", "Your name is Bob."),
        (
            "My favourite colour is dark green.",
            "What's my favorite color?",
            "Your favorite color is dark green.",
        ),
        ("I have a dog. My dog is called Rex.", "What is my dog's name?", "Your dog is called Rex."),
        ("My cat's name is Milo.", "What is the name of my cat?", "Your cat is called Milo."),
        ("I live in Oslo and I work as a baker.", "Where do I live?", "You live in Oslo."),
        ("I live in Oslo and I work as a baker.", "What do I do for a living?", "You are a baker."),
        ("I'm 34 years old.", "How old am I?", "You are 34 years old."),
        ("I like apples.", "What fruit do I like?", "You like apples."),
        (
            "My brother plays the drums.",
            "Which instrument does my brother play?",
            "Your brother plays the drums.",
        ),
        ("I'm going to Paris next week.", "Where am I going next week?", "You are going to Paris next week."),
        ("I'm tired.", "What's my name?", "You haven't told me your name yet."),
        ("I'm German.", "What's my name?", "You haven't told me your name yet."),
    ],
)
def test_what_the_user_said_is_remembered(told: str, question: str, answer: str) -> None:
    assert said(question, told) == answer
    assert said(question, told, "What is the capital of Italy?", "Thanks.") == answer


def test_the_latest_statement_counts() -> None:
    assert said("What's my name?", "My name is Anna.", "Sorry, my name is Hanna.") == "Your name is Hanna."


def test_an_introduction_is_greeted() -> None:
    assert said("Hello, my name is Anna.") == "Nice to meet you, Anna!"
    assert said("I'm tired.") is None


@pytest.mark.parametrize(
    ("question", "seen", "answer"),
    [
        ("What does the sign say?", "street sign; text: STOP", "It says STOP."),
        ("Can you read this for me?", "text: Hello World", "It says Hello World."),
        ("Read it.", "text: MENU", "It says MENU."),
        ("And you read the label to me.", "text: MILK", "It says MILK."),
        ("What does it say?", "coffee mug", "I can't read any text there."),
        ("What do you see?", "umbrella", "It looks like an umbrella."),
        ("What do you see in front of the camera?", "espresso", "It looks like an espresso."),
        ("What can you see in my hand now?", "pen", "It looks like a pen."),
        ("What do you see in the future?", "pen", None),
        ("What am I holding?", "", "I can't make anything out right now."),
        ("Is that a cat?", "dog", None),
    ],
)
def test_sight(question: str, seen: str, answer: str | None) -> None:
    assert said(question, seen=seen) == answer


@pytest.mark.parametrize(
    ("question", "held"),
    [
        ("How are you?", "doing well"),
        ("What's your name?", "assistant"),
        ("Are you a robot?", "program"),
        ("Thanks!", "welcome"),
        ("Thank you, goodbye.", "Goodbye"),
        ("Tell me a joke.", "bicycle"),
        ("Will it rain tomorrow?", "can't check the weather"),
        ("Set a timer for five minutes.", "can't do that"),
    ],
)
def test_small_talk(question: str, held: str) -> None:
    answer = said(question)
    assert answer is not None
    assert held in answer


def test_only_what_is_allowed() -> None:
    assert plan("How are you?", NOW, allowed=EXACT) is None
    result = plan("2 plus 2", NOW, allowed=EXACT)
    assert result is not None
    assert result.name == "calculate"


def test_tools() -> None:
    assert tool("calculate", expression="12 * 7") == "12 times 7 is 84."
    assert tool("current_time") == "Sunday, November 29, 2026, 9:05 PM"
    assert tool("days_until", date="Christmas") == "26 days until Christmas (Friday, December 25, 2026)"
    assert tool("convert_units", amount=5, **{"from": "miles"}, to="kilometers") == "8.04672 kilometers"


@pytest.mark.parametrize(
    ("name", "arguments", "param"),
    [
        ("calculate", {"expression": "love"}, "expression"),
        ("calculate", {}, "expression"),
        ("days_until", {"date": "whenever"}, "date"),
        ("convert_units", {"amount": 1, "from": "miles", "to": "pounds"}, "to"),
        ("convert_units", {"amount": 1, "from": "parsecs", "to": "miles"}, "from"),
        ("convert_units", {"amount": "one", "from": "miles", "to": "feet"}, "amount"),
        ("convert_units", {"amount": float("nan"), "from": "miles", "to": "feet"}, "amount"),
        ("convert_units", {"amount": float("-inf"), "from": "miles", "to": "feet"}, "amount"),
        ("convert_units", {"amount": 10**400, "from": "miles", "to": "feet"}, "amount"),
    ],
)
def test_tools_name_what_is_wrong(name: str, arguments: dict[str, object], param: str) -> None:
    with pytest.raises(InputError) as caught:
        tool(name, **arguments)
    assert caught.value.param == param
