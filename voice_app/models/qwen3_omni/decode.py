"""Decode's runner: token ids to bytes."""

from voice_app.models.qwen3_omni.processors import TextProcessor


class Decode:
    """A `TokenDecoder`."""

    def __init__(self, text: TextProcessor) -> None:
        self._text = text
        self._known: dict[int, bytes] = {}

    def token_bytes(self, token: int) -> bytes:
        if token not in self._known:
            self._known[token] = self._text.token_bytes(token)
        return self._known[token]

    def warm_up(self) -> None:
        """Nothing to run."""
