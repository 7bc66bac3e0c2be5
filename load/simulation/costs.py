"""How long a model call takes, by what is in it. Seconds."""

from pathlib import Path
from typing import Protocol

import msgspec

from load.simulation.shapes import Hearing, Pack
from voice_app.errors import ConfigError
from voice_app.messages import Stage


class Costs(Protocol):
    """One pack on one machine. `source`: where the figures come from, in words."""

    @property
    def source(self) -> str: ...

    def preprocessing(self, inputs: int, speech_s: float) -> float: ...

    def audio_encoder(self, step: Hearing) -> float:
        """One call."""
        ...

    def assemble(self) -> float:
        """Of one prompt."""
        ...

    def thinker(self, passes: int, decodes: int, ahead: int, prefilled: int, judged: int) -> float:
        """One step. `passes`: 0 if all its rows had been computed ahead. `decodes` answers get a row for
        their next token, `ahead` rows are computed ahead and `prefilled` ones of prompts; and for `judged`
        rows it is asked which token is likely next."""
        ...

    def talker(self, states: int, begun: int, whole: int, frames: int) -> float:
        """One step for `states`: `begun` clauses and openings of `whole` frames are begun, and `frames` are
        made."""
        ...

    def code2wav(self, windows: int, frames: int) -> float:
        """One call; `frames` with their context."""
        ...


class Line(msgspec.Struct, frozen=True):
    """`base` seconds a call, and so many for each unit of what is in it."""

    base: float
    each: tuple[float, ...]

    def __call__(self, *amounts: float) -> float:
        return self.base + sum(a * b for a, b in zip(self.each, amounts, strict=True))


class Service(msgspec.Struct, frozen=True):
    """One stage's calls: a line through those made in one thread. `in_worker`: how many times as long they
    take where each stage has a thread of its own, `crowded`: and while the other core works too. `cold_s`:
    what the first call costs beyond its line after the machine has rested for `COLD_AFTER_S`."""

    line: Line
    crowded: float = 1.0
    cold_s: float = 0.0
    in_worker: float = 1.0

    def __call__(self, *amounts: float) -> float:
        return self.in_worker * self.line(*amounts)


PACE_S = 0.25
"""Of a few calls of the stages; what else a machine is busy with comes and goes within seconds."""
COLD_AFTER_S = 1.0
"""Rest after which a call counts as cold; shorter rests are among the calls that the lines go through."""


class Around(msgspec.Struct, frozen=True):
    """What is not the models'. `step_s`: of a scheduler's step beside its call. `hop_s`: from one process to
    another. `server_cores`, `callers_cores`: cores that one talk takes in the server process, and in the
    callers' where they share the machine. `reply_s`: from the end of the turn's silence to the first sound,
    of a pipeline that answers at once."""

    step_s: float
    hop_s: float
    server_cores: float = 0.0
    callers_cores: float = 0.0
    reply_s: float = 0.0


class Measured(msgspec.Struct, frozen=True):
    """What `measure_stages` found. `cores`: of the machine. `assemble_s`: of one prompt, which the thinker
    puts together between its steps. `pace`: how many times as long as their lines the calls took, `PACE_S`
    after `PACE_S`; `each_pace`: and those of questions by themselves, all together."""

    machine: dict[str, str | int]
    cores: int
    around: Around
    assemble_s: float
    stages: dict[Stage, Service]
    pack: Pack
    pace: tuple[float, ...] = (1.0,)
    each_pace: float = 1.0

    @property
    def source(self) -> str:
        return f"measured on {self.cores} cores of {self.machine.get('processor', 'an unknown processor')}"

    def preprocessing(self, inputs: int, speech_s: float) -> float:
        return self.stages[Stage.PREPROCESSING](inputs, speech_s)

    def audio_encoder(self, step: Hearing) -> float:
        return self.stages[Stage.AUDIO_ENCODER](*msgspec.structs.astuple(step))

    def assemble(self) -> float:
        return self.assemble_s

    def thinker(self, passes: int, decodes: int, ahead: int, prefilled: int, judged: int) -> float:
        return self.stages[Stage.THINKER](passes, decodes, ahead, prefilled, judged)

    def talker(self, states: int, begun: int, whole: int, frames: int) -> float:
        # Taking up tokens without speaking costs nothing that could be measured.
        return self.stages[Stage.TALKER_AR](begun, whole, frames) if frames else 0.0

    def code2wav(self, windows: int, frames: int) -> float:
        return self.stages[Stage.CODE2WAV](windows, frames)


def read(path: Path) -> Measured:
    """What `measure_stages` wrote. Raises ConfigError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Measured)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{path}: no service times ({error}); make them with python -m load.measure_stages", param="costs"
        ) from error
