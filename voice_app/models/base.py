"""What a model pack is: something that builds the runner of each stage."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from voice_app.config import PackConfig
from voice_app.messages import Stage
from voice_app.schedulers.base import AnyRunner

Report = Callable[[str], None]
"""Tells a person what is being done, one short line ("loading the recogniser")."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a pack offers to clients. `voices`: names that a request may give; `languages`: ISO 639-1 (or -3)
    codes of the speech that it hears. Empty: that is not known."""

    voices: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()


class Pack(Protocol):
    """Built once in each worker; stages of one worker may share what it holds (a tokenizer, an
    embedding table)."""

    def build(self, stage: Stage) -> AnyRunner:
        """Load what `stage` needs and only that. Raises ModelFileError or ConfigError."""
        ...


class PackFactory(Protocol):
    """How a pack comes to be; each pack's `pack.py` has one, named `create`."""

    def __call__(self, config: PackConfig, report: Report) -> Pack: ...
