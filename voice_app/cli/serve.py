"""`voice-app serve`: the server and its workers."""

import argparse

from voice_app.cli import options


def add_parser(commands) -> None:
    """Register the subcommand."""
    parser = commands.add_parser("serve", help="start the server")
    parser.set_defaults(run=run)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default: 8000)")
    options.add_pipeline_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped."""
    from voice_app.server.app import serve

    return serve(options.pipeline_config(arguments), host=arguments.host, port=arguments.port)
