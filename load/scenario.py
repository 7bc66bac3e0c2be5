"""The scenario file: who calls, how often, and how each of them talks. TOML, checked, with one line an error.

    silence_ms = 500                    # the silence that ends a turn, asked of the server

    [people.curious]                    # one table for each kind of caller; the name is free
    weight = 3                          # how many callers are of this kind, against the others' weights
    speech = ["spoken/fact-*.flac"]     # files or patterns, seen from the scenario's folder; "asterisk"
    interrupts = 0.5                    # shares are of the turns in which it happens

The fields of `Person` say what else there is.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from voice_app.errors import ConfigError

PEOPLE = Path(__file__).parent / "scenarios" / "people.toml"
"""What `make load` calls with."""

Share = Annotated[float, Field(ge=0, le=1)]
Seconds = tuple[Annotated[float, Field(ge=0, le=600)], Annotated[float, Field(ge=0, le=600)]]
"""[least, most]: each time, something between them."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Person(_Table):
    """How one kind of caller talks."""

    weight: Annotated[int, Field(ge=1, le=1000)] = 1
    speech: Annotated[list[str], Field(min_length=1)]
    """Sound files. Those whose names differ in a last number only (`trip-1`, `trip-2`) are said one after the
    other, as a question and its follow-ups. "asterisk": the prompts of Debian's asterisk sounds."""
    turns: Annotated[int, Field(ge=1, le=10_000)] = 20
    """After so many the caller says goodbye and calls again."""
    pause_s: Seconds = (0.5, 2.0)
    """From the end of an answer to the next question."""
    quiet_s: Seconds = (0.0, 0.0)
    """Said nothing for so long, on top of the pause: with the microphone open."""
    hesitates: Share = 0.0
    """Stops in mid-sentence, for less than the silence that ends a turn."""
    interrupts: Share = 0.0
    """Asks the next question while the answer is being spoken."""
    interrupts_after_s: Seconds = (0.5, 2.0)
    """From the answer's first sound."""
    hangs_up: Share = 0.0
    """Is gone in mid-word, without a farewell."""
    loses_connection: Share = 0.0
    """Is cut off during an answer, and takes the talk up again."""
    pictures: list[str] = []
    """Camera: JPEG, PNG or WebP files, shown in turn while the caller speaks."""
    pictures_per_s: Annotated[float, Field(gt=0, le=30)] = 2.0
    reads_bytes_per_s: Annotated[int, Field(ge=1000)] | None = None
    """Takes what the server sends no faster than this. What such a caller waits for is its own fault and is
    left out of the figures; what it does to the others is not."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for name in ("pause_s", "quiet_s", "interrupts_after_s"):
            least, most = getattr(self, name)
            if least > most:
                raise ValueError(f"{name} = [{least:g}, {most:g}]: the first must not be above the second")
        return self


class Scenario(_Table):
    """All who call."""

    silence_ms: Annotated[int, Field(ge=100, le=5000)] = 500
    people: Annotated[dict[str, Person], Field(min_length=1)]


def read(path: Path) -> Scenario:
    """The scenario in a TOML file. Raises ConfigError that names file and field."""
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", param="scenario") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML ({error})", param="scenario") from error
    try:
        return Scenario.model_validate(table)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_first(error)}", param="scenario") from error


def _first(error: ValidationError) -> str:
    """The first of the faults, in one line."""
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(key) for key in fault["loc"])
    match fault["type"]:
        case "extra_forbidden":
            return f"{where}: there is no such field"
        case "missing":
            return f"{where}: is missing"
        case "value_error":
            return f"{where}.{fault['ctx']['error']}" if "ctx" in fault else f"{where}: {fault['msg']}"
    return f"{where} = {fault['input']!r}: {fault['msg'][:1].lower()}{fault['msg'][1:]}"
