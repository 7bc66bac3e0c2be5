"""`voice-app graph`: the stages, where they run, and what crosses each edge by which transport."""

import argparse
import json

from rich import box
from rich.console import Console
from rich.table import Table

from voice_app.cli import options
from voice_app.pipeline import layout

WIDE = 140
"""Columns of characters in which all of it can be read; what is piped has them."""
LEAST = 80
"""A terminal with fewer wraps the lines itself."""
WORDS = ("takes", "gives", "what", "size", "often")
"""Columns that hold no names."""
LEFT_OUT = ("host", "takes", "gives", "size")
"""Columns for which a narrow terminal has no room; `--json` has them."""


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
    narrow = console.is_terminal and console.width < WIDE
    console = Console(width=max(console.width, LEAST) if console.is_terminal else WIDE)
    for title, rows in description.items():
        if isinstance(rows, list) and rows:
            console.print(_table(title, rows, narrow=narrow))
    return 0


def _table(title: str, rows: list[dict[str, object]], *, narrow: bool) -> Table:
    shown = [key for key in rows[0] if not (narrow and key in LEFT_OUT)]
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for key in shown:
        # A name that is cut or broken is none; words may be wrapped.
        longest = max(len(str(row[key])) for row in rows)
        name = key not in WORDS
        table.add_column(key, min_width=max(len(key), longest) if name else None, no_wrap=name)
    for row in rows:
        table.add_row(*[str(row[key]) for key in shown])
    return table
