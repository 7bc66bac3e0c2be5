"""The thinker's prompt: example turns, chat frame, and where media go. Pure functions over a tokenizer.

A prompt is laid out so that what stays the same comes first:

    [system line, example turns][the client's instructions][history … ][question][open answer]

The first part is the same for every talk, the history grows at its end only, so the prefix cache computes
each part once. Every piece of text is encoded by itself: a sentence gets the same ids whether it came as a
transcript (a media span) or as text (the history of the next turn).

In the spans that `ChatFrame.spans` returns, **an empty `Span()` opens and closes the content of each user
turn**, so that the thinker can tell what the user said without knowing the model's chat format.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from voice_app.messages import (
    AudioPart,
    ImagePart,
    Media,
    Message,
    Part,
    Role,
    Span,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from voice_app.models.local.tool_results import spoken_results

MARK = Span()
"""Opens and closes the content of a user turn."""

UNCLEAR = "..."
"""The words of a user who certainly spoke and was not understood."""

_MEDIA_LENGTH = 48

SYSTEM = "You are a friendly voice assistant. You answer in one or two short spoken sentences."

EXAMPLES: tuple[tuple[str, str], ...] = (
    ("Hey, good evening.", "Good evening! What can I do for you?"),
    ("Which city is the capital of Portugal?", "The capital of Portugal is Lisbon."),
    ("Why is the sea salty?", "Rivers wash tiny bits of salt out of the rocks and carry them into the sea."),
    ("[camera: acoustic guitar]\nWhat have I got here?", "You have an acoustic guitar."),
    ("Which bird can't fly?", "The penguin can't fly."),
    ("I'm a bit nervous about my exam.", "Take a slow, deep breath. You have prepared well and can do it."),
    ("Who wrote Oliver Twist?", "Oliver Twist was written by Charles Dickens."),
    ("My cousin plays the violin.", "How lovely! The violin is a beautiful instrument."),
    ("Which instrument does my cousin play?", "Your cousin plays the violin."),
    ("What color is fresh snow?", "Fresh snow is white."),
    ("[camera: bicycle]\nIs that a boat?", "No, that is a bicycle."),
    ("Blorp the wibble fenk.", "Sorry, I didn't understand that. Could you say it again?"),
    ("How do I keep basil fresh?", "Put the stems in a glass of water and keep it out of the cold."),
)
"""How the assistant talks: (user, assistant). Disjoint from every list of questions that measures it."""


class Tokens(Protocol):
    """The little of a tokenizer that the pack needs. It is the decode stage's runner (`TokenDecoder`) too."""

    def encode(self, text: str) -> list[int]:
        """Token ids of `text` alone: nothing added before or after. Special tokens' names in `text` are
        plain text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; special tokens give nothing."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """The UTF-8 bytes that `token` stands for; b"" for a special token."""
        ...

    def warm_up(self) -> None:
        """With `token_bytes`, what makes it the decode stage's `TokenDecoder`."""
        ...


