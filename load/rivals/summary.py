"""What was met, in figures: per system and number of talks, and against the goals. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from load.rivals.caller import Interruption, Missed, Turn
from voice_app.bench.report import Goal, median, percentile

HEADER = (
    "system",
    "talks",
    "turns",
    "first audio p50",
    "p95",
    "of it silence",
    "work",
    "turns with a gap",
    "longest gap",
    "no answer",
    "CPU s a turn",
)
INTERRUPTIONS_HEADER = (
    "system",
    "tried",
    "worked",
    "speech → last sound came p50",
    "→ silent p50",
    "longest",
    "did not work because",
)
SHARE = 0.25
"""Of the rival's first audio, that ours may be."""
CPU_SHARE = 0.5
DETECTED_MS = 40.0


@dataclass(slots=True)
class Crowd:
    """What `people` talks at once met with one system, over all rounds. `cpu_s`: of its processes."""

    system: str
    people: int
    turns: list[Turn] = field(default_factory=list)
    cpu_s: float = 0.0

    @property
    def answered(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.first_audio_s is not None]

    @property
    def first_audio_s(self) -> list[float]:
        return [turn.first_audio_s for turn in self.turns if turn.first_audio_s is not None]

    @property
    def gaps(self) -> int:
        """Turns in which the listener ran dry."""
        return sum(bool(turn.gaps) for turn in self.turns)

    @property
    def cpu_a_turn(self) -> float:
        return self.cpu_s / len(self.turns)

    def row(self) -> tuple[object, ...]:
        """A row under `HEADER`."""
        waits = [turn.wait_s for turn in self.answered if turn.wait_s is not None]
        work = [t.first_audio_s - t.wait_s for t in self.answered if t.wait_s is not None and t.first_audio_s]
        return (
            self.system,
            self.people,
            len(self.turns),
            *(_ms(percentile(self.first_audio_s, percent)) for percent in (50, 95)),
            _ms(median(waits)),
            _ms(median(work)),
            self.gaps,
            _ms(max((gap for turn in self.turns for gap in turn.gaps), default=0.0)),
            len(self.turns) - len(self.answered),
            f"{self.cpu_a_turn:.2f}",
        )


def goals(
    ours: Sequence[Crowd], rivals: Sequence[Crowd], interruptions: Sequence[Interruption | Missed]
) -> list[Goal]:
    """`rivals`: the tuned one, with as many talks as `ours`, in the same order; `interruptions`: ours."""
    found: list[Goal] = []
    for own, rival in zip(ours, rivals, strict=True):
        at = f"{own.people} talks" if own.people > 1 else "1 talk"
        limit = 1000 * SHARE * median(rival.first_audio_s)
        found.append(Goal(f"first audio p50, {at}", 1000 * median(own.first_audio_s), limit, "ms"))
        found.append(Goal(f"CPU a turn, {at}", own.cpu_a_turn, CPU_SHARE * rival.cpu_a_turn, "s"))
        found.append(Goal(f"turns without an answer, {at}", len(own.turns) - len(own.answered), 0))
    found.append(Goal(f"turns with a gap, {ours[-1].people} talks", ours[-1].gaps, 0))
    worked = measured(interruptions)
    sent = [1000 * i.last_sound_s for i in worked]
    found.append(Goal("interruptions that worked", len(worked), len(interruptions), at_least=True))
    found.append(Goal("speech over a reply → no more sound is sent, p50", median(sent), DETECTED_MS, "ms"))
    return found


def measured(interruptions: Sequence[Interruption | Missed]) -> list[Interruption]:
    """Those that worked."""
    return [found for found in interruptions if isinstance(found, Interruption)]


def interruption_row(system: str, tried: Sequence[Interruption | Missed]) -> tuple[object, ...]:
    """A row under `INTERRUPTIONS_HEADER`."""
    found = measured(tried)
    silent = [i.silent_s for i in found]
    return (
        system,
        len(tried),
        len(found),
        _ms(median([i.last_sound_s for i in found])),
        _ms(median(silent)),
        _ms(max(silent, default=float("nan"))),
        ", ".join(
            f"{count} × {why}" for why, count in Counter(m for m in tried if isinstance(m, Missed)).items()
        ),
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds == seconds else "–"
