"""One machine in simulated time: its processors, which stage runs where, and the edges between them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from load.simulation import hearers, runners
from load.simulation.clock import Clock, Pace, Processor
from load.simulation.costs import Costs, Service
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
from voice_app.schedulers.base import (
    AnyRunner,
    Code2WavRunner,
    Outbox,
    StageInput,
    StageScheduler,
    TalkerRunner,
)
from voice_app.schedulers.code2wav import Code2WavScheduler
from voice_app.schedulers.talker import QwenTalkerScheduler

Hear = Callable[[m.StageEvent], None]
_STAGES = tuple(stage for stage in Stage if stage is not Stage.IMAGE_ENCODER)
"""Of a turn without pictures."""


@dataclass(frozen=True, slots=True)
class Machine:
    """`processors`: cores by name (a GPU is one). `places`: the processors of each stage; more than one are
    replicas of its worker. `workers`: the process of each stage. `step_s`: what a step costs beside its model
    call; `hop_s`: from one process to another. `services`: of the measured stages, how crowds and rests slow
    them. `talk_cores`: of the processor "cpu", what each talk takes of it all the time. `pace`: of all
    processors."""

    processors: dict[str, float]
    places: dict[Stage, tuple[str, ...]]
    workers: dict[Stage, str] = field(default_factory=dict)
    step_s: float = 0.0
    hop_s: float = 0.0
    services: Mapping[Stage, Service] = field(default_factory=dict)
    talk_cores: float = 0.0
    pace: Pace = field(default_factory=Pace)


@dataclass(slots=True)
class Timings:
    """Of one turn's stages, in seconds: until the first output, since the turn was submitted; in calls."""

    first_out_s: dict[Stage, float] = field(default_factory=dict)
    busy_s: dict[Stage, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Turn:
    asked: Asked
    hear: Hear
    route: dict[Stage, SimulatedStage]
    submitted: float
    told: Timings = field(default_factory=Timings)
    windows: dict[tuple[Stage, Stage | None], Window] = field(default_factory=dict)
    done: set[type] = field(default_factory=set)


class Box:
    """Takes turns in, as `PipelineClient` does."""

    def __init__(self, pack: Pack, costs: Costs, machine: Machine, clock: Clock) -> None:
        self.clock = clock
        self.processors = {
            name: Processor(clock, cores, machine.pace) for name, cores in machine.processors.items()
        }
        self.errors: list[VoiceAppError] = []
        self._machine = machine
        self._turns: dict[TurnId, _Turn] = {}
        self._talks = 0
        self.stages: dict[tuple[Stage, str], SimulatedStage] = {}
        nodes: dict[Stage, tuple[str, ...]] = {}
        for stage in _STAGES:
            places = machine.places[stage]
            service = machine.services.get(stage)
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
                    service.crowded if service else 1.0,
                    service.cold_s if service else 0.0,
                )
        self._replicas = Replicas(nodes)
        self._told: dict[tuple[Stage, str], float] = {}

    def talks_begin(self, count: int) -> None:
        """So many talks more (or fewer) are held."""
        self._talks += count
        if self._machine.talk_cores:
            self.processors["cpu"].give_away(self._talks * self._machine.talk_cores)

    def submit(self, turn: TurnId, asked: Asked, hear: Hear) -> Timings:
        """A turn begins; `hear` gets its events as they come out. Gives what becomes known of its stages."""
        chosen = self._replicas.choose(_STAGES, lambda _: True)
        self._replicas.sent(turn, set(chosen.values()))
        route = {stage: self.stages[stage, node] for stage, node in chosen.items()}
        self._turns[turn] = state = _Turn(asked, hear, route, self.clock.now)
        request = m.TurnRequest(turn, (m.Message("user", ()),))
        item = StageInput(turn, request, speech=True)
        self._after(self._machine.hop_s, turn, partial(route[graph.ENTRY].deliver, item))
        return state.told

    def cancel(self, turn: TurnId) -> None:
        """Its work is dropped wherever it is; a call that it is in is made to its end."""
        if turn in self._turns:
            self._end(turn)

    def _asked(self, turn: TurnId) -> Asked:
        return self._turns[turn].asked

    def _after(self, seconds: float, turn: TurnId, action: Callable[[], None]) -> None:
        """`action`, unless the turn is over by then."""

        def act() -> None:
            if turn in self._turns:
                action()

        if seconds:
            self.clock.after(seconds, act)
        else:
            act()

    # ------------------------------------------------------------------------------------- as the `Edges`

    def send(self, source: SimulatedStage, turn: TurnId, payload: Emitted) -> None:
        self._tell_load(source)
        state = self._turns.get(turn)
        if state is None:
            return
        state.told.first_out_s.setdefault(source.stage, self.clock.now - state.submitted)
        if isinstance(payload, m.StageEvent):
            self._after(self._machine.hop_s, turn, partial(self._tell, turn, state, payload))
            return
        for target in graph.targets(source.stage, type(payload), speech=True):
            window = state.windows.setdefault(
                (source.stage, target), Window(window_limit(source.stage, target))
            )
            release = partial(self._release, source, window, window.next)
            window.take(self.clock.now)
            item = StageInput(turn, payload, speech=True, release=release)
            self._after(self._hop_s(source.stage, target), turn, partial(state.route[target].deliver, item))

    def _hop_s(self, source: Stage, target: Stage) -> float:
        workers = self._machine.workers
        return self._machine.hop_s if workers.get(source) != workers.get(target) else 0.0

    def _tell(self, turn: TurnId, state: _Turn, event: m.StageEvent) -> None:
        state.hear(event)
        if isinstance(event, m.TextDone | m.AudioDone):
            state.done.add(type(event))
            if len(state.done) == 2:
                self._end(turn)

    def windows(self, source: SimulatedStage, turn: TurnId) -> Sequence[Window]:
        state = self._turns.get(turn)
        if state is None:
            return ()
        return [w for (of, to), w in state.windows.items() if of is source.stage and is_stream(of, to)]

    def worked(self, source: SimulatedStage, turn: TurnId, seconds: float) -> None:
        state = self._turns.get(turn)
        if state is not None:
            state.told.busy_s[source.stage] = state.told.busy_s.get(source.stage, 0.0) + seconds

    def failed(self, turn: TurnId, error: VoiceAppError) -> None:
        self.errors.append(error)
        self._end(turn)

    def _release(self, source: SimulatedStage, window: Window, number: int) -> None:
        if window.give_back(number):
            source.wake()

    def _end(self, turn: TurnId) -> None:
        route = self._turns.pop(turn).route
        self._replicas.ended(turn, {stage.node for stage in route.values()})
        for stage in route.values():
            stage.forget(turn)

    def _tell_load(self, stage: SimulatedStage) -> None:
        """As workers do: now and then."""
        key = (stage.stage, stage.node)
        if self.clock.now - self._told.get(key, -1.0) >= REPORT_EVERY_S:
            self._told[key] = self.clock.now
            self._replicas.reported(stage.node, stage.stage, stage.load(), stage.take_met())


def _runner(stage: Stage, pack: Pack, costs: Costs, asked: runners.Lookup):
    match stage:
        case Stage.PREPROCESSING:
            return hearers.Preprocessing(pack, costs, asked)
        case Stage.AUDIO_ENCODER:
            kind = hearers.AudioEncoder if pack.codes else hearers.Recogniser
            return kind(pack, costs, asked)
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
    # Those two go by the time: of what has been played, and of turns that cannot be stepped.
    match stage:
        case Stage.CODE2WAV:
            return Code2WavScheduler(cast(Code2WavRunner, runner), outbox, spec.batch, clock)
        case Stage.TALKER_AR:
            return QwenTalkerScheduler(cast(TalkerRunner, runner), outbox, spec.batch, clock)
        case _:
            return make_scheduler(spec, runner, outbox)
