"""Questions about what the camera sees that need no model: what is written there, and when nothing is seen.

`seen` is what stands in the prompt for the camera: "street sign; text: STOP", "coffee mug" or ""."""

import re

_READ = re.compile(
    r"(?:what|can|could|read|tell|does|which).*\b(?:sign|text|letters?|words?|label|page|paper|screen|note|board|it"
    r"|this|that|here|there|poster|book|title)\b.*\b(?:says?|written|read|said)\b.*"
    # A recogniser easily loses the "can" of "can you read …".
    r"|(?:please |you )*read (?:this|that|it|the .+|out .+)(?: for me| to me| out| aloud)*"
    r"|what is (?:written|printed)\b.*"
    r"|what (?:does it|does this|does that|do you) (?:say|read)(?: here| there)?"
    r"|what (?:text|words?|letters?)\b.*(?:see|there|here)"
)
_PLACE = r"(?:my|the|your|this) (?:hand|camera|picture|photo|image|table|desk)"
_LOOK = re.compile(
    r"what (?:(?:can|do) )?you see(?: now| here| there)?"
    rf"(?: (?:in|on|through|in front of) (?:you|me|{_PLACE}))?(?: now)?"
    r"|what am i (?:holding|showing)\b.*"
    r"|what is this(?: here)?"
    r"|what is (?:in|on) (?:my|the) (?:hand|camera|picture|photo|image|table|desk)|what do i have in my hand"
    r"|(?:look at this|can you see (?:this|me|it|that|what i am holding)).*"
)


def spoken_sight(question: str, seen: str) -> str | None:
    """The sentence that answers a normalised question about the picture; None if it is for the model."""
    label, marked, text = seen.partition("text: ")
    label = label.rstrip("; ")
    if _READ.fullmatch(question):
        if marked:
            return f"It says {text.strip()}."
        return "I can't read any text there." if seen else None
    if _LOOK.fullmatch(question):
        if label:
            return f"It looks like {_with_article(label)}."
        return f"I can read {text.strip()}." if marked else "I can't make anything out right now."
    return None


def _with_article(thing: str) -> str:
    if thing.endswith("s") and not thing.endswith("ss"):
        return thing
    return f"{'an' if thing[0].lower() in 'aeiou' else 'a'} {thing}"
