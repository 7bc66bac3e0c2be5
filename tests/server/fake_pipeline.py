"""A pipeline whose answers and timing a test decides."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from voice_app import messages as m
from voice_app.errors import Overloaded, VoiceAppError
from voice_app.pipeline.client import PipelineStatus, WorkerState, WorkerStatus

RATE = 22_050


def tone(seconds: float, rate: int = RATE) -> np.ndarray:
    """A voice that is no voice: [n] float32."""
    return (0.3 * np.sin(2 * np.pi * 330 * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


def spoken(
    text: str, seconds_per_word: float = 0.3, heard: str | None = "hello", rate: int = RATE
) -> list[m.TurnEvent]:
    """A reply word by word, each word with its sound and its mark."""
    events: list[m.TurnEvent] = [] if heard is None else [m.Transcript(heard)]
    chars = sample = 0
    for word in text.split(" "):
        piece = word if not chars else f" {word}"
        chars += len(piece)
        events.append(m.TextDelta(piece, (1,)))
        samples = tone(seconds_per_word, rate)
        events.append(m.AudioChunk(samples, rate, sample, (m.TextMark(chars, sample + len(samples)),)))
        sample += len(samples)
    usage = m.Usage(prompt_tokens=12, cached_tokens=4, output_tokens=len(text.split()))
    return [*events, m.TextDone("stop", usage), m.AudioDone(sample), m.TurnDone({})]


def written(text: str, heard: str | None = None) -> list[m.TurnEvent]:
    """A reply in text only."""
    deltas = [m.TextDelta(word if not i else f" {word}", (1,)) for i, word in enumerate(text.split(" "))]
    head: list[m.TurnEvent] = [] if heard is None else [m.Transcript(heard)]
    return [*head, *deltas, m.TextDone("stop", m.Usage(5, 0, len(deltas))), m.TurnDone({})]


def answer(request: m.TurnRequest) -> list[m.TurnEvent]:
    """A reply of four words, spoken or written as it is asked for; of sound, "hello" was heard."""
    heard = "hello" if isinstance(request.messages[-1].parts[-1], m.AudioPart) else None
    reply = spoken if request.speech else written
    return reply("It is fine today.", heard=heard)


@dataclass
class FakeTurn:
    """Yields what the script says; `gate` lets a test decide when each event comes."""

    request: m.TurnRequest
    script: list[m.TurnEvent | VoiceAppError]
    gate: asyncio.Semaphore | None = None
    taken: int = 0
    closed: bool = False
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    async def _events(self) -> AsyncIterator[m.TurnEvent]:
        for event in self.script:
            if self.gate is not None:
                gate = asyncio.create_task(self.gate.acquire())
                stop = asyncio.create_task(self.cancelled.wait())
                _, rest = await asyncio.wait((gate, stop), return_when=asyncio.FIRST_COMPLETED)
                for task in rest:
                    task.cancel()
            if self.cancelled.is_set():
                return
            await asyncio.sleep(0)
            self.taken += 1
            if isinstance(event, VoiceAppError):
                raise event
            yield event

    def __aiter__(self) -> AsyncIterator[m.TurnEvent]:
        return self._events()

    async def aclose(self) -> None:
        self.closed = True


Answer = Callable[[m.TurnRequest], Iterable[m.TurnEvent | VoiceAppError]]


class FakePipeline:
    """`answer` scripts each request; every request and cancellation is kept, in order."""

    def __init__(self, answer: Answer, *, most: int = 100) -> None:
        self.answer = answer
        self.most = most
        self.gated = False
        self.turns: list[FakeTurn] = []
        self.cancelled: list[m.TurnId] = []
        self.ready = True
        self.trouble: str | None = None

    def submit(self, request: m.TurnRequest) -> FakeTurn:
        if len(self.turns) >= self.most:
            raise Overloaded("the pipeline is full: try again later")
        gate = asyncio.Semaphore(0) if self.gated else None
        turn = FakeTurn(request, list(self.answer(request)), gate)
        self.turns.append(turn)
        return turn

    def cancel(self, turn: m.TurnId) -> None:
        self.cancelled.append(turn)
        for made in self.turns:
            if made.request.turn == turn:
                made.cancelled.set()

    def status(self) -> PipelineStatus:
        state = WorkerState.READY if self.ready else WorkerState.STARTING
        workers = {
            "text": WorkerStatus(
                state=state, pid=1, restarts=0, stages=tuple(m.Stage)[:5], trouble=self.trouble
            ),
            "voice": WorkerStatus(state=state, pid=2, restarts=0, stages=tuple(m.Stage)[5:]),
        }
        return PipelineStatus(self.ready, len(self.turns), workers, {})
