"""Which subcommand the words of a command line ask for, and what becomes of its errors."""

import argparse
import importlib.metadata
import os
import sys

from voice_app import log
from voice_app.cli import ask, bench, graph, make_tiny_checkpoint, pull, serve
from voice_app.errors import VoiceAppError


def run(argv: list[str]) -> int:
    """Run the subcommand; returns the exit code. Raises SystemExit (2) where argparse understands nothing."""
    parser = _parser()
    if not argv:
        parser.print_help()
        return 2
    arguments, bare = parser.parse_known_args(argv)
    unknown = [name for name in bare if name.startswith("-") or "bare" not in arguments]
    if unknown:
        parser.error(f"{arguments.command}: unknown: {' '.join(unknown)}")
    if "bare" in arguments:
        arguments.bare(arguments, bare, argv)
    try:
        # A server's log is for its operator; whoever asks a question gets one line.
        log.set_up("info" if arguments.command == "serve" else "critical")
        return arguments.run(arguments)
    except VoiceAppError as error:
        if os.environ.get("VOICE_APP_LOG") == "debug":
            raise
        print(f"voice-app {arguments.command}: {error.message}", file=sys.stderr)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="voice-app", description="A voice assistant that answers while it is still thinking."
    )
    version = importlib.metadata.version("voice-app")
    parser.add_argument("--version", action="version", version=f"voice-app {version}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (serve, ask, graph, pull, make_tiny_checkpoint, bench):
        module.add_parser(commands)
    return parser
