"""The function call that a request demands, made by rule: a small model makes none that can be relied on."""

import json
from collections.abc import Sequence

from voice_app.messages import ToolCall, ToolSpec
from voice_app.models.functions.question import normalise
from voice_app.models.local.command import name_words, stems
from voice_app.models.local.tool_arguments import arguments

_MEANT = {
    **dict.fromkeys(
        ["rain", "raining", "snow", "snowing", "sunny", "windy", "forecast", "umbrella"], "weather"
    ),
    **dict.fromkeys(["song", "songs", "hear", "listen"], "music"),
    **dict.fromkeys(["tell", "text", "write"], "message"),
    **dict.fromkeys(["phone", "ring", "dial"], "call"),
    **dict.fromkeys(["lamp", "lamps", "bulb"], "light"),
}
"""What is often said, and how functions are named."""


def demanded_call(question: str, tools: Sequence[ToolSpec], choice: str) -> ToolCall | None:
    """The call of one of `tools` that `question` asks for; None where `choice` demands none ("auto",
    "none"), or a function that is not there.

    `choice` names the function, or is "required": then it is the one whose name and description share most
    words with the question (what it begins with counts twice), the first of those that share as many."""
    wanted = [tool for tool in tools if choice in ("required", tool.name)]
    if not wanted or choice in ("auto", "none"):
        return None
    words = normalise(question).split()
    asked = stems([*words, *(_MEANT[word] for word in words if word in _MEANT)])
    begins = next((stem for word in words for stem in stems([word])), "")

    def shared(tool: ToolSpec) -> int:
        return sum(len(asked & words) + (begins in words) for words in _words(tool))

    tool = max(wanted, key=shared)
    name, description = _words(tool)
    given = arguments(question, json.loads(tool.parameters), name | description)
    return ToolCall(tool.name, json.dumps(given, ensure_ascii=False))


def _words(tool: ToolSpec) -> tuple[frozenset[str], frozenset[str]]:
    """Of its name, and of its description."""
    return stems(name_words(tool.name)), stems(name_words(tool.description))
