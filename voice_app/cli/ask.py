"""`voice-app ask`: one question, one answer, without a server."""

import argparse
import asyncio
import json
from pathlib import Path

from voice_app import audio
from voice_app.cli import checks, options
from voice_app.cli.answer import Answer, Player
from voice_app.config import PipelineConfig
from voice_app.errors import InputError
from voice_app.messages import (
    AudioPart,
    ImagePart,
    Message,
    Part,
    Sampling,
    TextPart,
    TurnId,
    TurnRequest,
)
from voice_app.models import registry
from voice_app.pipeline.client import PipelineClient
from voice_app.pipeline.functions import FunctionCaller

MAX_RATE = 48_000
"""Recordings of more samples a second, in Hz, are brought down to it: ten minutes are 115 MB then."""


class _AddPart(argparse.Action):
    """Collects --audio, --image and --text in the order given."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        kind = (option_string or "").lstrip("-")
        namespace.parts = [*namespace.parts, (kind, values)]


def add_bare_names(arguments: argparse.Namespace, bare: list[str], argv: list[str]) -> None:
    """Put file names without an option among the parts, where they stood in `argv`, as audio.

    argparse cannot: it takes all that positionals get at the first place where one may stand, so
    `--image F QUESTION.wav` would be refused."""
    named, bare = list(arguments.parts), list(bare)
    parts: list[tuple[str, str]] = []
    for token in argv:
        if bare and token == bare[0]:
            parts.append(("audio", bare.pop(0)))
        elif named and (token == named[0][1] or token == f"--{named[0][0]}={named[0][1]}"):
            parts.append(named.pop(0))
    arguments.parts = parts


def add_parser(commands) -> None:
    """Register the subcommand."""
    parser = commands.add_parser(
        "ask",
        help="answer one spoken or written question",
        usage="voice-app ask [QUESTION.wav ...] [options]",
        description="A file name without an option is the same as --audio FILE. The parts of the question "
        "are taken in the order given.",
    )
    parser.set_defaults(run=run, parts=[], bare=add_bare_names)
    for kind, what in (("audio", "a sound file"), ("image", "a picture"), ("text", "words")):
        parser.add_argument(
            f"--{kind}", action=_AddPart, metavar=kind.upper(), help=f"add {what} to the turn (repeatable)"
        )
    parser.add_argument("--system", metavar="TEXT", help="instructions for the assistant")
    parser.add_argument("--history", metavar="FILE", help="JSON: earlier turns, [{role, content}, …]")
    parser.add_argument("--out", metavar="FILE.wav", help="write the spoken answer")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of the words")
    parser.add_argument("--play", action="store_true", help="play the answer while it is made")
    parser.add_argument("--text-only", action="store_true", help="no spoken answer")
    parser.add_argument("--greedy", action="store_true", help="turn all sampling off")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--max-tokens", type=int, metavar="N")
    parser.add_argument("--max-frames", type=int, metavar="N")
    parser.add_argument(
        "--now", metavar="TIME", help="the user's date and time, ISO 8601 (default: the clock)"
    )
    options.add_functions_option(parser)
    options.add_pipeline_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Answer the question; returns the exit code."""
    if arguments.out is not None:
        checks.check_out(Path(arguments.out))
    request = build_request(arguments)
    config = options.pipeline_config(arguments)
    player = Player.find() if arguments.play else None
    registry.bring(config.pack, options.reporter(quiet=arguments.json))
    try:
        answer = asyncio.run(_ask(config, request, arguments, player))
    except InputError as error:
        raise name_files(error, arguments) from error
    if arguments.out:
        audio.write(Path(arguments.out), answer.samples, answer.sample_rate)
    if arguments.json:
        print(json.dumps(answer.summary(), ensure_ascii=False))
    if answer.finish_reason == "silence":
        named = ", ".join(value for kind, value in arguments.parts if kind == "audio") or "the question"
        raise InputError(
            f"no speech was heard in {named}: is it the right file, and loud enough?", param="audio"
        )
    return 0


