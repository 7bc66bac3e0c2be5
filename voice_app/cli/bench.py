"""`voice-app bench`: measure. Each benchmark is a module in `voice_app/bench/`."""

import argparse
import importlib

ALL = "all"
BENCHMARKS = {
    "engine": "Qwen3-Omni's engine against transformers' generate, on a tiny checkpoint",
    "edges": "what crossing an edge costs, each transport against its rivals",
    "realtime": "the server alone: interruption, CPU and memory of a talk",
    "first-audio": "the local pack behind its server: end of turn to first audio",
    "local": "the local pack: answers, latency, talks at once, memory",
    "recognisers": "word error rate and latency of each recogniser, clean and noisy",
    "voice": "the voice: words heard back, speed",
}
GATHERED = ("engine", "edges", "realtime", "first-audio", "local")
"""What `all` runs: the pieces that a talk is made of, and the whole."""


def add_parser(commands) -> None:
    """Register the subcommand."""
    parser = commands.add_parser("bench", help="measure, and print a table")
    parser.set_defaults(run=run)
    parser.add_argument(
        "name",
        nargs="?",
        default=ALL,
        choices=(ALL, *BENCHMARKS),
        metavar="NAME",
        help=f"{ALL} (the default): {', '.join(GATHERED)}, one after the other; "
        + "; ".join(f"{name}: {what}" for name, what in BENCHMARKS.items()),
    )
    parser.add_argument("--json", metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--compare", metavar="OLD", help="an older file of --json: old → new for each figure")


def run(arguments: argparse.Namespace) -> int:
    """Run one benchmark, or several; 1 if a goal that it states was missed."""
    if arguments.name == ALL or arguments.compare:
        from voice_app.bench import gathered

        names = GATHERED if arguments.name == ALL else (arguments.name,)
        return gathered.run(names, arguments.json, arguments.compare)
    module = importlib.import_module(f"voice_app.bench.{arguments.name.replace('-', '_')}")
    # Some say how many goals were missed; an exit code above 1 would mean something else.
    return 1 if module.main(arguments.json) else 0
