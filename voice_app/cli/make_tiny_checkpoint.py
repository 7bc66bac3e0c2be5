"""`voice-app make-tiny-checkpoint`: a small random Qwen3-Omni checkpoint, for tests and trials on a CPU."""

import argparse
from pathlib import Path

from voice_app.errors import InputError


def add_parser(commands) -> None:
    """Register the subcommand."""
    parser = commands.add_parser(
        "make-tiny-checkpoint",
        help="write a small random Qwen3-Omni checkpoint in the published layout",
        description="Its answers mean nothing; everything else is as with the real one. Try: "
        "voice-app ask --pack qwen3-omni --model DIR --layout cpu --text Hello",
    )
    parser.set_defaults(run=run)
    parser.add_argument("folder", metavar="DIR", type=Path, help="where to write it; made if missing")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the weights (default 0)")


def run(arguments: argparse.Namespace) -> int:
    """Write it and print its folder."""
    folder: Path = arguments.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: is there already; name a new or empty folder", param="folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror})", param="folder") from error
    from voice_app.models.qwen3_omni.tiny_checkpoint import make_tiny_checkpoint

    print(make_tiny_checkpoint(folder, arguments.seed))
    return 0
