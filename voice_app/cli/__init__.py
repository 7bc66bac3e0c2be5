"""The command `voice-app`. Each subcommand is a module here with `add_parser` and `run`.

Exit codes: 0 done, 1 something failed, 2 what the user gave cannot be used, 130 interrupted, 143 terminated.
An error is one line on stderr; a traceback is shown only with VOICE_APP_LOG=debug.
"""

import os
import signal
import sys
from types import FrameType


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command like an interrupt: its workers are stopped on the way out."""


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""
    try:
        signal.signal(signal.SIGTERM, _terminate)
        # Imported here: an interrupt may come while this takes its time.
        from voice_app.cli import command

        return command.run(sys.argv[1:] if argv is None else argv)
    except _Terminated:
        print("voice-app: terminated", file=sys.stderr)
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        print("voice-app: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of our output has gone; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _terminate(_number: int, _frame: FrameType | None) -> None:
    # One who repeats it shall not cut the way out short. Not SIG_IGN: processes that are started inherit it.
    signal.signal(signal.SIGTERM, _told_before)
    raise _Terminated


def _told_before(_number: int, _frame: FrameType | None) -> None:
    pass
