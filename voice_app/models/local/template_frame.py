"""The example turns and the talk in the chat template that a model brings."""

import re
from collections.abc import Callable, Sequence

from jinja2 import TemplateError

from voice_app.errors import ConfigError
from voice_app.messages import Role, Span
from voice_app.models.local.prompt import (
    EXAMPLES,
    MARK,
    SYSTEM,
    Room,
    Tokens,
    Turn,
    content_spans,
    expected_length,
    first_kept,
    join,
)

Render = Callable[[list[dict[str, str]]], str]
"""Messages of role and content → the prompt's text, open for the assistant's answer."""

_PLACE = re.compile("\ue000(\\d+)\ue001")
"""Where a turn's content goes. Private-use characters: no template has them; users' text is not rendered."""


class TemplateFrame:
    """A `ChatFrame`. Turns of one role that follow each other become one, and instructions join the system
    message: many templates insist on both."""

    def __init__(
        self, render: Render, tokens: Tokens, frame_ids: Callable[[str], list[int]], room: Room
    ) -> None:
        """`frame_ids` encodes the template's own text, in which control tokens are meant as such. Raises
        ConfigError if the template does not take a talk."""
        self._render = render
        self._tokens = tokens
        self._frame_ids = frame_ids
        self._room = room
        self._system = self._takes_system()

    def spans(self, turns: Sequence[Turn]) -> tuple[Span, ...]:
        talk = _alternating([turn for turn in turns if turn.role != "system"])
        opening = self._opening([turn for turn in turns if turn.role == "system"])
        fixed = expected_length(self._filled(opening))
        # What the template puts around one turn.
        around = -(-(fixed - sum(map(self._length, opening))) // len(opening))
        lengths = [self._length(turn) + around for turn in talk]
        kept = talk[first_kept(lengths, self._room.for_turns(fixed)) :]
        return join(self._filled([*opening, *_following(kept)]))

    def _length(self, turn: Turn) -> int:
        return expected_length(content_spans(turn, self._tokens))

    def _opening(self, instructions: Sequence[Turn]) -> list[Turn]:
        """The system message and the examples."""
        pieces = (SYSTEM, *(piece for turn in instructions for piece in turn.pieces))
        examples: list[Turn] = []
        for user, assistant in EXAMPLES:
            examples += [Turn("user", (user,)), Turn("assistant", (assistant,))]
        if self._system:
            return [Turn("system", pieces), *examples]
        return [Turn("user", (*pieces, *examples[0].pieces)), *examples[1:]]

    def _filled(self, turns: Sequence[Turn]) -> list[Span]:
        text = self._render([_placed(turn.role, place) for place, turn in enumerate(turns)])
        spans: list[Span] = []
        pieces = _PLACE.split(text)
        for frame, place in zip(pieces[::2], [*pieces[1::2], None], strict=True):
            if frame:
                spans.append(Span(ids=tuple(self._frame_ids(frame))))
            if place is not None:
                turn = turns[int(place)]
                mark = [MARK] if turn.role == "user" else []
                spans += [*mark, *content_spans(turn, self._tokens), *mark]
        return spans

    def _takes_system(self) -> bool:
        talk: list[Role] = ["user", "assistant", "user"]
        try:
            self._render([_placed(role, place) for place, role in enumerate(talk)])
        except TemplateError as error:
            raise ConfigError(f"--brain: its chat template takes no talk: {error}", param="brain") from error
        try:
            text = self._render([_placed(role, place) for place, role in enumerate(["system", *talk])])
        except TemplateError:
            return False
        return _PLACE.search(text) is not None and "\ue0000\ue001" in text


def _placed(role: str, place: int) -> dict[str, str]:
    return {"role": role, "content": f"\ue000{place}\ue001"}


def _alternating(turns: Sequence[Turn]) -> list[Turn]:
    merged: list[Turn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role:
            merged[-1] = Turn(turn.role, merged[-1].pieces + turn.pieces)
        else:
            merged.append(turn)
    return merged


def _following(talk: Sequence[Turn]) -> Sequence[Turn]:
    """`talk` after the examples, whose last turn is the assistant's."""
    return talk[1:] if talk and talk[0].role == "assistant" else talk
