"""Several people talking at once, paced as people are: ask, listen to the whole answer, think, ask.

Each listener keeps a playback clock: sound starts to play when its first chunk arrives and runs at its
sample rate; a chunk that arrives after the clock has run out of sound is a gap. No recording is heard twice:
each gets its own faint noise, so that nothing is answered from what was recognised before, and each talk
carries its history.
"""

import asyncio
import random
import time
from dataclasses import dataclass, field

import numpy as np

from voice_app.bench import questions, report
from voice_app.messages import (
    AudioChunk,
    AudioPart,
    Message,
    Part,
    TextDelta,
    TextPart,
    Transcript,
    TurnId,
    TurnRequest,
)
from voice_app.pipeline.client import PipelineClient

TURNS_A_TALK = 4
THINKING_SECONDS = (0.3, 1.2)
HEADER = ("people", "turns", "first audio p50", "p95", "turns with a gap", "longest gap", "without sound")
NOISE = 0.001
"""Standard deviation of the noise added to a recording: 60 dB below full scale, some 40 below speech."""
GAP_MS = 5.0
"""Shorter than this is within the jitter of a sound card's own buffer."""


@dataclass(slots=True)
class Turn:
    """One answered turn. Times in milliseconds; `gap_ms`: the longest the listener ran dry."""

    first_audio_ms: float = float("nan")
    gap_ms: float = 0.0
    audio_ms: float = 0.0
    transcript: str = ""
    text: str = ""


@dataclass(slots=True)
class Crowd:
    """What `people` talks at once met."""

    people: int
    turns: list[Turn] = field(default_factory=list)

    @property
    def gaps(self) -> int:
        """Turns in which the listener ran dry."""
        return sum(turn.gap_ms > GAP_MS for turn in self.turns)

    @property
    def silent(self) -> int:
        """Turns that were answered without a sound."""
        return sum(turn.audio_ms == 0 for turn in self.turns)

    @property
    def smooth(self) -> bool:
        """Every turn was heard, without a gap."""
        return not self.gaps and not self.silent

    def row(self) -> tuple[object, ...]:
        """A row under `HEADER`."""
        firsts = [turn.first_audio_ms for turn in self.turns if turn.audio_ms]
        longest = max(turn.gap_ms for turn in self.turns)
        return (
            self.people,
            len(self.turns),
            *(f"{report.percentile(firsts, percent):.0f} ms" for percent in (50, 95)),
            self.gaps,
            f"{longest:.0f} ms",
            self.silent,
        )

    def as_json(self) -> dict[str, object]:
        return {
            "people": self.people,
            "first_audio_ms": [turn.first_audio_ms for turn in self.turns],
            "gap_ms": [turn.gap_ms for turn in self.turns],
            "audio_ms": [turn.audio_ms for turn in self.turns],
        }


class Listener:
    """The playback clock of one answer. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self.gap = 0.0
        self.dry_at: float | None = None

    def hear(self, now: float, seconds: float) -> None:
        """A chunk of `seconds` arrived at `now`."""
        if self.dry_at is not None and now > self.dry_at:
            self.gap = max(self.gap, now - self.dry_at)
        self.dry_at = max(now, self.dry_at or now) + seconds


async def run(client: PipelineClient, people: int, again: int = 0) -> Crowd:
    """`people` talks of `TURNS_A_TALK` turns each, begun within the first two seconds. `again`: which time it
    is with so many people; each has its own questions."""
    crowd = Crowd(people)
    pool = [q for q in questions.read() if q.kind in ("fact", "sum", "chit-chat")]
    await asyncio.gather(
        *(_talk(client, crowd, pool, f"{people}-{again}-{person}") for person in range(people))
    )
    return crowd


async def _talk(client: PipelineClient, crowd: Crowd, pool: list[questions.Question], name: str) -> None:
    dice = random.Random(name)
    history: list[Message] = []
    await asyncio.sleep(dice.uniform(0, 2))
    for number in range(TURNS_A_TALK):
        said = Message("user", spoken_anew(questions.parts(dice.choice(pool), 0), dice.getrandbits(32)))
        identity = TurnId(f"talk-{name}", str(number))
        turn = await _listen(client, TurnRequest(identity, (*history, said)))
        crowd.turns.append(turn)
        history.append(Message("user", (TextPart(turn.transcript),)))
        history.append(Message("assistant", (TextPart(turn.text),)))
        await asyncio.sleep(dice.uniform(*THINKING_SECONDS))


def spoken_anew(parts: tuple[Part, ...], seed: int) -> tuple[Part, ...]:
    """`parts` with the faint noise of `seed` over their sound."""
    noise = np.random.default_rng(seed)
    return tuple(
        AudioPart(p.samples + noise.normal(0, NOISE, len(p.samples)).astype(np.float32), p.sample_rate)
        if isinstance(p, AudioPart)
        else p
        for p in parts
    )


async def _listen(client: PipelineClient, request: TurnRequest) -> Turn:
    began = time.perf_counter()
    turn, listener = Turn(), Listener()
    async for event in client.submit(request):
        if isinstance(event, Transcript):
            turn.transcript = event.text
        elif isinstance(event, TextDelta):
            turn.text += event.text
        elif isinstance(event, AudioChunk) and len(event.samples):
            now = time.perf_counter()
            if listener.dry_at is None:
                turn.first_audio_ms = (now - began) * 1000
            seconds = len(event.samples) / event.sample_rate
            turn.audio_ms += seconds * 1000
            listener.hear(now, seconds)
    turn.gap_ms = listener.gap * 1000
    if listener.dry_at is not None:
        await asyncio.sleep(max(0.0, listener.dry_at - time.perf_counter()))
    return turn
