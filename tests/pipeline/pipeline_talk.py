"""Helpers of the pipeline tests: configurations of the toy pack, requests, and what comes back."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import numpy as np
from pipeline_toys import SAMPLES_PER_FRAME

from voice_app import messages as m
from voice_app.config import PackConfig, PipelineConfig


def config(layout: str = "cpu", *, model: str | None = None, **fields) -> PipelineConfig:
    """The toy pack in `layout`."""
    pack = PackConfig(pack="pipeline_toys:create", model=model)
    return PipelineConfig(
        pack=pack, layout=layout, **{"start_timeout_s": 60.0, "turn_timeout_s": 60.0} | fields
    )


def request(
    text: str, *more: m.Part, turn: str = "1", session: str = "s", generation: int = 0, speech: bool = True
) -> m.TurnRequest:
    parts: tuple[m.Part, ...] = (*((m.TextPart(text),) if text else ()), *more)
    identity = m.TurnId(session, turn, generation)
    return m.TurnRequest(identity, (m.Message("user", parts),), speech=speech)


@dataclass
class Answer:
    """A turn's events, put together."""

    text: str = ""
    samples: list[np.ndarray] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    done: m.TurnDone | None = None

    @property
    def voice(self) -> str:
        """The text that the toy's sound spells."""
        sound = np.concatenate([np.empty(0, np.float32), *self.samples])
        assert len(sound) % SAMPLES_PER_FRAME == 0
        return bytes((sound[::SAMPLES_PER_FRAME] * 256).astype(np.uint8)).decode()


async def read(stream: AsyncIterator[m.TurnEvent]) -> Answer:
    """The whole turn. Checks that chunks follow on each other."""
    answer = Answer()
    position = 0
    async for event in stream:
        assert answer.done is None, "an event after TurnDone"
        answer.kinds.append(type(event).__name__)
        match event:
            case m.TextDelta():
                answer.text += event.text
            case m.AudioChunk():
                assert event.start == position
                position += len(event.samples)
                answer.samples.append(event.samples)
            case m.AudioDone():
                assert event.samples == position
            case m.TurnDone():
                answer.done = event
            case _:
                pass
    return answer
