"""What the user has said that they do: "my brother plays the drums" … "what does my brother play?"."""

import re
from collections.abc import Iterator

_VERB_FORMS = {
    form: forms[0]
    for forms in (
        ("like", "likes"), ("love", "loves"), ("prefer", "prefers"), ("hate", "hates"), ("have", "has"),
        ("play", "plays", "playing"), ("speak", "speaks"), ("study", "studies", "studying"),
        ("teach", "teaches", "teaching"), ("drive", "drives", "driving"), ("eat", "eats", "eating"),
        ("drink", "drinks", "drinking"), ("collect", "collects", "collecting"), ("want", "wants"),
        ("work", "works", "working"), ("live", "lives", "living"), ("go", "goes", "going"),
        ("fly", "flies", "flying"), ("grow", "grows", "growing"), ("read", "reads", "reading"),
        ("learn", "learns", "learning"), ("need", "needs"), ("own", "owns"), ("bake", "bakes", "baking"),
    )
    for form in forms
}  # fmt: skip
_WHO = r"(?P<who>i|my (?:[a-z]+ ){0,2}?[a-z]+)"
_VERB = "(?P<verb>" + "|".join(_VERB_FORMS) + ")"
_END = r"(?=\s*(?:[.,;!?]|$| and\b| but\b| so\b| because\b| which\b| who\b| please\b))"
_DOING = re.compile(
    rf"\b{_WHO}(?P<be> am|'m| is|'s)?(?: really| also| often)? {_VERB} (?P<what>.+?){_END}", re.IGNORECASE
)
_ASKED = re.compile(
    r"(?:what|which|who|where|how many)(?: .+?)? (?:do|does|did|am|is)(?: i say| i tell you)?"
    rf" {_WHO} {_VERB}(?: .+)?"
)


def deeds(text: str) -> Iterator[tuple[str, str]]:
    """For each doing that `text` states, its key and the statement as the assistant says it to the user."""
    for found in _DOING.finditer(text):
        yield _key(found), _retold(found)


def asked_deed(question: str) -> str | None:
    """The key of the doing that a normalised question asks for."""
    found = _ASKED.fullmatch(question)
    return _key(found) if found else None


def _key(found: re.Match[str]) -> str:
    return f"{found['who'].lower()} {_VERB_FORMS[found['verb'].lower()]}"


def _retold(found: re.Match[str]) -> str:
    mine = found["who"].lower() == "i"
    doer = "You" if mine else "Your" + found["who"][2:]
    be = ("are " if mine else "is ") if found["be"] else ""
    what = re.sub(r"\bmy\b", "your", found["what"])
    return f"{doer} {be}{found['verb'].lower()} {what}."
