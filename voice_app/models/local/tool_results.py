"""What functions gave back, as sentences to say. Pure."""

import json
import re
from collections.abc import Mapping, Sequence

from voice_app.models.local.command import name_words

_LONGEST = 300
"""Characters: what is longer tires a listener."""
_DEEPEST = 4
_MOST = 5
"""Things of one kind that are told."""
_DONE = "Done."
_DONE_WORDS = frozenset(
    (
        "ok", "okay", "done", "success", "succeeded", "successful", "completed", "true", "sent", "saved",
        "started",
    )
)  # fmt: skip
_STATES = frozenset(["status", "result", "success", "ok", "done", "completed"])
_UNITS = frozenset(["unit", "units", "currency"])
_ERRORS = frozenset(["error", "error_message", "errormessage"])


def spoken_results(outputs: Sequence[str]) -> str:
    """One or a few sentences for the `outputs` of functions, JSON or text each: {"temperature": 21} → "The
    temperature is 21."."""
    sentences = dict.fromkeys(_sentence(output.strip()) for output in outputs)
    return _short(" ".join(sentences)) or _DONE


def _sentence(output: str) -> str:
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):
        return _sentence_of_text(output)
    value = _shallow(value)
    match value:
        case None | True:
            return _DONE
        case False:
            return "That didn't work."
        case str():
            return _sentence_of_text(value)
        case dict() | list() if not value:
            return _DONE
        case dict():
            return _told(value)
        case list():
            return _as_sentence(f"I found {_listed(value)}")
        case _:
            return f"The answer is {value}."


def _sentence_of_text(text: str) -> str:
    return _DONE if text.lower().rstrip(".!") in _DONE_WORDS else _as_sentence(text)


def _shallow(value: object, depth: int = 0) -> object:
    """Without what is nested too deep to be said."""
    match value:
        case dict():
            return (
                {} if depth == _DEEPEST else {key: _shallow(part, depth + 1) for key, part in value.items()}
            )
        case list():
            kept = [] if depth == _DEEPEST else [_shallow(part, depth + 1) for part in value]
            return [part for part in kept if part is not None and part not in ("", [], {})]
        case _:
            return value


def _told(value: Mapping[str, object]) -> str:
    for name, said in value.items():
        if name.lower() in _ERRORS and said:
            return _as_sentence(f"That didn't work: {_plain(said)}")
    unit = next((_plain(said) for name, said in value.items() if name.lower() in _UNITS), "")
    facts = [
        fact
        for name, said in value.items()
        if name.lower() not in _UNITS and (fact := _fact(name, said, unit))
    ]
    if facts:
        return _as_sentence(_joined(facts[:_MOST]))
    states = [said for name, said in value.items() if name.lower() in _STATES]
    return "That didn't work." if False in states else _DONE


def _fact(name: str, value: object, unit: str) -> str:
    """ "" for what need not be said."""
    words = " ".join(name_words(name))
    match value:
        case None:
            return ""
        case str() | dict() | list() if not value:
            return ""
        case bool():
            if words in _STATES:
                return ""
            state = re.sub(r"^(?:is|has) ", "", words)
            return f"it is {'' if value else 'not '}{state}"
        case str() if words in _STATES and value.lower() in _DONE_WORDS:
            return ""
        case str() if words in ("result", "answer", "message", "summary", "text", "output", "description"):
            return value.strip().rstrip(".")
        case dict():
            return _told(value).rstrip(".")
        case list():
            be = "are" if len(value) > 1 and words.endswith("s") else "is"
            return f"the {words} {be} {_listed(value)}"
        case int() | float():
            return f"the {words} is {_plain(value)}{' ' + unit if unit else ''}"
        case _:
            return f"the {words} is {_plain(value)}"


def _listed(values: Sequence[object]) -> str:
    named = [_named(value) for value in values[:_MOST]]
    more = len(values) - len(named)
    return _joined([*named, f"{more} more"] if more else named)


def _named(value: object) -> str:
    """One of a list: a thing of several members goes by its name."""
    if not isinstance(value, dict):
        return _plain(value)
    for key in ("name", "title", "label", "text"):
        if isinstance(value.get(key), str):
            return value[key]
    return _told(value).rstrip(".")


def _plain(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return re.sub(r"\s+", " ", value.replace("_", " ")).strip()
        case dict():
            return _told(value).rstrip(".")
        case list():
            return _listed(value)
        case _:
            return str(value)


def _joined(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _as_sentence(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    if not text:
        return _DONE
    text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?" else text + "."


def _short(text: str) -> str:
    """The first sentences, else the first words."""
    if len(text) <= _LONGEST:
        return text
    cut = text[:_LONGEST]
    end = max(cut.rfind(mark) for mark in (". ", "! ", "? "))
    return cut[: end + 1] if end > 0 else (cut.rpartition(" ")[0] or cut).rstrip(",;:") + "."
