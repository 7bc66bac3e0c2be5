"""What the talker is told before it speaks: the user's turns and the start of the answer.

Of the prompt only the user's turns are kept, whole segments from `<|im_start|>` to the next. Text is
heard as the thinker's token embeddings, audio and pictures as the thinker's hidden states at their
positions. Then follows the assistant's header with the speaker, nine positions, the last of which
carries the answer's first token. Pure: builds the plan, embeds nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from voice_app.errors import InputError
from voice_app.messages import Span
from voice_app.models.qwen3_omni.facts import Tokens
from voice_app.models.qwen3_omni.positions import Run, rope_positions

HEADER = 3
"""`<|im_start|>`, `assistant`, newline."""
ANSWER_ROWS = 9
"""Header, four pads, the begin mark, the answer's first token."""


@dataclass(frozen=True, slots=True)
class TalkerPlan:
    """The user's part as rows in order, `ids` [n] with 0 where `heard` [n] is not -1: there the row is the
    hidden state at that thinker position. `header`: the assistant's header ids. `ahead`: answer ids that
    the prompt already holds. `positions` [3, n + 9]; `next_position` of the first frame fed back."""

    ids: np.ndarray
    heard: np.ndarray
    header: tuple[int, ...]
    ahead: tuple[int, ...]
    positions: np.ndarray
    next_position: int


def plan_prompt(
    spans: tuple[Span, ...], media: Mapping[str, Run], tokens: Tokens, *, has_picture: bool
) -> TalkerPlan:
    """`media`: the rope run of each `Media.key`. Without a picture in the request all positions are plain."""
    ids, runs, place = _flatten(spans, media)
    users, answer = _segments(ids, tokens)
    keep = np.flatnonzero(users)
    is_media = place[keep] >= 0
    header = tuple(int(i) for i in ids[answer : answer + HEADER])
    kept_runs = _kept(runs, users) if has_picture else [Run(len(keep))]
    positions, after = rope_positions([*kept_runs, Run(ANSWER_ROWS)])
    return TalkerPlan(
        ids=np.where(is_media, 0, ids[keep]),
        heard=np.where(is_media, keep, -1),
        header=header,
        ahead=tuple(int(i) for i in ids[answer + HEADER :]),
        positions=positions,
        next_position=after,
    )


def _flatten(spans: tuple[Span, ...], media: Mapping[str, Run]) -> tuple[np.ndarray, list[Run], np.ndarray]:
    """Ids of all positions (-1 at media), the runs, and which medium each position is of (-1: none)."""
    ids: list[int] = []
    runs: list[Run] = []
    place: list[int] = []
    for number, span in enumerate(spans):
        if span.media is None:
            ids += span.ids
            runs.append(Run(len(span.ids)))
            place += [-1] * len(span.ids)
        else:
            run = media[span.media.key]
            ids += [-1] * run.count
            runs.append(run)
            place += [number] * run.count
    return np.array(ids, np.int64), runs, np.array(place, np.int64)


def _segments(ids: np.ndarray, tokens: Tokens) -> tuple[np.ndarray, int]:
    """Which positions are in a user's segment [n] bool, and where the last assistant's segment begins."""
    starts = np.flatnonzero(ids == tokens.im_start)
    starts = starts[starts + 1 < len(ids)]
    roles = ids[starts + 1]
    answers = starts[roles == tokens.assistant]
    if not len(answers):
        raise InputError(
            "the prompt has no assistant header: the chat template is not Qwen3-Omni's", param="messages"
        )
    # Positions before the first segment belong to it, as in generate().
    owner = np.maximum(np.searchsorted(starts, np.arange(len(ids)), side="right") - 1, 0)
    return (roles == tokens.user)[owner], int(answers[-1])


def _kept(runs: list[Run], users: np.ndarray) -> list[Run]:
    """The runs, cut down to the positions of users' segments."""
    kept: list[Run] = []
    at = 0
    for run in runs:
        inside = int(users[at : at + run.count].sum())
        if run.rows and inside == run.count:
            kept.append(run)
        elif inside:
            kept.append(Run(inside))
        at += run.count
    return kept