async def _ask(
    config: PipelineConfig, request: TurnRequest, arguments: argparse.Namespace, player: Player | None
) -> Answer:
    report = options.reporter(quiet=arguments.json)
    async with PipelineClient(config, report=report) as client:
        answer = Answer()
        answer.begin()
        try:
            turns = FunctionCaller(client) if arguments.functions else client
            async for event in turns.submit(request):
                words = answer.take(event)
                if words and not arguments.json:
                    print(words, end="", flush=True)
                if player:
                    await player.feed(event)
        finally:
            # Also before whatever is said of an interrupt or an error.
            if not arguments.json and answer.text:
                print(flush=True)
        if player:
            await player.finish()
        return answer


def name_files(error: InputError, arguments: argparse.Namespace) -> InputError:
    """The error of a stage, which knows only the field, about the files that were given for it."""
    files = [value for kind, value in arguments.parts if kind == error.param]
    if arguments.history:
        files.append(arguments.history)
    field, _, what = str(error).partition(": ")
    if field != error.param or not files:
        return error
    return InputError(f"{' or '.join(files)}: {what}", param=error.param)


def build_request(arguments: argparse.Namespace) -> TurnRequest:
    """The turn that the options describe. Raises InputError."""
    if not arguments.parts:
        raise InputError("give a question: a sound file, --text or --image", param="question")
    if any(kind == "text" and not value.strip() for kind, value in arguments.parts):
        raise InputError("--text is empty: give the words of the question", param="text")
    if arguments.now is not None:
        checks.check_now(arguments.now)
    messages: list[Message] = []
    if arguments.system:
        messages.append(Message("system", (TextPart(arguments.system),)))
    if arguments.history:
        messages += read_history(Path(arguments.history), arguments.pack)
    messages.append(
        Message("user", tuple(_part(kind, value, arguments.pack) for kind, value in arguments.parts))
    )
    return TurnRequest(
        turn=TurnId("ask", "1"),
        messages=tuple(messages),
        speech=not arguments.text_only,
        sampling=Sampling(
            temperature=arguments.temperature, seed=arguments.seed, max_tokens=arguments.max_tokens
        ),
        greedy=arguments.greedy,
        max_frames=arguments.max_frames,
        now=arguments.now,
    )


def _part(kind: str, value: str, pack: str) -> Part:
    if kind == "text":
        return TextPart(value)
    if kind == "image":
        data = _read_bytes(Path(value))
        checks.check_picture(data, value, pack)
        return ImagePart(data)
    sound = audio.read(Path(value))
    # Ten minutes at the rates of studios would not fit a transfer, and no model hears the difference.
    rate = min(sound.sample_rate, MAX_RATE)
    return AudioPart(audio.resample(sound.samples, sound.sample_rate, rate), rate)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); name a file that can", param="image"
        ) from error


def read_history(path: Path, pack: str) -> list[Message]:
    """Earlier turns from a JSON file: a list of {"role": "user" | "assistant" | "system", "content":
    TEXT | [{"type": "text", "text": T} | {"type": "audio" | "image", "file": F}, …]}; files are
    relative to the JSON file. Raises InputError that names the entry."""
    try:
        entries = json.loads(_read_bytes(path))
    except ValueError as error:
        raise InputError(f"--history {path}: not JSON: {error}", param="history") from error
    if not isinstance(entries, list):
        raise InputError(f"--history {path}: must be a list of {{role, content}}", param="history")
    return [
        _history_entry(entry, f"--history {path}: entry {n}", path.parent, pack)
        for n, entry in enumerate(entries)
    ]


def _history_entry(entry: object, where: str, folder: Path, pack: str) -> Message:
    if not isinstance(entry, dict) or entry.get("role") not in ("user", "assistant", "system"):
        raise InputError(f"{where}: needs a role (user, assistant or system) and content", param="history")
    content = entry.get("content")
    if isinstance(content, str):
        return Message(entry["role"], (TextPart(content),))
    if not isinstance(content, list) or not content:
        raise InputError(f"{where}: content must be a text or a list of parts", param="history")
    parts: list[Part] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        value = part.get("text" if kind == "text" else "file") if isinstance(part, dict) else None
        if kind not in ("text", "audio", "image") or not isinstance(value, str):
            raise InputError(
                f"{where}: a part is {{type: text, text}} or {{type: audio | image, file}}", param="history"
            )
        parts.append(_part(kind, value if kind == "text" else str(folder / value), pack))
    return Message(entry["role"], tuple(parts))
