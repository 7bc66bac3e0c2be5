"""`voice-app graph`: the stages, where they run, and what crosses each edge by which transport."""

import argparse
import json

from rich.console import Console
from rich.table import Table

from voice_app.cli import options
from voice_app.pipeline import layout


def add_parser(commands) -> None:
    """Register the subcommand."""
    parser = commands.add_parser("graph", help="print the stages, their places and the edges")
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options.add_pipeline_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the graph; no model is loaded."""
    if arguments.pack == "qwen3-omni":
        arguments.model = arguments.model or "(any)"
    description = layout.describe(options.pipeline_config(arguments))
    if arguments.json:
        print(json.dumps(description))
        return 0
    console = Console()
    for title, rows in description.items():
        if isinstance(rows, list) and rows:
            table = Table(*[str(key) for key in rows[0]], title=title, title_justify="left")
            for row in rows:
                table.add_row(*[str(value) for value in row.values()])
            console.print(table)
    return 0
