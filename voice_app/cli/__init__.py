"""The command `voice-app`. Each subcommand is a module here with `add_parser` and `run`.

Exit codes: 0 done, 1 something failed, 2 what the user gave cannot be used, 130 interrupted. An error
is one line on stderr; a traceback is shown only with VOICE_APP_LOG=debug.
"""

import argparse
import os
import signal
import sys

from voice_app import log
from voice_app.errors import VoiceAppError


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""
    from voice_app.cli import ask, bench, graph, make_tiny_checkpoint, pull, serve

    parser = argparse.ArgumentParser(
        prog="voice-app", description="A voice assistant that answers while it is still thinking."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (serve, ask, graph, pull, make_tiny_checkpoint, bench):
        module.add_parser(commands)
    argv = sys.argv[1:] if argv is None else argv
    arguments, bare = parser.parse_known_args(argv)
    unknown = [name for name in bare if name.startswith("-") or "bare" not in arguments]
    if unknown:
        parser.error(f"{arguments.command}: unknown: {' '.join(unknown)}")
    if "bare" in arguments:
        arguments.bare(arguments, bare, argv)
    # A terminated command ends like an interrupted one: its workers are stopped on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # A server's log is for its operator; whoever asks a question gets one line.
        log.set_up("info" if arguments.command == "serve" else "critical")
        return arguments.run(arguments)
    except VoiceAppError as error:
        if os.environ.get("VOICE_APP_LOG") == "debug":
            raise
        print(f"voice-app {arguments.command}: {error.message}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"voice-app {arguments.command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
