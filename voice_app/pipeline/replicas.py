"""Which replica of a worker a turn goes to. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from voice_app.messages import Stage, TurnId
from voice_app.schedulers.base import SchedulerLoad


@dataclass(slots=True)
class _Node:
    """One replica, as far as is known here."""

    loads: dict[Stage, SchedulerLoad] = field(default_factory=dict)
    turns: set[TurnId] = field(default_factory=set)
    """Those that are open and pass through it."""
    unmet: set[TurnId] = field(default_factory=set)
    """Those of them that none of its stages has told of: what they add to its load is still to come."""

    @property
    def busy(self) -> int:
        """What it has to do. Reports come late, by more where there is much to do: no stage has more turns
        than those that are open, whatever it told last, and one that nobody told of counts as well."""
        met = len(self.turns) - len(self.unmet)
        told = sum(min(load.waiting + load.running, met) for load in self.loads.values())
        return len(self.unmet) + told


@dataclass(slots=True)
class Replicas:
    """`places`: the nodes of each stage, as in the layout. Stages of one worker have the same nodes."""

    places: Mapping[Stage, tuple[str, ...]]
    _nodes: dict[str, _Node] = field(default_factory=dict)

    def choose(self, stages: Collection[Stage], ready: Callable[[str], bool]) -> dict[Stage, str]:
        """The node of each of `stages` for a new turn; the stages of one worker get the same. Of replicas one
        that is `ready`, if any is: that with least to do; among equals that with the fewest open turns."""
        chosen: dict[tuple[str, ...], str] = {}
        for stage in stages:
            nodes = self.places[stage]
            if nodes not in chosen:
                chosen[nodes] = self._least(nodes, ready)
        return {stage: chosen[self.places[stage]] for stage in stages}

    def sent(self, turn: TurnId, nodes: Iterable[str]) -> None:
        """The turn is open, and passes through `nodes`."""
        for node in nodes:
            state = self._nodes.setdefault(node, _Node())
            state.turns.add(turn)
            state.unmet.add(turn)

    def ended(self, turn: TurnId, nodes: Iterable[str]) -> None:
        """The turn is over."""
        for node in nodes:
            state = self._nodes.get(node)
            if state is not None:
                state.turns.discard(turn)
                state.unmet.discard(turn)

    def reported(self, node: str, stage: Stage, load: SchedulerLoad, met: Iterable[TurnId] = ()) -> None:
        """A stage of `node` told its fill, and which turns it met for the first time."""
        state = self._nodes.setdefault(node, _Node())
        state.loads[stage] = load
        state.unmet.difference_update(met)

    def down(self, node: str) -> None:
        """`node` ended; what it told is no more."""
        self._nodes.pop(node, None)

    def load(self) -> dict[Stage, SchedulerLoad]:
        """The fill of each stage that has told it, summed over its replicas."""
        total: dict[Stage, SchedulerLoad] = {}
        for node in self._nodes.values():
            for stage, load in node.loads.items():
                total[stage] = _sum(total.get(stage, SchedulerLoad()), load)
        return total

    def _least(self, nodes: tuple[str, ...], ready: Callable[[str], bool]) -> str:
        if len(nodes) == 1:
            return nodes[0]

        def has_to_do(node: str) -> tuple[int, int]:
            state = self._nodes.get(node, _Node())
            return state.busy, len(state.turns)

        return min([node for node in nodes if ready(node)] or nodes, key=has_to_do)


def _sum(one: SchedulerLoad, other: SchedulerLoad) -> SchedulerLoad:
    return SchedulerLoad(
        one.waiting + other.waiting,
        one.running + other.running,
        one.pages_used + other.pages_used,
        one.pages_total + other.pages_total,
    )
