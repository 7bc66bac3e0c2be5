"""Several people talking at once, paced as people are: ask, listen to the whole answer, think, ask.

Each listener keeps a playback clock: sound starts to play when its first chunk arrives and runs at its
sample rate; a chunk that arrives after the clock has run out of sound is a gap.
"""

import asyncio
import random
import time
from dataclasses import dataclass, field

from voice_app.bench import questions, report
from voice_app.messages import AudioChunk, Message, TurnId, TurnRequest
from voice_app.pipeline.client import PipelineClient

TURNS_A_TALK = 4
THINKING_SECONDS = (0.3, 1.2)
HEADER = ("people", "turns", "first audio p50", "p95", "turns with a gap", "longest gap")
GAP_MS = 5.0
"""Shorter than this is within the jitter of a sound card's own buffer."""


@dataclass(slots=True)
class Turn:
    """One answered turn. Times in milliseconds; `gap_ms`: the longest the listener ran dry."""

    first_audio_ms: float = float("nan")
    gap_ms: float = 0.0
    audio_ms: float = 0.0


@dataclass(slots=True)
class Crowd:
    """What `people` talks at once met."""

    people: int
    turns: list[Turn] = field(default_factory=list)

    @property
    def gaps(self) -> int:
        """Turns in which the listener ran dry."""
        return sum(turn.gap_ms > GAP_MS for turn in self.turns)

    def row(self) -> tuple[object, ...]:
        """A row under `HEADER`."""
        firsts = [turn.first_audio_ms for turn in self.turns]
        longest = max(turn.gap_ms for turn in self.turns)
        p50, p95 = report.percentile(firsts, 50), report.percentile(firsts, 95)
        return (
            self.people,
            len(self.turns),
            f"{p50:.0f} ms",
            f"{p95:.0f} ms",
            self.gaps,
            f"{longest:.0f} ms",
        )

    def as_json(self) -> dict[str, object]:
        return {
            "people": self.people,
            "first_audio_ms": [turn.first_audio_ms for turn in self.turns],
            "gap_ms": [turn.gap_ms for turn in self.turns],
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


async def run(client: PipelineClient, people: int) -> Crowd:
    """`people` talks of `TURNS_A_TALK` turns each, begun within the first two seconds."""
    crowd = Crowd(people)
    pool = [q for q in questions.read() if q.kind in ("fact", "sum", "chit-chat")]
    await asyncio.gather(*(_talk(client, crowd, pool, person) for person in range(people)))
    return crowd


async def _talk(client: PipelineClient, crowd: Crowd, pool: list[questions.Question], person: int) -> None:
    dice = random.Random(1000 * crowd.people + person)
    await asyncio.sleep(dice.uniform(0, 2))
    for number in range(TURNS_A_TALK):
        said = Message("user", questions.parts(dice.choice(pool), 0))
        identity = TurnId(f"talk-{crowd.people}-{person}", str(number))
        turn = await _listen(client, TurnRequest(identity, (said,)))
        crowd.turns.append(turn)
        await asyncio.sleep(dice.uniform(*THINKING_SECONDS))


async def _listen(client: PipelineClient, request: TurnRequest) -> Turn:
    began = time.perf_counter()
    turn, listener = Turn(), Listener()
    async for event in client.submit(request):
        if isinstance(event, AudioChunk) and len(event.samples):
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
