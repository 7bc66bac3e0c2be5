"""How long a model call takes, by what is in it. Seconds."""

from pathlib import Path
from typing import Protocol

import msgspec

from load.simulation.shapes import Pack
from voice_app.errors import ConfigError


class Costs(Protocol):
    """One pack on one machine. `source`: where the figures come from, in words."""

    @property
    def source(self) -> str: ...

    def preprocessing(self, inputs: int, speech_s: float) -> float: ...

    def audio_encoder(self, recordings: int, speech_s: float) -> float: ...

    def thinker(self, decodes: int, prefilled: int) -> float:
        """One step: `decodes` answers get a token, `prefilled` prompt positions are computed."""
        ...

    def talker(self, states: int, begun: int, frames: int) -> float:
        """One step for `states`: `begun` clauses are begun, `frames` frames come of it."""
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


class Measured(msgspec.Struct, frozen=True):
    """Lines through the measured calls of a pack's runners (`measure_stages`). `crowded`: how much longer a
    call takes while the other core works too. `cores`: of the machine. `step_s`: of a scheduler's step beside
    the call."""

    machine: dict[str, str | int]
    cores: int
    crowded: float
    step_s: float
    preprocessing_line: Line
    audio_encoder_line: Line
    thinker_line: Line
    talker_line: Line
    code2wav_line: Line
    pack: Pack

    @property
    def source(self) -> str:
        return f"measured on {self.cores} cores of {self.machine.get('processor', 'an unknown processor')}"

    def preprocessing(self, inputs: int, speech_s: float) -> float:
        return self.preprocessing_line(inputs, speech_s)

    def audio_encoder(self, recordings: int, speech_s: float) -> float:
        return self.audio_encoder_line(recordings, speech_s)

    def thinker(self, decodes: int, prefilled: int) -> float:
        return self.thinker_line(decodes, prefilled)

    def talker(self, states: int, begun: int, frames: int) -> float:
        # Taking up tokens without speaking costs nothing that could be measured.
        return self.talker_line(begun, frames) if begun or frames else 0.0

    def code2wav(self, windows: int, frames: int) -> float:
        return self.code2wav_line(windows, frames)


def read(path: Path) -> Measured:
    """What `measure_stages` wrote. Raises ConfigError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Measured)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{path}: no service times ({error}); make them with python -m load.measure_stages", param="costs"
        ) from error
