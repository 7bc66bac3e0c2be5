"""Short forms of English, and how they are said."""

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TITLES = {
    "mr": "mister", "mrs": "missus", "ms": "miz", "mx": "mix", "prof": "professor", "gen": "general",
    "col": "colonel", "sgt": "sergeant", "capt": "captain", "lt": "lieutenant", "rev": "reverend",
    "hon": "honorable", "gov": "governor", "sen": "senator", "rep": "representative", "mt": "mount",
    "ft": "fort",
}  # fmt: skip
"""Before a name; said so only with a period or before a capital."""

WITH_PERIOD = {
    "jr": "junior", "sr": "senior", "approx": "approximately", "inc": "incorporated", "ltd": "limited",
    "co": "company", "corp": "corporation", "dept": "department", "ave": "avenue", "blvd": "boulevard",
    "rd": "road", "tel": "telephone", "misc": "miscellaneous", "jan": "January",
    "feb": "February", "apr": "April", "jun": "June", "jul": "July", "aug": "August", "sep": "September",
    "sept": "September", "oct": "October", "nov": "November", "dec": "December", "mon": "Monday",
    "tue": "Tuesday", "tues": "Tuesday", "wed": "Wednesday", "thu": "Thursday", "thurs": "Thursday",
    "fri": "Friday",
}  # fmt: skip
"""Said so where a period follows."""

BEFORE_NUMBER = {
    "no": "number", "nos": "numbers", "fig": "figure", "figs": "figures", "vol": "volume",
    "ch": "chapter", "pp": "pages", "p": "page", "ed": "edition", "ext": "extension", "apt": "apartment",
    "min": "minimum", "max": "maximum", "est": "established", "ca": "circa", "sec": "section",
    "mar": "March", "sat": "Saturday", "sun": "Sunday",
}  # fmt: skip
"""Said so where a period and a number follow; words of their own otherwise."""

ALWAYS = {
    "vs": "versus", "vs.": "versus", "e.g.": "for example", "eg.": "for example", "i.e.": "that is",
    "ie.": "that is", "cf.": "compare", "viz.": "namely", "approx": "approximately", "w/": "with",
    "w/o": "without", "b/c": "because", "and/or": "and or", "n/a": "not applicable",
    "N/A": "not applicable", "ph.d.": "P H D", "phd": "P H D", "C++": "C plus plus",
    "c++": "C plus plus", "C#": "C sharp", "F#": "F sharp", "wi-fi": "wifi", "ok": "okay", "OK": "okay",
    "tbsp": "tablespoons", "tsp": "teaspoons", "O.K.": "okay", "kg": "kilograms", "km": "kilometers",
    "km/h": "kilometers per hour", "mph": "miles per hour",
}  # fmt: skip
"""Wherever they stand."""

SAID_AS_WORDS = _words(
    "NASA NATO AIDS UNESCO UNICEF OPEC RAM ROM LASER RADAR SONAR SCUBA PIN SIM GIF JPEG ASCII NAFTA ASAP "
    "FAQ GUI LAN WAN WIFI YOLO CAPTCHA COVID DARPA FIFA UEFA NASDAQ SWAT OSHA FEMA POTUS SCOTUS IKEA LEGO "
    "JSON YAML BASIC COBOL FORTRAN LISP NUMA SQUID TASER ZIP TED BAFTA MENSA INTERPOL CERN MOMA"
)
"""Capitals that make a word and not letters."""

SHOUTED = _words(
    "NOT NO YES STOP ALL AND OR BUT THE VERY NEVER ALWAYS MUST NOW ONLY ANY MORE LESS BEST NEW OLD BIG "
    "HOT TOP ONE TWO FOUR FIVE SIX TEN BOTH EACH EVERY FREE GO DO DONT WILL CAN YOU YOUR ME MY WE THIS "
    "THAT THEN WHAT WHEN HELP OPEN SALE HERE THERE SO TOO OUT OFF ON IN UP OF TO FOR WITH FROM IS ARE WAS "
    "BE HAVE HAS HAD BY AT AS IF GOOD BAD WAY DAY TIME EASY HARD FAST SLOW SAME SOME MANY MOST MUCH JUST "
    "EVEN EVER LONG WORD READ NOTE STEP SIGN EXIT PUSH PULL ROAD SHOP CAFE FOOD TAXI BUS CAR MEN MAX OH HEY "
    "HI WOW BAKERY"
)
"""Short words that are sometimes written in capitals."""

LETTERED = _words("an vitamin grade plan type section class option hepatitis letter group")
"""Words before which a single capital is a letter and no initial or article."""

_REGNAL = _words(
    "henry louis elizabeth george charles edward william james richard john paul pius benedict francis "
    "napoleon alexander catherine nicholas frederick philip peter leo gregory ramses ramesses ptolemy "
    "philippe juan innocent clement urban harald christian gustav ivan robert david margrethe"
)
_ROMAN = re.compile(r"(?=[IVX])(?:X{0,2})(?:IX|IV|V?I{0,3})")
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10}
_NUMBERED = _words(
    "war chapter part volume act scene phase type level section book stage grade class article world "
    "title appendix bowl rocky episode season"
)


def roman(numeral: str, before: str) -> tuple[int, bool] | None:
    """What the capitals `numeral` count after the word `before`: (number, whether it is said as an ordinal).
    None if they are no numeral there; a single letter is one only after a word that is numbered."""
    ruler = before.lower() in _REGNAL
    if not _ROMAN.fullmatch(numeral) or not before[:1].isupper():
        return None
    if len(numeral) == 1 and not (ruler or before.lower() in _NUMBERED):
        return None
    values = [_ROMAN_VALUES[letter] for letter in numeral]
    pairs = zip(values, [*values[1:], 0], strict=True)
    return sum(-value if value < after else value for value, after in pairs), ruler
