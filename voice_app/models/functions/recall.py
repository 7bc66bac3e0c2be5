"""What the user has said about themself, and questions about it.

"My name is Anna" … "what's my name?" → "Your name is Anna." Only plain statements in the user's own earlier
turns count; the latest one wins. Words keep the spelling that they were heard with.
"""

import re
from collections.abc import Iterable

from voice_app.models.functions.deeds import asked_deed, deeds

_STOP = r"(?=\s*(?:[.,;!?]|$| and\b| but\b| so\b| because\b| which\b| who\b| please\b))"
_THING = r"((?:[a-z]+(?:'s)? ){0,3}?[a-z]+)"
_STATEMENTS: tuple[tuple[re.Pattern[str], str | None], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), thing)
    for pattern, thing in (
        (rf"\b(?:my name is|my name's|call me|i am called|i'm called|the name is) ([\w'-]+){_STOP}", "name"),
        (rf"\bmy {_THING}(?:'s name)? (?:is|are) ((?:called |named )?.+?){_STOP}", None),
        (rf"\bi (?:live|am living) (in .+?){_STOP}", "home"),
        (rf"\bi'm living (in .+?){_STOP}", "home"),
        (rf"\b(?:i am|i'm) (?:from) (.+?){_STOP}", "origin"),
        (rf"\bi come from (.+?){_STOP}", "origin"),
        (r"\b(?:i am|i'm) (\d+|[a-z]+(?:[- ][a-z]+)?) years old\b", "age"),
        (rf"\bi work as (an? .+?){_STOP}", "job"),
        (rf"\b(?:i am|i'm) (an? [a-z]+(?:er|or|ist|ian|ant|ent|nurse|cook|chef|pilot)){_STOP}", "job"),
    )
)
# "I'm Anna": a capital that opens no sentence, and not the name of a people or a place.
_IM_NAME = re.compile(r"\b(?:I am|I'm) ([A-Z][a-z]+)(?=\s*(?:[.,!?]|$| and\b| by the way\b))")
_NOT_NAMES = re.compile(
    r"(?:.*(?:ish|ese|ean|ian|can)|German|French|Dutch|Greek|Swiss|Monday|Sunday|Christmas)$"
)

_INTRODUCTION = re.compile(
    r"(?:(?:hello|hi|hey|good (?:morning|afternoon|evening))(?: there)?[,.!]? )?"
    r"(?:my name is|my name's|i am|i'm|call me|you can call me) [\w'-]+"
    r"(?:[.,!]? (?:and )?(?:it's |it is )?(?:nice|pleased|good|great) to meet you)?[.!]?",
    re.IGNORECASE,
)

_QUESTIONS: tuple[tuple[re.Pattern[str], str | None], ...] = tuple(
    (re.compile(pattern), thing)
    for pattern, thing in (
        (
            r"who (?:am i|i am)|what am i called|what do (?:you|people|i) call me|what was my name",
            "name",
        ),
        (r"(?:do you (?:still )?(?:know|remember) who i am)", "name"),
        (
            r"where (?:do i|i) live|which (?:city|town|country|place) do i live in|in which city do i live",
            "home",
        ),
        (r"what (?:city|town|country|place) do i live in", "home"),
        (r"where (?:am i|do i come) from|which country am i from", "origin"),
        (r"how old (?:am i|i am)|what age am i", "age"),
        (r"what do i do(?: for a living| for work)?|what is my (?:job|profession)|what do i work as", "job"),
        (r"(?:what|who|which|how old)(?: is| are| was| were)(?: the)?(?: name of)? my (.+?)", None),
        (
            r"do you (?:still )?(?:know|remember|recall)(?: what)? my (.+?)(?: is| was| are)?",
            None,
        ),
        (
            r"(?:do you (?:know|remember|recall) )?what(?: is| are)? my (.+?)(?: is| are| was)?(?: called)?",
            None,
        ),
        (r"what did i (?:say|tell you)(?: that)? my (.+?) (?:is|was|are|were)(?: called)?", None),
        (r"what (?:did i say|have i said) is my (.+?)", None),
        # "Do you know …" and "Tell me …" are gone from a bare question.
        (r"(?:what )?my (.+?)(?: is| are| was)?(?: called)?", None),
    )
)
_SENTENCES = {
    "home": "You live {}.",
    "origin": "You are from {}.",
    "age": "You are {} years old.",
    "job": "You are {}.",
    "name": "Your name is {}.",
}
_UNKNOWN = {"name": "You haven't told me your name yet."}


def facts(said: Iterable[str]) -> dict[str, str]:
    """What the user's turns `said` state: a thing ("name", "favorite color", "home") and its value."""
    known: dict[str, str] = {}
    for turn in said:
        text = turn.replace("’", "'")
        if (found := _IM_NAME.search(text)) and not _NOT_NAMES.match(found[1]):
            known["name"] = found[1]
        for statement, thing in _STATEMENTS:
            for found in statement.finditer(text):
                name = thing or _thing(found[1])
                known[name] = _value(found[found.lastindex or 1], name, "'s name" in found[0])
        known.update(deeds(text))
    return known


def spoken_greeting(text: str) -> str | None:
    """What to say to a turn that gives the user's name and nothing else."""
    found = _INTRODUCTION.fullmatch(text.replace("’", "'").strip())
    name = facts([text]).get("name") if found else None
    return f"Nice to meet you, {name}!" if name else None


def spoken_recall(question: str, known: dict[str, str]) -> str | None:
    """The sentence that answers a normalised question about the user; None if it asks for nothing that is
    known (a name that isn't known is said to be so)."""
    if (deed := asked_deed(question)) in known:
        return known[deed]
    for form, fixed in _QUESTIONS:
        found = form.fullmatch(question)
        if not found:
            continue
        thing = fixed or _thing(found[1])
        if thing in known:
            return _sentence(thing, known[thing])
        if thing in _UNKNOWN:
            return _UNKNOWN[thing]
    return None


def _sentence(thing: str, value: str) -> str:
    verb = "are" if thing.endswith("s") and not thing.endswith("ss") else "is"
    return _SENTENCES.get(thing, f"Your {thing} {verb} {{}}.").format(value)


def _thing(words: str) -> str:
    thing = words.lower().replace("'s name", "").replace("colour", "color").replace("favourite", "favorite")
    return re.sub(r"^(?:first|full|real|own|own first) (?=name$)", "", thing).strip()


def _value(words: str, thing: str, named: bool) -> str:
    value = words.strip()
    if thing == "name":
        return value[0].upper() + value[1:]
    value = re.sub(r"\bmy\b", "your", value)
    # "My dog's name is Rex" and "my dog is called Rex" say the same.
    return value if thing in _SENTENCES or not named else f"called {value}"
