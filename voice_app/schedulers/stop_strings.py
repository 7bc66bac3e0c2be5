"""Ends an answer where one of the request's stop strings begins: nothing of it is shown or spoken.

A token whose text may be the beginning of a stop string is held until the next ones tell. Pure.
"""

from collections.abc import Sequence

from voice_app.schedulers.answer_reader import HeldText, Reading, TokenBytes


class StopStrings:
    """An `AnswerReader`."""

    called = False

    def __init__(self, stops: Sequence[str], token_bytes: TokenBytes) -> None:
        self._stops = [stop.encode() for stop in stops if stop]
        self._held = HeldText(token_bytes)

    def push(self, token: int) -> Reading:
        held = self._held
        held.push(token)
        found = held.first(self._stops)
        if found is not None:
            return held.stopped(found[0])
        return Reading(held.release(len(held.text) - held.beginning(self._stops)))

    def end(self) -> Reading:
        return self._held.stopped(len(self._held.text))
