"""A question as a recogniser wrote it → plain lower-case words with numbers as digits."""

import re

from text_to_num import alpha2digit

_SPACED = re.compile(r"([+*×÷=^%/])")
"""Signs that stand as words of their own. A minus is handled apart: it may be a hyphen."""

_LEAD_IN = re.compile(
    r"^(?:(?:hey|hi|hello|ok|okay|so|and|well|now|um|uh|please|quickly|quick question|one more thing|also"
    r"|then|just|yes|no|sorry|thanks|thank you|great|good|right|alright|assistant|computer"
    r"|(?:can|could|would|will) you(?: please)?|do you know|i want to know|i'd like to know"
    r"|i would like to know|i need to know|tell me|let me know|remind me|say|any idea|maybe you know)\s+)+",
    re.IGNORECASE,
)
_TAIL = re.compile(
    r"(?:\s+(?:please|thanks|thank you|for me|then|exactly|again|right now|now|do you know|can you tell me"
    r"|by the way|at the moment|roughly|approximately))+$",
    re.IGNORECASE,
)
_CONTRACTIONS = {
    "what's": "what is",
    "whats": "what is",
    "what're": "what are",
    "how's": "how is",
    "it's": "it is",
    "that's": "that is",
    "i'm": "i am",
    "who's": "who is",
    "when's": "when is",
    "isn't": "is not",
}


def normalise(question: str) -> str:
    """Lower case, no punctuation but decimal points, contractions opened, number words as digits
    ("twenty-five" → "25", "third" → "3rd"), single spaces."""
    text = question.lower().replace("’", "'").replace("−", "-").replace("–", "-")
    text = re.sub(r"(\d),(?=\d{3}\b)", r"\1", text)
    text = re.sub(r"(\d)\s*-\s*(?=\d)", r"\1 minus ", text)
    text = re.sub(r"\s-\s*(?=\d)", " minus ", " " + text)
    text = re.sub(r"(\d)\s*x\s*(?=\d)", r"\1 × ", text)
    text = _SPACED.sub(r" \1 ", text)
    text = re.sub(r"[?!,;:\"“”()]|\.(?!\d)", " ", text)
    words = " ".join(_CONTRACTIONS.get(word, word) for word in text.split())
    return alpha2digit(words, "en", threshold=0)


def without_lead_in(words: str) -> str:
    """Without what only opens a question politely. Any case, but no punctuation."""
    return _LEAD_IN.sub("", words)


def bare(words: str) -> str:
    """As `without_lead_in`, and without what only closes a question."""
    return _TAIL.sub("", without_lead_in(words)).strip()
