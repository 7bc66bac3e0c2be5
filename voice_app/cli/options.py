"""Options that several subcommands share."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from voice_app.cli import checks, gpu
from voice_app.config import DTYPES, PACKS, PackConfig, PipelineConfig


def add_pipeline_options(parser: argparse.ArgumentParser) -> None:
    """Which models run, and where."""
    group = parser.add_argument_group("models")
    group.add_argument("--pack", default="local", help=f"one of {', '.join(PACKS)} (default: local)")
    group.add_argument(
        "--layout",
        help="a layout's name or a layout file (default: on the GPU what gains by it, if there is one)",
    )
    group.add_argument("--model", metavar="DIR", help="qwen3-omni: checkpoint folder or hub id")
    group.add_argument(
        "--brain", metavar="MODEL", help="local: a causal chat model: folder, hub id or GGUF file"
    )
    group.add_argument(
        "--voice", "--speaker", metavar="VOICE", help="local: a Piper voice (.onnx); qwen3-omni: a speaker"
    )
    group.add_argument("--recogniser", metavar="NAME", help="local: moonshine, whisper, or a folder")
    group.add_argument("--dtype", help=f"{', '.join(DTYPES)} (default: the pack's own)")
    group.add_argument("--kv-bytes", type=int, metavar="N", help="budget of the thinker's KV cache")
    group.add_argument(
        "--threads",
        type=int,
        default=1,
        metavar="N",
        help="threads a model call (default: 1; the packaged brain takes one)",
    )
    group.add_argument(
        "--start-timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="a worker that is not ready, and tells of no progress for so long, is given up (default: 300)",
    )


def add_functions_option(parser: argparse.ArgumentParser) -> None:
    """For commands that submit turns."""
    parser.add_argument(
        "--functions",
        action="store_true",
        help="the model may call the built-in functions: sums, dates, units (the local pack has them anyway)",
    )


def pipeline_config(arguments: argparse.Namespace) -> PipelineConfig:
    """The configuration that the options ask for. Raises ConfigError."""
    checks.check_models(arguments)
    pack = PackConfig(
        pack=arguments.pack,
        model=_local_path(arguments.model),
        brain=_local_path(arguments.brain),
        voice=_local_path(arguments.voice),
        recogniser=_local_path(arguments.recogniser),
        dtype=arguments.dtype,
        kv_bytes=arguments.kv_bytes,
        threads=arguments.threads,
    )
    layout = arguments.layout or default_layout(pack)
    return PipelineConfig(
        pack=pack, layout=_local_path(layout) or layout, start_timeout_s=arguments.start_timeout
    )


def default_layout(pack: PackConfig) -> str:
    """The name of the layout that this build and this machine run `pack` in best."""
    on_gpu = "one-gpu" if pack.pack == "qwen3-omni" else "thinker-gpu" if pack.brain else "cpu"
    return on_gpu if on_gpu != "cpu" and gpu.usable() else "cpu"


def _local_path(value: str | None) -> str | None:
    """Absolute where it names something that exists: workers may run in another folder."""
    return str(Path(value).resolve()) if value and Path(value).exists() else value


def reporter(*, quiet: bool = False) -> Callable[[str], None]:
    """Tells on stderr what is being done; silent with `quiet`."""

    def report(line: str) -> None:
        if not quiet:
            print(f"… {line}", file=sys.stderr, flush=True)

    return report
