"""Client events at random, valid and not, by walking the SDK's own schema."""

import base64
import copy
import random
from typing import Any

from openai.types.realtime import RealtimeClientEvent
from pydantic import TypeAdapter

SCHEMA: dict[str, Any] = TypeAdapter(RealtimeClientEvent).json_schema()
_STRINGS = [
    "",
    "x",
    "root",
    "item_1",
    "auto",
    "\u00e9\x00\U0001f600",
    "y" * 600,
    "data:image/png;base64,iVBORw0KGgo=",
]
_NUMBERS = [0, 1, -1, 100, 24000, 2**53, 0.5, -0.5, 1e300]
_WRONG: list[Any] = [None, True, 0, "x", [], {}, [[]], {"type": "x"}]


class Fuzzer:
    """`seed` makes the events a function of it. `ids`: names of things that exist, to be hit at times."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.ids: list[str] = []

    def event(self) -> Any:
        branches = SCHEMA["anyOf"] if "anyOf" in SCHEMA else SCHEMA["oneOf"]
        made = self._value(self._random.choice(branches), 0)
        if isinstance(made, dict) and self._random.random() < 0.1:
            made[self._random.choice(["extra", "type", "event_id", "item_id"])] = self._wrong()
        return made

    def _wrong(self) -> Any:
        return copy.deepcopy(self._random.choice(_WRONG))

    def _value(self, schema: dict[str, Any], depth: int, key: str = "") -> Any:
        pick = self._random
        if "$ref" in schema:
            return self._value(SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[-1]], depth, key)
        if pick.random() < 0.01:
            return self._wrong()
        for union in ("anyOf", "oneOf"):
            if union in schema:
                return self._value(pick.choice(schema[union]), depth, key)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return pick.choice(schema["enum"])
        match schema.get("type"):
            case "object" | None:
                return self._object(schema, depth)
            case "array":
                items = schema.get("items", {})
                return [self._value(items, depth + 1) for _ in range(pick.choice((0, 1, 1, 2)))]
            case "string":
                return self._string(key)
            case "integer":
                return int(pick.choice(_NUMBERS))
            case "number":
                return pick.choice(_NUMBERS)
            case "boolean":
                return pick.random() < 0.5
            case _:
                return None

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        required = set(schema.get("required", ()))
        likely = 0.6 if depth < 3 else 0.2
        return {
            name: self._value(part, depth + 1, name)
            for name, part in schema.get("properties", {}).items()
            if name in required or self._random.random() < likely
        }

    def _string(self, key: str) -> str:
        if key == "audio":
            size = self._random.choice((0, 1, 3, 960, 4800))
            return base64.b64encode(self._random.randbytes(size)).decode()
        if key in ("id", "item_id", "previous_item_id", "response_id") and self.ids:
            return self._random.choice(self.ids + _STRINGS)
        return self._random.choice(_STRINGS)
