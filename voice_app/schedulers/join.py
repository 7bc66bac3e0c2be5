"""Joins the inputs of a turn that come over several edges, in any order, one never waiting for another."""

from collections.abc import Callable
from dataclasses import dataclass, field

from voice_app.messages import Embeddings, PromptIds, TurnId
from voice_app.schedulers.base import PromptInputs, StageInput


@dataclass(slots=True, eq=False)
class InputJoin:
    """What has come for one turn: its prompt's ids, and embeddings by `Media.key`."""

    turn: TurnId
    speech: bool
    prompt: PromptIds | None = None
    media: dict[str, Embeddings] = field(default_factory=dict)
    _releases: list[Callable[[], None]] = field(default_factory=list)

    def add(self, item: StageInput) -> bool:
        """Take one payload; False (and nothing taken) if it is of no kind that is joined. A second
        one of the same content is given back at once."""
        payload = item.payload
        if isinstance(payload, PromptIds):
            taken, self.prompt = self.prompt is None, self.prompt or payload
        elif isinstance(payload, Embeddings):
            taken = self.media.setdefault(payload.media.key, payload) is payload
        else:
            return False
        if taken:
            self._releases.append(item.release)
        else:
            item.release()
        return True

    def inputs(self) -> PromptInputs | None:
        """All of it, once every media span of the prompt is there; else None."""
        if self.prompt is None:
            return None
        wanted = {span.media.key for span in self.prompt.spans if span.media is not None}
        if not wanted <= self.media.keys():
            return None
        return PromptInputs(self.turn, self.prompt, self.media)

    def release(self) -> None:
        """Give every payload's space back."""
        while self._releases:
            self._releases.pop()()
