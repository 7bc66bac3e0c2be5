"""Every error that this project raises on purpose, in one tree.

    VoiceAppError                    code                     exit code
    ├── InputError                   invalid_input            2   what the user gave cannot be used
    ├── ConfigError                  invalid_config           2   an option, a layout, an address
    │   └── ModelFileError           invalid_model_file       2   missing, foreign, wrong hash, no space
    ├── PipelineError                pipeline_error           1
    │   ├── StageFailed              stage_failed             1   a model raised; this turn is lost
    │   ├── WorkerDied               worker_died              1   a process ended; its turns are lost
    │   ├── TransferFailed           transfer_failed          1   an edge lost or refused a payload
    │   ├── DeadlineExceeded         deadline_exceeded        1   a wait ran out
    │   ├── Overloaded               overloaded               1   a bound is reached; try again later
    │   └── TurnCancelled            turn_cancelled           1   not a fault: the generation was raised
    └── StoreError                   store_error              1   the session store does not answer

A message is one line, names the field or file, and says what to do about it. `ErrorInfo` is what of
an error crosses a process boundary; `to_info` and `from_info` convert without losing the class.
"""

import msgspec


class VoiceAppError(Exception):
    """Base of the tree. `str(error)` is one line fit for a user."""

    code = "internal_error"
    exit_code = 1

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InputError(VoiceAppError):
    """What the user gave (audio, image, text, history) cannot be used; `param` names the field."""

    code = "invalid_input"
    exit_code = 2


class ConfigError(VoiceAppError):
    """An option, a layout or an address is wrong; `param` names it."""

    code = "invalid_config"
    exit_code = 2


class ModelFileError(ConfigError):
    """A model's file is missing, foreign, damaged, or cannot be stored."""

    code = "invalid_model_file"


class PipelineError(VoiceAppError):
    """Something between the request and its answer failed."""

    code = "pipeline_error"


class StageFailed(PipelineError):
    """A stage's model raised while it worked on this turn."""

    code = "stage_failed"


class WorkerDied(PipelineError):
    """A worker process ended while it held this turn."""

    code = "worker_died"


class TransferFailed(PipelineError):
    """An edge lost, refused or never acknowledged a payload of this turn."""

    code = "transfer_failed"


class DeadlineExceeded(PipelineError):
    """A wait with a deadline ran out."""

    code = "deadline_exceeded"


class Overloaded(PipelineError):
    """A bound is reached: the work was not accepted and nothing was lost."""

    code = "overloaded"


class TurnCancelled(PipelineError):
    """The turn's generation was raised while it ran."""

    code = "turn_cancelled"


class StoreError(VoiceAppError):
    """The session store does not answer or holds something unreadable."""

    code = "store_error"


class ErrorInfo(msgspec.Struct, frozen=True):
    """An error as it crosses a process boundary."""

    code: str
    message: str
    param: str | None = None


def _tree(root: type[VoiceAppError]) -> dict[str, type[VoiceAppError]]:
    found: dict[str, type[VoiceAppError]] = {}
    for child in root.__subclasses__():
        found |= _tree(child)
    # Last, for a code is that of the class which defines it: the server's own subclasses inherit one.
    return found | {root.code: root}


def to_info(error: VoiceAppError) -> ErrorInfo:
    """The part of `error` that another process needs."""
    return ErrorInfo(error.code, error.message, error.param)


def from_info(info: ErrorInfo) -> VoiceAppError:
    """The error again, of its own class; an unknown code gives a plain `VoiceAppError`."""
    return _tree(VoiceAppError).get(info.code, VoiceAppError)(info.message, param=info.param)
