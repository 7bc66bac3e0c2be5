"""A function's arguments from the user's words, as its JSON Schema wants them. Pure.

What says itself goes first: choices, switches and amounts; then strings whose names tell what leads them in
("city": "in Paris"); what is left goes to the others. Each piece of the question is used once.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from voice_app.models.functions.units import UNITS, Unit, convert
from voice_app.models.local.command import (
    Command,
    Phrase,
    capitalised,
    cleaned,
    name_words,
    read_command,
    says_only,
    stems,
)
from voice_app.models.local.tool_schema import (
    DEEPEST,
    Json,
    Schema,
    bound,
    kind_of,
    least_items,
    listed,
    names,
    properties,
    resolved,
)

_PLACES = ("in", "at", "for", "near", "from", "to", "on", "into")
_SAYING = ("saying", "that")
_LEADS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(["date", "day", "time", "when", "datetime"], ("when",)),
    **dict.fromkeys(["from", "origin", "source", "departure", "start"], ("from",)),
    **dict.fromkeys(["to", "destination", "target", "arrival"], ("to", "into")),
    **dict.fromkeys(["recipient", "contact", "person", "who"], ("to", "with", "for")),
    **dict.fromkeys(["city", "location", "place", "country", "town", "region", "area", "room"], _PLACES),
    **dict.fromkeys(["list", "playlist", "folder", "calendar"], ("to", "on", "in", "from")),
    **dict.fromkeys(["topic", "subject", "about"], ("about", "on", "for")),
    **dict.fromkeys(["message", "body", "content", "text"], _SAYING),
    **dict.fromkeys(["name", "title", "label"], ("called", "named", "titled", "as")),
    **dict.fromkeys(["artist", "author"], ("by",)),
    **dict.fromkeys(["duration", "length", "period"], ("for", "in")),
}
"""What leads in an argument whose name has this word, likeliest first."""
_NAMES = frozenset(
    (
        "city", "location", "place", "country", "town", "person", "contact", "recipient", "name", "who",
        "artist", "author",
    )
)  # fmt: skip
"""Of these, a part in capitals is the value."""
_TRUE = frozenset(["on", "yes", "true", "enable", "enabled", "start", "activate"])
_FALSE = frozenset(
    (
        "off", "no", "not", "don't", "false", "disable", "disabled", "stop", "without", "never",
        "deactivate",
    )
)  # fmt: skip
_SWITCHES = frozenset(
    (
        "on", "off", "enable", "enabled", "active", "activate", "state", "power", "turn", "switch",
    )
)  # fmt: skip
_OPPOSITES = {"open": ("clos", "shut"), "start": ("stop", "end"), "runn": ("stop",)}
"""Of stems."""


def arguments(question: str, schema: Schema, known: frozenset[str]) -> dict[str, Json]:
    """Valid by types, choices, bounds and required members (not by `pattern` or `format`).

    `known`: stems of the words that the function's own name and description have. What is required and not
    found is the schema's default, else: of a string the question itself, of choices the first, a switch is
    on, a number is as small as may be from 0 up. What is optional and not found is left out."""
    root = resolved(schema, schema)
    times = any("when" in _leads(name) for name in properties(root))
    return _Reader(read_command(question, times=times), schema, known).object(root, 0)


class _Reader:
    def __init__(self, command: Command, root: Schema, known: frozenset[str]) -> None:
        self._command = command
        self._root = root
        self._known = known

    def object(self, schema: Schema, depth: int) -> dict[str, Json]:
        members = {name: resolved(part, self._root) for name, part in properties(schema).items()}
        required = [name for name in names(schema.get("required")) if depth < DEEPEST]
        members |= {name: {} for name in required if name not in members}
        # Where nothing is required, the first string is what the function is about.
        texts = [name for name, part in members.items() if kind_of(part) == "string" and "enum" not in part]
        wanted = required or texts[:1]
        found: dict[str, Json] = {}
        for name in sorted(members, key=lambda name: _turn(name, members[name])):
            part = members[name]
            value = self._find(name, part, members, depth, wanted=name in wanted)
            if value is None and name in required:
                value = self._fallback(part, depth)
            if value is not None or (name in required and kind_of(part) == "null"):
                found[name] = value
        return {name: found[name] for name in members if name in found}

    def _find(
        self, name: str, schema: Schema, siblings: Mapping[str, Schema], depth: int, *, wanted: bool
    ) -> Json:
        """None: there is nothing of it in the question."""
        if "enum" in schema:
            chosen = self._chosen(listed(schema["enum"]))
            return chosen[0] if chosen else None
        match kind_of(schema):
            case "boolean":
                return self._switch(
                    name, sure=sum(kind_of(part) == "boolean" for part in siblings.values()) == 1
                )
            case "integer" | "number":
                number = self._number(name, schema, siblings)
                return None if number is None else _bounded(number, schema)
            case "array":
                return self._array(name, resolved(schema.get("items"), self._root), schema, wanted=wanted)
            case "object" if depth < DEEPEST:
                return self.object(schema, depth + 1) or None
            case "string":
                text = self._string(name, wanted=wanted)
                return _fitting(text, schema) if text else None
            case _:
                return None

    def _fallback(self, schema: Schema, depth: int) -> Json:
        if "default" in schema:
            return schema["default"]
        if "enum" in schema:
            return next(iter(listed(schema["enum"])), None)
        match kind_of(schema):
            case "boolean":
                return True
            case "integer" | "number":
                return _bounded(Fraction(0), schema)
            case "array":
                least = least_items(schema)
                item = resolved(schema.get("items"), self._root)
                return [self._fallback(item, depth + 1)] * least if depth < DEEPEST else []
            case "object":
                return self.object(schema, depth + 1) if depth < DEEPEST else {}
            case "string":
                return _fitting(self._command.text, schema)
            case _:
                return None

    def _chosen(self, choices: Sequence[Json]) -> list[Json]:
        """Those of `choices` that the question names, those of most words first."""
        text = f" {' '.join(self._command.words)} "
        spelled = {
            place: " ".join(name_words(str(choice).replace("°", ""))) for place, choice in enumerate(choices)
        }
        places = [
            place
            for place, words in spelled.items()
            if words and (f" {words} " in text or _is_among(words, self._command.stems))
        ]
        places.sort(key=lambda place: -len(spelled[place]))
        chosen = [choices[place] for place in places]
        for phrase in self._command.phrases:
            if any(says_only(phrase.words, self._known | stems(spelled[place].split())) for place in places):
                phrase.used = True
        return chosen

    def _switch(self, name: str, *, sure: bool) -> bool | None:
        """`sure`: it is the only one, so that "on" and "off" are about it."""
        words, own = self._command.words, name_words(name)
        opposites = {opposite for stem in stems(own) for opposite in (f"un{stem}", *_OPPOSITES.get(stem, ()))}
        if opposites & self._command.stems:
            return False
        if not (sure or stems(own) & self._command.stems or set(own) & set(words)):
            return None
        if not sure and not set(own) & _SWITCHES:
            place = next((at for at, word in enumerate(words) if stems([word]) & stems(own)), 0)
            return not set(words[max(0, place - 2) : place]) & _FALSE
        if set(words) & (_FALSE - set(own)):
            return False
        return True if set(words) & (_TRUE | set(own)) or stems(own) & self._command.stems else None

    def _number(self, name: str, schema: Schema, siblings: Mapping[str, Schema]) -> Fraction | None:
        unit = _unit(name, schema)
        free = [amount for amount in self._command.amounts if not amount.used]
        if unit is None:
            found = next((amount for amount in free if amount.unit is None), None) or next(iter(free), None)
            if found is None:
                return None
            found.used = True
            return found.value
        fitting = [a for a in free if a.unit is not None and a.unit.dimension == unit.dimension]
        rivals = [_unit(other, part) for other, part in siblings.items() if other != name]
        if any(other is not None and other.dimension == unit.dimension for other in rivals):
            # "1 hour and 30 minutes" for hours and minutes: each its own.
            fitting = [a for a in fitting if a.unit == unit]
        if not fitting:
            bare = next((amount for amount in free if amount.unit is None), None)
            if bare is None:
                return None
            bare.used = True
            return bare.value
        total = Fraction(0)
        for amount in fitting:
            assert amount.unit is not None
            amount.used = True
            total += convert(amount.value, amount.unit, unit)
        return total

    def _array(self, name: str, items: Schema, schema: Schema, *, wanted: bool) -> Json:
        found: list[Json] = []
        if "enum" in items:
            found = self._chosen(listed(items["enum"]))
        elif kind_of(items) in ("integer", "number"):
            for amount in self._command.amounts:
                if not amount.used:
                    amount.used = True
                    found.append(_bounded(amount.value, items))
        elif kind_of(items) == "string":
            text = self._string(name, wanted=wanted, whole=False)
            if text:
                parts = text.replace(",", " and ").replace(" & ", " and ").split(" and ")
                found = [_fitting(cleaned(part.split()), items) for part in parts if part.strip()]
        most = bound(schema, "maxItems")
        found = found if most is None else found[: max(0, int(most))]
        return found if found and len(found) >= least_items(schema) else None

    def _string(self, name: str, *, wanted: bool, whole: bool = True) -> str:
        """`whole`: what follows on the phrase belongs to it."""
        phrases = [phrase for phrase in self._command.phrases if not (phrase.used or self._is_told(phrase))]
        for lead in _leads(name):
            for place, phrase in enumerate(phrases):
                if phrase.lead == lead:
                    return self._taken(name, phrases[place:] if lead in _SAYING else [phrase])
        if not wanted:
            return ""
        if self._command.quoted:
            return self._command.quoted.pop(0)
        if set(name_words(name)) & _NAMES:
            for phrase in phrases:
                if capitalised(phrase.words):
                    return self._taken(name, [phrase])
        left = [phrase for phrase in phrases if not says_only(phrase.words, self._known)]
        return self._taken(name, left if whole else left[:1]) if left else ""

    def _is_told(self, phrase: Phrase) -> bool:
        """It is an amount that another argument has."""
        first = read_command(" ".join(phrase.words)).amounts[:1]
        used = [amount.value for amount in self._command.amounts if amount.used]
        return bool(first) and first[0].value in used

    def _taken(self, name: str, phrases: Sequence[Phrase]) -> str:
        first, *others = phrases
        words = list(first.words)
        for phrase in phrases:
            phrase.used = True
        if set(name_words(name)) & _NAMES and (proper := capitalised(words)):
            return proper
        for phrase in others:
            words += ([] if phrase.lead in ("", "when") else [phrase.lead]) + phrase.words
        if first.lead in _SAYING:
            return " ".join(words)
        return cleaned(words, frozenset() if first.lead else self._known - stems(name_words(name)))


def _turn(name: str, schema: Schema) -> int:
    """When an argument is looked for: what can be mistaken least goes first."""
    items = schema.get("items")
    kind = kind_of(schema)
    if "enum" in schema or kind == "boolean":
        return 0
    if kind in ("integer", "number"):
        return 1
    if kind == "array":
        return 0 if isinstance(items, Mapping) and "enum" in items else 4
    if kind == "object":
        return 6
    leads = _leads(name)
    return 2 if "when" in leads else 3 if leads else 5


def _leads(name: str) -> tuple[str, ...]:
    return next((_LEADS[word] for word in reversed(name_words(name)) if word in _LEADS), ())


def _unit(name: str, schema: Schema) -> Unit | None:
    if kind_of(schema) not in ("integer", "number"):
        return None
    words = name_words(name) + name_words(str(schema.get("description", "")))
    return next((UNITS[word] for word in words if word in UNITS), None)


def _bounded(number: Fraction, schema: Schema) -> int | float:
    whole = kind_of(schema) == "integer"
    number = Fraction(round(number)) if whole else number
    least, most = bound(schema, "minimum"), bound(schema, "maximum")
    if least is not None:
        number = max(number, Fraction(math.ceil(least)) if whole else least)
    if most is not None:
        number = min(number, Fraction(math.floor(most)) if whole else most)
    return int(number) if number.denominator == 1 else float(number)


def _fitting(text: str, schema: Schema) -> str:
    most = bound(schema, "maxLength")
    return text if most is None else text[: max(0, int(most))]


def _is_among(words: str, asked: frozenset[str]) -> bool:
    meant = stems(words.split())
    return bool(meant) and meant <= asked
