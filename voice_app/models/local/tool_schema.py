"""Reading a function's JSON Schema. Pure; what is not as it should be counts as not there."""

import math
from collections.abc import Mapping
from fractions import Fraction

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Schema = Mapping[str, Json]

DEEPEST = 8
"""Objects and lists within one another; deeper ones stay empty."""

MOST_ITEMS = 64
"""Of a list that nothing is found for: more are not made up, whatever its `minItems`."""


def resolved(schema: Json | Schema, root: Schema, depth: int = 0) -> Schema:
    """The part of `schema` that arguments are made by: references followed, of alternatives the first that
    is not null."""
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found: Json | Schema = root
        for key in reference.removeprefix("#/").split("/"):
            found = found.get(key) if isinstance(found, Mapping) else None
        return resolved(found, root, depth + 1)
    if "const" in schema:
        return {**schema, "enum": [schema["const"]]}
    for several in ("anyOf", "oneOf"):
        options = [resolved(option, root, depth + 1) for option in listed(schema.get(several))]
        if options:
            first = next((option for option in options if kind_of(option) != "null"), options[0])
            return {**first, **{key: value for key, value in schema.items() if key != several}}
    return schema


def kind_of(schema: Schema) -> str:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        kinds = next((kind for kind in kinds if kind != "null"), "null")
    if isinstance(kinds, str):
        return kinds
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def properties(schema: Schema) -> Mapping[str, Json]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def names(value: Json) -> list[str]:
    return [name for name in listed(value) if isinstance(name, str)]


def bound(schema: Schema, key: str) -> Fraction | None:
    """What `schema` says under `key` ("minimum", "maxLength" …), where that is a finite number."""
    match schema.get(key):
        case int() as value:
            return Fraction(value)
        case float() as value if math.isfinite(value):
            return Fraction(value)
        case _:
            return None


def least_items(schema: Schema) -> int:
    """At most `MOST_ITEMS`."""
    return min(int(bound(schema, "minItems") or 0), MOST_ITEMS)
