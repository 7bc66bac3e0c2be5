"""The runners that hear a question, which compute nothing, as those in `runners`."""

from collections.abc import Sequence

import numpy as np

from load.simulation.costs import Costs
from load.simulation.runners import Lookup, Silent
from load.simulation.shapes import Hearing, Pack
from voice_app import messages as m
from voice_app.messages import TurnId
from voice_app.schedulers.base import StageInput

_NOTHING = np.zeros((1, 1), np.float32)


class _Listening(Silent):
    """What the stages that hear a question know of it from work on it that was begun in vain; only the local
    pack's do."""

    def __init__(self, pack: Pack, costs: Costs, asked: Lookup) -> None:
        super().__init__(pack, costs, asked)
        self._latest: dict[str, tuple[str, float]] = {}
        """The last question of each session, and the share of it that was heard."""

    def known(self, turn: TurnId) -> float:
        """The share of the question that was heard before."""
        question, share = self._latest.get(turn.session, ("", 0.0))
        return share if question == turn.turn and not self.pack.codes else 0.0

    def heard(self, turn: TurnId) -> None:
        """What there is of this turn's question is known from now on."""
        self._latest[turn.session] = turn.turn, self.asked(turn).share


class Preprocessing(_Listening):
    """A `OnePassRunner`. The local pack's looks at what is new of a question."""

    def run(self, batch: Sequence[StageInput]) -> list[list[m.EdgePayload | m.StageEvent]]:
        all_of = [self.asked(item.turn) for item in batch]
        new = [max(0.0, a.share - self.known(item.turn)) for item, a in zip(batch, all_of, strict=True)]
        for item in batch:
            self.heard(item.turn)
        seconds = sum(share * a.shape.speech_s for share, a in zip(new, all_of, strict=True))
        self.meter.seconds += self.costs.preprocessing(len(batch), seconds)
        return [
            self._made(item.turn, a.share * a.shape.speech_s) for item, a in zip(batch, all_of, strict=True)
        ]

    def _made(self, turn: TurnId, seconds: float) -> list[m.EdgePayload | m.StageEvent]:
        media = m.Media(f"{turn.session}/{turn.turn}", "audio")
        spans = (m.Span(ids=(0,)), m.Span(media=media))
        return [m.PromptIds(spans, m.PromptParams()), m.MelFrames(media, _NOTHING, seconds)]


class AudioEncoder(Silent):
    """A `OnePassRunner` that encodes all recordings in one call."""

    def run(self, batch: Sequence[StageInput]) -> list[list[m.EdgePayload | m.StageEvent]]:
        seconds = sum(_mel(item).seconds for item in batch)
        self.meter.seconds += self.costs.audio_encoder(Hearing(encodes=len(batch), encoded_s=seconds))
        return [_words(item) for item in batch]


class Recogniser(_Listening):
    """A `OnePassRunner` that makes one step of one recording in a call, as the local pack's does: the first
    come is heard first, and the words that it found before are its draft. Where its steps are not known it is
    heard in one."""

    def __init__(self, pack: Pack, costs: Costs, asked: Lookup) -> None:
        super().__init__(pack, costs, asked)
        self._left: dict[TurnId, list[Hearing]] = {}
        """The steps to come, in the order in which the recordings came; those of turns that are over stay."""

    def run(self, batch: Sequence[StageInput]) -> list[list[m.EdgePayload | m.StageEvent] | None]:
        for item in batch:
            if item.turn not in self._left:
                self._left[item.turn] = self._steps(item)
        here = {item.turn for item in batch}
        first = next(turn for turn in self._left if turn in here)
        self.meter.seconds += self.costs.audio_encoder(self._left[first].pop(0))
        done = not self._left[first]
        if done:
            del self._left[first]
            self.heard(first)
        return [_words(item) if done and item.turn == first else None for item in batch]

    def _steps(self, item: StageInput) -> list[Hearing]:
        asked, seconds = self.asked(item.turn), _mel(item).seconds
        known = self.known(item.turn)
        steps = asked.shape.hears or [Hearing(1, seconds, 1, seconds, asked.shape.heard)]
        unsaid_s = (1 - asked.share) * asked.shape.speech_s if asked.shape.hears else 0.0
        return [_part(step, unsaid_s, asked.share, known) for step in steps]


def _part(whole: Hearing, unsaid_s: float, share: float, known: float) -> Hearing:
    """The step where so much of the question is still to be said, and the words of a share are `known`."""
    return Hearing(
        whole.encodes,
        max(0.0, whole.encoded_s - whole.encodes * unsaid_s),
        whole.writes,
        max(0.0, whole.written_s - whole.writes * unsaid_s),
        # The token that ends the text is never a draft's.
        max(whole.writes, whole.passes * max(0.0, share - known)),
    )


def _mel(item: StageInput) -> m.MelFrames:
    assert isinstance(item.payload, m.MelFrames)
    return item.payload


def _words(item: StageInput) -> list[m.EdgePayload | m.StageEvent]:
    return [m.Embeddings(_mel(item).media, _NOTHING), m.Transcript("")]
