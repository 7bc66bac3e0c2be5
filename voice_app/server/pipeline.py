"""What the server needs of a pipeline; `voice_app.pipeline.client.PipelineClient` has it."""

from collections.abc import AsyncIterator
from typing import Protocol

from voice_app.messages import TurnEvent, TurnId, TurnRequest
from voice_app.pipeline.client import PipelineStatus


class TurnEvents(Protocol):
    """One turn's events, ending with `TurnDone` or a typed error (`voice_app.errors`)."""

    def __aiter__(self) -> AsyncIterator[TurnEvent]: ...

    async def aclose(self) -> None:
        """Stop the turn, if it has not ended."""
        ...


class Pipeline(Protocol):
    def submit(self, request: TurnRequest) -> TurnEvents:
        """Start a turn. Raises `Overloaded` when no more are taken, `PipelineError` when none can be."""
        ...

    def status(self) -> PipelineStatus:
        """A snapshot."""
        ...

    def cancel(self, turn: TurnId) -> None:
        """Raise the turn's generation: its work stops wherever it is. Never waits."""
        ...
