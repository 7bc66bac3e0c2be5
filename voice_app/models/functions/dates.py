"""Time, date, weekday and days between dates, from the user's own clock."""

import re
from datetime import date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

_MONTHS: tuple[str, ...] = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_WEEKDAYS: tuple[str, ...] = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_HOLIDAYS = {
    "christmas": (12, 25), "christmas day": (12, 25), "christmas eve": (12, 24), "boxing day": (12, 26),
    "new year": (1, 1), "new years": (1, 1), "new year's": (1, 1), "new year's day": (1, 1),
    "new years day": (1, 1), "new year's eve": (12, 31), "new years eve": (12, 31),
    "valentine's day": (2, 14), "valentines day": (2, 14), "halloween": (10, 31),
    "saint patrick's day": (3, 17), "st patrick's day": (3, 17),
}  # fmt: skip
_HOLIDAY_NAMES = {
    "new year": "New Year's Day", "new years": "New Year's Day", "new year's": "New Year's Day",
    "new years day": "New Year's Day", "new years eve": "New Year's Eve", "valentines day": "Valentine's Day",
}  # fmt: skip

_ASK = r"(?:what|which)"
_TIME = re.compile(
    r"(?:what time (?:is it|it is|do we have)|what(?: is)? the(?: current)? time(?: is| of day)?"
    r"|(?:the |current )?time|(?:do you have|have you got) the time|how late is it)(?: here)?"
    r"(?: in (?P<place>.+))?"
)
_DATE = re.compile(
    r"(?:what is |what |the )?(?:the |today's |day's |current )*date(?: is it| is| of)?(?: today)?"
    r"|what is today"
    rf"|{_ASK} date (?:is it|is|it is|do we have)(?: today)?"
)
_DAY = re.compile(
    rf"{_ASK} (?:week)?day(?: of the week)?(?: is it| it is| is| do we have| are we on| is this)?(?: today)?"
    rf"(?: is)?|what is the (?:week)?day(?: of the week)?(?: today)?"
    rf"|{_ASK} (?:week)?day today is|what is today's day"
)
_MONTH = re.compile(rf"{_ASK} month (?:is it|are we in|is this|it is)|what is the (?:current )?month")
_YEAR = re.compile(rf"{_ASK} year (?:is it|are we in|is this|it is)|what is the (?:current )?year")
_NEAR = re.compile(
    rf"{_ASK}(?: is| was)?(?: the)?(?: (?:week)?day| date)?(?: of the week)?(?: is it| is| was it| was"
    r"| will it be| will be| be)?(?: the)?"
    r" (?P<near>tomorrow|yesterday|day after tomorrow|day before yesterday)(?:'s)?"
    r"(?: date| day)?(?: be| going to be)?"
)
_UNTIL = re.compile(
    r"(?:how (?:many (?:more )?)?(?P<unit>days|weeks|long|far)(?: is it| is| are there| are| were| left"
    r"| do we have| remain| to go| away)*(?: until| till| til| before| to)|(?P<when>when is)|how far away is"
    r"|how many (?P<away>days|weeks) away is)(?: the)? (?P<date>.+?)(?: from now| from today)?"
)
_WHICH_DAY = re.compile(
    rf"(?:on )?{_ASK} (?:week)?day(?: of the week)? (?:is|was|will|does|did|falls)(?: it)?(?: on)?(?: the)?"
    r" (?P<date>.+?)(?: on| fall on| fall| be| this year)?"
)
_MONTH_NAMES = "|".join(_MONTHS)
_MONTH_DAY = re.compile(rf"(?:the )?({_MONTH_NAMES}) (?:the )?(\d{{1,2}})(?:st|nd|rd|th)?(?: (?:of )?(.+))?")
_DAY_MONTH = re.compile(rf"(?:the )?(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({_MONTH_NAMES})(?: (?:of )?(.+))?")


def spoken_date(question: str, now: datetime) -> str | None:
    """The sentence that answers a normalised question about time or date; None if it is none."""
    today = now.date()
    if found := _TIME.fullmatch(question):
        return f"It's {clock(now)}." if found["place"] is None else _time_in(found["place"], now)
    if _DATE.fullmatch(question):
        return f"Today is {long(today)}."
    if _DAY.fullmatch(question):
        return f"Today is {weekday(today)}, {month_day(today)}."
    if _MONTH.fullmatch(question):
        return f"It's {_MONTHS[today.month - 1].title()}."
    if _YEAR.fullmatch(question):
        return f"It's {today.year}."
    return _near(question, today) or _until(question, today) or _which_day(question, today)


def clock(now: datetime) -> str:
    """As "9:05 PM"."""
    return f"{now.hour % 12 or 12}:{now.minute:02} {'AM' if now.hour < 12 else 'PM'}"


