"""How punctual the callers themselves are, and whether they were the bottleneck of a run. Pure."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from voice_app.bench.callers import PACKET_S
from voice_app.bench.report import percentile

SATURATED_PERCENT = 90.0
"""Of one core: the callers are one thread."""


@dataclass(slots=True)
class Pacing:
    """For each packet that left, when, and by how many seconds too late."""

    at: "array[float]" = field(default_factory=lambda: array("d"))
    late: "array[float]" = field(default_factory=lambda: array("d"))

    def left(self, at: float, due: float) -> None:
        self.at.append(at)
        self.late.append(max(0.0, at - due))

    def between(self, begin: float, end: float) -> list[float]:
        """Seconds of lateness of the packets that left in [begin, end)."""
        return [late for at, late in zip(self.at, self.late, strict=True) if begin <= at < end]


def bottleneck(late: Sequence[float], cpu_percent: Sequence[float]) -> str | None:
    """Why the callers were the bottleneck; None: they were not. `late`: seconds of each packet;
    `cpu_percent`: of their process, one value a sample."""
    p99 = percentile(late, 99)
    if p99 > PACKET_S:
        return f"the callers fell behind: p99 of their packets {p99 * 1000:.0f} ms late"
    busy = percentile(cpu_percent, 95)
    if busy > SATURATED_PERCENT:
        return f"the callers used their whole core: p95 {busy:.0f} %"
    return None
