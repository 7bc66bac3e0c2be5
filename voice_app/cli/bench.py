"""`voice-app bench`: measure. Each benchmark is a module in `voice_app/bench/`."""

import argparse
import importlib

BENCHMARKS = {
    "local": "the local pack: answers, latency, talks at once, memory",
    "recognisers": "word error rate and latency of each recogniser, clean and noisy",
    "realtime": "the realtime server: first audio, interruption, CPU and memory of a talk",
    "voice": "the voice: words heard back, speed",
    "engine": "Qwen3-Omni's engine against transformers' generate, on a tiny checkpoint",
    "edges": "what crossing an edge costs, each transport against its rivals",
}


def add_parser(commands) -> None:
    """Register the subcommand."""
    parser = commands.add_parser("bench", help="measure, and print a table")
    parser.set_defaults(run=run)
    parser.add_argument(
        "name",
        choices=BENCHMARKS,
        metavar="NAME",
        help="; ".join(f"{name}: {what}" for name, what in BENCHMARKS.items()),
    )
    parser.add_argument("--json", metavar="FILE", help="also write the figures as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run one benchmark; 1 if a goal that it states was missed."""
    module = importlib.import_module(f"voice_app.bench.{arguments.name}")
    # Some say how many goals were missed; an exit code above 1 would mean something else.
    return 1 if module.main(arguments.json) else 0
