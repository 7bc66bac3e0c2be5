"""The join of a turn's inputs never starves their sender: it holds less than the sender's credit."""

from collections.abc import Callable

import numpy as np
import pytest

from voice_app.messages import Embeddings, Media, PromptIds, PromptParams, Span, Stage, TurnId
from voice_app.pipeline.credits import Window, window_limit
from voice_app.schedulers.base import StageInput
from voice_app.schedulers.join import InputJoin

TURN = TurnId("s", "t")


class Sender:
    """Of a turn's embeddings, with the credit of the edge that they come over."""

    def __init__(self, source: Stage) -> None:
        self.window = Window(window_limit(source, Stage.THINKER))
        self.released = 0

    def payload(self, number: int, key: str) -> StageInput:
        """Sent at once, or the test fails: its space comes back when the receiver releases it."""
        assert self.window.credit > 0, f"after {number} payloads the sender waits, and so does the join"
        self.window.take(0.0)
        rows = np.full((2, 4), number, np.float32)
        return StageInput(
            TURN, Embeddings(Media(key, "audio"), rows), speech=True, release=self._back(number, rows)
        )

    def _back(self, number: int, rows: np.ndarray) -> Callable[[], None]:
        def release() -> None:
            assert self.window.give_back(number), "once"
            self.released += 1
            rows[:] = -1.0  # The sender writes something else there.

        return release


@pytest.mark.parametrize("source", [Stage.IMAGE_ENCODER, Stage.AUDIO_ENCODER])
@pytest.mark.parametrize("prompt_first", [True, False])
def test_a_prompt_may_want_more_media_than_a_sender_has_credit(source: Stage, prompt_first: bool) -> None:
    sender = Sender(source)
    count = 3 * window_limit(source, Stage.THINKER)
    join = InputJoin(TURN, speech=True)
    prompt = PromptIds(
        tuple(Span(media=Media(f"m{number}", "audio")) for number in range(count)), PromptParams()
    )
    if prompt_first:
        join.add(StageInput(TURN, prompt, speech=True))
    for number in range(count):
        join.add(sender.payload(number, f"m{number}"))
    if not prompt_first:
        join.add(StageInput(TURN, prompt, speech=True))
    inputs = join.take(whole=True)
    assert inputs is not None
    assert [inputs.media[f"m{n}"].rows[0, 0] for n in range(count)] == list(range(count)), "all as sent"
    join.release_taken()
    assert sender.released == count
