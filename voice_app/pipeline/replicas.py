"""Which replica of a worker a turn goes to. Pure: time is passed in."""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from voice_app.messages import Stage
from voice_app.schedulers.base import SchedulerLoad

UNSEEN_S = 0.5
"""A turn shows in what its workers report after so long; until then it is counted where it was sent."""


@dataclass(slots=True)
class Replicas:
    """`places`: the nodes of each stage, as in the layout. Stages of one worker have the same nodes."""

    places: Mapping[Stage, tuple[str, ...]]
    _loads: dict[str, dict[Stage, SchedulerLoad]] = field(default_factory=dict)
    _sent: dict[str, deque[float]] = field(default_factory=dict)

    def reported(self, node: str, stage: Stage, load: SchedulerLoad) -> None:
        """A stage of `node` told its fill."""
        self._loads.setdefault(node, {})[stage] = load

    def down(self, node: str) -> None:
        """`node` ended; what it told is no more."""
        self._loads.pop(node, None)
        self._sent.pop(node, None)

    def choose(
        self, stages: Collection[Stage], ready: Callable[[str], bool], turns: Mapping[str, int], now: float
    ) -> dict[Stage, str]:
        """The node of each of `stages` for a new turn at `now`, in seconds; the stages of one worker get
        the same. Of replicas, one that is `ready`, if any is: the one with least to do, by its reports and
        what was sent there since; among equals that with the fewest open `turns`."""
        chosen: dict[tuple[str, ...], str] = {}
        for stage in stages:
            nodes = self.places[stage]
            if nodes not in chosen:
                chosen[nodes] = self._least(nodes, ready, turns, now)
        return {stage: chosen[self.places[stage]] for stage in stages}

    def load(self) -> dict[Stage, SchedulerLoad]:
        """The fill of each stage that has told it, summed over its replicas."""
        total: dict[Stage, SchedulerLoad] = {}
        for loads in self._loads.values():
            for stage, load in loads.items():
                total[stage] = _sum(total.get(stage, SchedulerLoad()), load)
        return total

    def _least(
        self, nodes: tuple[str, ...], ready: Callable[[str], bool], turns: Mapping[str, int], now: float
    ) -> str:
        if len(nodes) == 1:
            return nodes[0]
        node = min(
            [node for node in nodes if ready(node)] or nodes,
            key=lambda node: (self._busy(node, now), turns.get(node, 0)),
        )
        self._sent.setdefault(node, deque()).append(now)
        return node

    def _busy(self, node: str, now: float) -> int:
        sent = self._sent.get(node, deque())
        while sent and now - sent[0] >= UNSEEN_S:
            sent.popleft()
        return len(sent) + sum(load.waiting + load.running for load in self._loads.get(node, {}).values())


def _sum(one: SchedulerLoad, other: SchedulerLoad) -> SchedulerLoad:
    return SchedulerLoad(
        one.waiting + other.waiting,
        one.running + other.running,
        one.pages_used + other.pages_used,
        one.pages_total + other.pages_total,
    )