def weekday(day: date) -> str:
    return _WEEKDAYS[day.weekday()].title()


def month_day(day: date) -> str:
    return f"{_MONTHS[day.month - 1].title()} {day.day}"


def long(day: date) -> str:
    return f"{weekday(day)}, {month_day(day)}, {day.year}"


def find_date(words: str, today: date) -> tuple[str, date] | None:
    """The date that normalised `words` name, with its name: a holiday, a weekday or a day of a month, the
    next one from `today` on unless a year is given. None for all else, and for days that the calendar (years
    1 to 9999) does not have."""
    try:
        return _named(words, today)
    except (ValueError, OverflowError):
        return None


def _named(words: str, today: date) -> tuple[str, date] | None:
    """Raises ValueError or OverflowError if there is no such day."""
    if words in _HOLIDAYS:
        name = _HOLIDAY_NAMES.get(words, words.title().replace("'S", "'s"))
        return name, _next(*_HOLIDAYS[words], today)
    last = words.removeprefix("next ").removeprefix("this ")
    if last in _WEEKDAYS:
        ahead = (_WEEKDAYS.index(last) - today.weekday() - 1) % 7 + 1
        return last.title(), today + timedelta(ahead)
    if found := _MONTH_DAY.fullmatch(words):
        month, day, year = found[1], found[2], found[3]
    elif found := _DAY_MONTH.fullmatch(words):
        day, month, year = found[1], found[2], found[3]
    else:
        return None
    if year is None:
        when = _next(_MONTHS.index(month) + 1, int(day), today)
        return month_day(when), when
    # "nineteen ninety nine" comes as "19 99".
    when = date(int(year.replace(" ", "")), _MONTHS.index(month) + 1, int(day))
    return f"{month_day(when)}, {when.year}", when


def _next(month: int, day: int, today: date) -> date:
    """Raises ValueError if there is no such day within the next eight years."""
    for year in range(today.year, today.year + 9):
        try:
            when = date(year, month, day)
        except ValueError:
            continue  # 29 February
        if when >= today:
            return when
    raise ValueError("no such day")


def _near(question: str, today: date) -> str | None:
    found = _NEAR.fullmatch(question)
    if not found:
        return None
    near = found["near"]
    shift = {"tomorrow": 1, "yesterday": -1, "day after tomorrow": 2, "day before yesterday": -2}[near]
    name = near.capitalize() if abs(shift) == 1 else f"The {near}"
    try:
        when = today + timedelta(shift)
    except OverflowError:
        return None  # The calendar's first and last days.
    return f"{name} {'is' if shift > 0 else 'was'} {long(when)}."


def _until(question: str, today: date) -> str | None:
    found = _UNTIL.fullmatch(question)
    named = find_date(found["date"], today) if found else None
    if not found or not named:
        return None
    name, when = named
    days = (when - today).days
    if days == 0:
        return f"{name} is today."
    if days < 0:
        return f"{name} was {_counted(-days, 'day')} ago."
    if found["when"]:
        return f"{name} is on {long(when)}."
    if "weeks" in (found["unit"], found["away"]) and days >= 7:
        weeks, rest = divmod(days, 7)
        more = f" and {_counted(rest, 'day')}" if rest else ""
        return f"It's {_counted(weeks, 'week')}{more} until {name}."
    return f"It's {_counted(days, 'day')} until {name}."


def _which_day(question: str, today: date) -> str | None:
    found = _WHICH_DAY.fullmatch(question)
    named = find_date(found["date"], today) if found else None
    if not named:
        return None
    name, when = named
    return f"{name} {'was' if when < today else 'is'} a {weekday(when)}."


def _time_in(place: str, now: datetime) -> str:
    zone = _zones().get(place.removeprefix("the "))
    unknown = f"I don't know the time in {place.title()}."
    if zone is None:
        return unknown
    try:
        there = now.astimezone(ZoneInfo(zone))
    except (ValueError, OverflowError):
        return unknown  # On the calendar's first and last days it may be a day that it has not.
    return f"It's {clock(there)} in {place.title()}."


@cache
def _zones() -> dict[str, str]:
    """Time zones by the city that each is named after, and by the countries that have but one."""
    cities = {zone.rpartition("/")[2].replace("_", " ").lower(): zone for zone in available_timezones()}
    countries = {
        "japan": "tokyo", "india": "kolkata", "china": "shanghai", "germany": "berlin", "france": "paris",
        "england": "london", "britain": "london", "italy": "rome", "spain": "madrid", "korea": "seoul",
        "kenya": "nairobi", "egypt": "cairo", "greece": "athens", "turkey": "istanbul",
    }  # fmt: skip
    return cities | {country: cities[city] for country, city in countries.items() if city in cities}


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