@dataclass(frozen=True, slots=True)
class Turn:
    """One message: pieces of text and media in order."""

    role: Role
    pieces: tuple[str | Media, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """Positions for prompts: `prompt` of a whole one, `history` of the turns after examples and
    instructions."""

    prompt: int
    history: int

    def for_turns(self, opening: int) -> int:
        """Positions of the turns after an `opening`; ≤ 0: there is no room. A quarter of what the opening
        leaves stays free, for media that turn out longer than `expected_length` guesses."""
        return min(self.history, (self.prompt - opening) * 3 // 4)


class ChatFrame(Protocol):
    """A model's chat format around the pack's example turns."""

    def spans(self, turns: Sequence[Turn]) -> tuple[Span, ...]:
        """The prompt that asks for an answer to the last turn. The oldest turns are left out where all of
        them would not fit."""
        ...


def open_results(messages: Sequence[Message]) -> tuple[str, ...]:
    """What functions gave since anybody spoke; () unless nothing followed."""
    found: list[str] = []
    for message in messages:
        results = [part.output for part in message.parts if isinstance(part, ToolResultPart)]
        said = any(not isinstance(part, ToolResultPart | ToolCallPart) for part in message.parts)
        found = [] if said else found + results
    return tuple(found)


def orders_asked(messages: Sequence[Message]) -> Sequence[Message]:
    """The talk with what the client ordered as "system" since the last answer ("Greet the user.") in the
    place of a user who has said nothing: a small model answers what it is asked, and nothing else."""
    last = messages[-1]
    if any(not isinstance(part, ImagePart) and part != TextPart("") for part in last.parts):
        return messages
    for place in range(len(messages) - 2, -1, -1):
        match messages[place]:
            case Message("assistant"):
                break
            case Message("system", order):
                pictures = tuple(part for part in last.parts if isinstance(part, ImagePart))
                rest = [*messages[:place], *messages[place + 1 : -1]]
                return [*rest, Message("user", (*pictures, *order))]
    return messages


def in_words(messages: Sequence[Message]) -> list[Message]:
    """The talk as it was heard: without calls, and without results that an answer in words followed. Results
    after which the user went on without one are said in the assistant's place."""
    talk: list[Message] = []
    results: list[str] = []
    for message in messages:
        results += [part.output for part in message.parts if isinstance(part, ToolResultPart)]
        words = tuple(p for p in message.parts if not isinstance(p, ToolCallPart | ToolResultPart))
        if not words:
            continue
        if results and message.role == "user":
            talk.append(Message("assistant", (TextPart(spoken_results(results)),)))
        results.clear()
        talk.append(Message(message.role, words))
    return talk


def turn_of(message: Message, media: Callable[[AudioPart | ImagePart], Media]) -> Turn:
    """`message` as a turn. `media` names the place of each part that an encoder has to fill; a part of
    speech whose words are known is text."""
    return Turn(message.role, tuple(_piece(part, media) for part in message.parts))


def _piece(part: Part, media: Callable[[AudioPart | ImagePart], Media]) -> str | Media:
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, AudioPart):
        return media(part) if part.transcript is None else part.transcript
    if isinstance(part, ImagePart):
        return media(part)
    raise TypeError(f"{type(part).__name__} is no words; see in_words")


def camera_text(label: str, read: str = "") -> str:
    """What stands in the prompt for a camera frame: its `label` and the text `read` in it, either of which
    may be empty. An image encoder embeds exactly this."""
    seen = "; ".join(([label] if label else []) + ([f"text: {read}"] if read else []))
    return f"[camera: {seen}]\n" if seen else ""


def join(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Neighbouring text spans made one; marks and media stay."""
    joined: list[Span] = []
    for span in spans:
        if span.ids and joined and joined[-1].ids:
            joined[-1] = Span(ids=joined[-1].ids + span.ids)
        else:
            joined.append(span)
    return tuple(joined)


def in_parts(spans: tuple[Span, ...]) -> list[tuple[Span, ...]]:
    """A prompt as it is sent. Where the last question has media, which are to be waited for, all that stands
    before the question comes first, by itself.

    No word of a question is in a part before its own: how likely each is can only be told with the question.
    A medium that both parts would have keeps them together, so that each is sent once."""
    marks = [place for place, span in enumerate(spans) if span == MARK]
    if len(marks) < 2:
        return [spans]
    before, question = spans[: marks[-2]], spans[marks[-2] :]
    awaited = _media(question)
    return [before, question] if awaited and awaited.isdisjoint(_media(before)) else [spans]


def _media(spans: Iterable[Span]) -> set[Media]:
    return {span.media for span in spans if span.media}


class ChatMlFrame:
    """The frame of the packaged brain: `<|im_start|>role`, newline, content, `<|im_end|>`, newline."""

    def __init__(self, tokens: Tokens, start: int, end: int, room: Room) -> None:
        """`start` and `end` are the ids of the two special tokens."""
        self._tokens = tokens
        self._newline = tuple(tokens.encode("\n"))
        self._open = {role: (start, *tokens.encode(role + "\n")) for role in ("system", "user", "assistant")}
        self._close = (end, *self._newline)
        self._room = room
        self._prefix = self._examples()

    def spans(self, turns: Sequence[Turn]) -> tuple[Span, ...]:
        instructions = [self._turn(turn) for turn in turns if turn.role == "system"]
        talk = [self._turn(turn) for turn in turns if turn.role != "system"]
        opening = [Span(ids=self._prefix), *chain(*instructions)]
        answer = Span(ids=self._open["assistant"])
        budget = self._room.for_turns(expected_length([*opening, answer]))
        kept = talk[first_kept([expected_length(turn) for turn in talk], budget) :]
        return join([*opening, *chain(*kept), answer])

    def _examples(self) -> tuple[int, ...]:
        ids = self._text("system", SYSTEM)
        for user, assistant in EXAMPLES:
            ids += self._text("user", user) + self._text("assistant", assistant)
        return ids

    def _text(self, role: Role, text: str) -> tuple[int, ...]:
        return (*self._open[role], *self._tokens.encode(text), *self._close)

    def _turn(self, turn: Turn) -> list[Span]:
        content = content_spans(turn, self._tokens)
        if turn.role == "user":
            content = [MARK, *content, MARK]
        return [Span(ids=self._open[turn.role]), *content, Span(ids=self._close)]


def content_spans(turn: Turn, tokens: Tokens) -> list[Span]:
    """The pieces of `turn` as spans. A newline stands after a text or speech piece that is not the last;
    a picture's own text brings it (`camera_text`)."""
    spans: list[Span] = []
    for place, piece in enumerate(turn.pieces):
        if isinstance(piece, Media):
            spans.append(Span(media=piece))
        elif piece.strip():
            spans.append(Span(ids=tuple(tokens.encode(piece.strip()))))
        is_picture = isinstance(piece, Media) and piece.kind == "image"
        if place < len(turn.pieces) - 1 and not is_picture:
            spans.append(Span(ids=tuple(tokens.encode("\n"))))
    return spans


def expected_length(spans: Iterable[Span]) -> int:
    """Positions of `spans`; a guess for media, whose length is not known yet."""
    return sum(_MEDIA_LENGTH if span.media else len(span.ids) for span in spans)


def first_kept(lengths: Sequence[int], budget: int) -> int:
    """The first of a talk's turns, of these `lengths`, to keep so that the rest fits into `budget`; at least
    the last one is kept. Dropping goes in steps of half the budget: in a long talk the kept part starts at
    the same turn for many turns, and its KV can be used again."""
    step = max(1, budget // 2)
    goal = -(-(sum(lengths) - budget) // step) * step
    first = dropped = 0
    while dropped < goal and first < len(lengths) - 1:
        dropped += lengths[first]
        first += 1
    return first
