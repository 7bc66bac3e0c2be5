"""One machine in simulated time: its processors, which stage runs where, and the edges between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from load.simulation import runners
from load.simulation.clock import Clock, Processor
from load.simulation.costs import Costs
from load.simulation.runners import Asked
from load.simulation.shapes import Pack
from load.simulation.stage import Emitted, SimulatedStage
from voice_app import messages as m
from voice_app.errors import VoiceAppError
from voice_app.messages import Stage, TurnId
from voice_app.pipeline import graph
from voice_app.pipeline.credits import Window, is_stream, window_limit
from voice_app.pipeline.replicas import Replicas
from voice_app.pipeline.schedulers import make_scheduler
from voice_app.pipeline.stage import REPORT_EVERY_S
from voice_app.schedulers.base import AnyRunner, Code2WavRunner, Outbox, StageInput, StageScheduler
from voice_app.schedulers.code2wav import Code2WavScheduler

Hear = Callable[[m.StageEvent], None]
_STAGES = tuple(stage for stage in Stage if stage is not Stage.IMAGE_ENCODER)
"""Of a turn without pictures."""


@dataclass(frozen=True, slots=True)
class Machine:
    """`processors`: cores by name (a GPU is one), and how much longer work takes there while more than one
    job is at it. `places`: the processors of each stage; more than one are replicas of its worker. `step_s`:
    what a step costs beside its model call."""

    processors: dict[str, tuple[float, float]]
    places: dict[Stage, tuple[str, ...]]
    step_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Turn:
    asked: Asked
    hear: Hear
    route: dict[Stage, SimulatedStage]
    windows: dict[tuple[Stage, Stage | None], Window] = field(default_factory=dict)
    done: set[type] = field(default_factory=set)


class Box:
    """Takes turns in, as `PipelineClient` does."""

    def __init__(self, pack: Pack, costs: Costs, machine: Machine, clock: Clock) -> None:
        self.clock = clock
        self.processors = {
            name: Processor(clock, cores, crowded) for name, (cores, crowded) in machine.processors.items()
        }
        self.errors: list[VoiceAppError] = []
        self._turns: dict[TurnId, _Turn] = {}
        self.stages: dict[tuple[Stage, str], SimulatedStage] = {}
        nodes: dict[Stage, tuple[str, ...]] = {}
        for stage in _STAGES:
            places = machine.places[stage]
            nodes[stage] = tuple(f"{place}#{number}" for number, place in enumerate(places))
            for node, place in zip(nodes[stage], places, strict=True):
                runner = _runner(stage, pack, costs, self._asked)
                self.stages[stage, node] = SimulatedStage(
                    stage,
                    node,
                    partial(_scheduler, stage, runner, clock),
                    runner.meter,
                    self,
                    self.processors[place],
                    clock,
                    machine.step_s,
                )
        self._replicas = Replicas(nodes)
        self._told: dict[tuple[Stage, str], float] = {}

    def submit(self, turn: TurnId, asked: Asked, hear: Hear) -> None:
        """A turn begins; `hear` gets its events as they come out."""
        chosen = self._replicas.choose(_STAGES, lambda _: True, {}, self.clock.now)
        route = {stage: self.stages[stage, node] for stage, node in chosen.items()}
        self._turns[turn] = _Turn(asked, hear, route)
        request = m.TurnRequest(turn, (m.Message("user", ()),))
        route[graph.ENTRY].deliver(StageInput(turn, request, speech=True))

    def _asked(self, turn: TurnId) -> Asked:
        return self._turns[turn].asked

    # ------------------------------------------------------------------------------------- as the `Edges`

    def send(self, source: SimulatedStage, turn: TurnId, payload: Emitted) -> None:
        self._tell_load(source)
        state = self._turns.get(turn)
        if state is None:
            return
        if isinstance(payload, m.StageEvent):
            state.hear(payload)
            if isinstance(payload, m.TextDone | m.AudioDone):
                state.done.add(type(payload))
                if len(state.done) == 2:
                    self._end(turn)
            return
        for target in graph.targets(source.stage, type(payload), speech=True):
            window = state.windows.setdefault(
                (source.stage, target), Window(window_limit(source.stage, target))
            )
            release = partial(self._release, source, window, window.next)
            window.take(self.clock.now)
            state.route[target].deliver(StageInput(turn, payload, speech=True, release=release))

    def windows(self, source: SimulatedStage, turn: TurnId) -> Sequence[Window]:
        state = self._turns.get(turn)
        if state is None:
            return ()
        return [w for (of, to), w in state.windows.items() if of is source.stage and is_stream(of, to)]

    def failed(self, turn: TurnId, error: VoiceAppError) -> None:
        self.errors.append(error)
        self._end(turn)

    def _release(self, source: SimulatedStage, window: Window, number: int) -> None:
        if window.give_back(number):
            source.wake()

    def _end(self, turn: TurnId) -> None:
        for stage in self._turns.pop(turn).route.values():
            stage.forget(turn)

    def _tell_load(self, stage: SimulatedStage) -> None:
        """As workers do: now and then."""
        key = (stage.stage, stage.node)
        if self.clock.now - self._told.get(key, -1.0) >= REPORT_EVERY_S:
            self._told[key] = self.clock.now
            self._replicas.reported(stage.node, stage.stage, stage.load())


def _runner(stage: Stage, pack: Pack, costs: Costs, asked: runners.Lookup):
    match stage:
        case Stage.PREPROCESSING:
            return runners.Preprocessing(pack, costs, asked)
        case Stage.AUDIO_ENCODER:
            return runners.AudioEncoder(pack, costs, asked)
        case Stage.THINKER:
            return runners.Thinker(pack, costs, asked)
        case Stage.TALKER_AR:
            kind = runners.FrameTalker if pack.codes else runners.ClauseTalker
            return kind(pack, costs, asked)
        case Stage.CODE2WAV:
            return runners.Code2Wav(pack, costs, asked)
        case _:
            return runners.Decoder(pack, costs, asked)


def _scheduler(stage: Stage, runner: AnyRunner, clock: Clock, outbox: Outbox) -> StageScheduler:
    spec = graph.STAGES[stage]
    if stage is Stage.CODE2WAV:
        assert isinstance(runner, runners.Code2Wav)
        wave: Code2WavRunner = runner
        # It decides by how much of its sound has been played.
        return Code2WavScheduler(wave, outbox, spec.batch, clock)
    return make_scheduler(spec, runner, outbox)
