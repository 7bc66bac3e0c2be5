"""`voice-app pull`: fetch the models that the local pack needs, once."""

import argparse

from voice_app.cli import options


def add_parser(commands) -> None:
    """Register the subcommand."""
    parser = commands.add_parser("pull", help="fetch the local pack's models")
    parser.set_defaults(run=run)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which ones (default: all)")
    parser.add_argument("--again", action="store_true", help="also replace damaged and foreign files")


def run(arguments: argparse.Namespace) -> int:
    """Fetch, check and keep the files."""
    from voice_app.models.local import assets

    assets.pull(arguments.names or None, options.reporter(), again=arguments.again)
    return 0
