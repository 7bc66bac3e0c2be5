"""`voice-app serve`: the server and its workers."""

import argparse
from pathlib import Path

import msgspec

from voice_app.cli import checks, options
from voice_app.errors import ConfigError
from voice_app.models import registry
from voice_app.models.local.catalogue import MODELS
from voice_app.server.settings import TALK_TTL_S, TalkSettings

TURNS_OF_A_TALK = 3
"""Most turns that a talk has in the pipeline at once: one that is answered, one that is begun before the
speaker has surely ended, or that only transcribes, and one that looks at camera frames."""

TALK = TalkSettings()
"""What holds unless an option says otherwise."""
LONGEST_MS = 5000
"""Of the options that say how long speech must be."""
LONGEST_TTL_S = 30 * 24 * 3600
"""Talks are kept in memory."""


def add_parser(commands) -> None:
    """Register the subcommand."""
    parser = commands.add_parser("serve", help="start the server")
    parser.set_defaults(run=run)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default: 8000)")
    access = parser.add_argument_group("access")
    access.add_argument("--keys", type=Path, metavar="FILE", help="API keys: a TOML file of their hashes")
    access.add_argument("--store-keys", action="store_true", help="API keys are in the session store")
    access.add_argument("--open", action="store_true", help="let everybody in, though others can reach it")
    access.add_argument(
        "--origin", action="append", default=[], metavar="URL", help="a page that may connect (repeatable)"
    )
    access.add_argument("--max-talks", type=int, default=64, metavar="N", help="talks at once (default: 64)")
    turns = parser.add_argument_group("turns")
    turns.add_argument(
        "--no-speculation", action="store_true", help="start no work before a turn is surely over"
    )
    turns.add_argument(
        "--no-early-start",
        action="store_true",
        help=f"start none before {TALK.speculate_ms} ms of silence, though nobody else waits",
    )
    turns.add_argument(
        "--min-speech",
        type=int,
        default=TALK.onset_ms,
        metavar="MS",
        help="what the detector calls speech for less is none; it does so for 60 to 140 ms more than a sound "
        f"lasts (default: {TALK.onset_ms})",
    )
    turns.add_argument(
        "--interrupt-after",
        type=int,
        default=TALK.interrupt_ms,
        metavar="MS",
        help="speech that interrupts an answer whatever its words are, counted as in --min-speech; "
        f"0: any does (default: {TALK.interrupt_ms})",
    )
    turns.add_argument(
        "--no-reply-resume",
        action="store_true",
        help="an answer that a sound without words interrupted is not taken up again",
    )
    turns.add_argument(
        "--turn-model", type=Path, metavar="FILE", help="smart-turn for semantic_vad (default: its own)"
    )
    keeping = parser.add_argument_group("keeping talks")
    keeping.add_argument("--redis", metavar="URL", help="session store (default: a Redis of its own)")
    keeping.add_argument("--data", type=Path, metavar="DIR", help="where that Redis keeps its data")
    keeping.add_argument("--store-audio", action="store_true", help="keep sound and pictures too")
    keeping.add_argument(
        "--talk-ttl",
        type=int,
        default=TALK_TTL_S,
        metavar="S",
        help=f"seconds for which a talk whose client is gone can be taken up again (default: {TALK_TTL_S})",
    )
    hosts = parser.add_argument_group("other hosts (docs/deployment.md)")
    hosts.add_argument("--ray", metavar="ADDRESS", help="Ray cluster that starts the workers on other hosts")
    hosts.add_argument(
        "--curve-keys", type=Path, metavar="DIR", help="keys that secure control between hosts (CURVE)"
    )
    options.add_functions_option(parser)
    options.add_pipeline_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped."""
    _check(arguments)
    # Imported here: it takes a second.
    from voice_app.server.serving import ServeOptions, serve
    from voice_app.server.settings import ServerSettings

    config = msgspec.structs.replace(
        options.pipeline_config(arguments),
        max_turns=TURNS_OF_A_TALK * arguments.max_talks,
        ray=arguments.ray,
        curve_keys=str(arguments.curve_keys.resolve()) if arguments.curve_keys else None,
    )
    registry.bring(config.pack, options.reporter())
    offer = registry.offer(config.pack)
    settings = ServerSettings(
        max_talks=arguments.max_talks,
        origins=tuple(arguments.origin),
        store_audio=arguments.store_audio,
        talk_ttl_s=arguments.talk_ttl,
        talk=TalkSettings(
            speculate_ms=None if arguments.no_speculation else TALK.speculate_ms,
            early_ms=None if arguments.no_early_start else TALK.early_ms,
            onset_ms=arguments.min_speech,
            interrupt_ms=arguments.interrupt_after,
            resumes=not arguments.no_reply_resume,
            voices=offer.voices,
            languages=offer.languages,
        ),
    )
    return serve(
        config,
        ServeOptions(
            host=arguments.host,
            port=arguments.port,
            redis=arguments.redis,
            data=arguments.data,
            keys=arguments.keys,
            store_keys=arguments.store_keys,
            open_to_all=arguments.open,
            turn_model=arguments.turn_model or _pulled_turn_model(),
            functions=arguments.functions,
            settings=settings,
        ),
    )


def _pulled_turn_model() -> Path | None:
    """The end-of-turn model that comes with the local pack, where it has been pulled."""
    model = MODELS["turn_taking"]
    path = model.folder / next(file.name for file in model.files if file.name.startswith("smart-turn"))
    return path if path.is_file() else None


def _check(arguments: argparse.Namespace) -> None:
    """Raises ConfigError for an option that would be found wrong only after the models are there."""
    if arguments.max_talks < 1:
        raise ConfigError(f"--max-talks {arguments.max_talks}: must be at least 1", param="max_talks")
    if not 1 <= arguments.talk_ttl <= LONGEST_TTL_S:
        raise ConfigError(
            f"--talk-ttl {arguments.talk_ttl}: must be between 1 and {LONGEST_TTL_S}", param="talk_ttl"
        )
    for option, value in (
        ("--min-speech", arguments.min_speech),
        ("--interrupt-after", arguments.interrupt_after),
    ):
        if not 0 <= value <= LONGEST_MS:
            name = option.removeprefix("--").replace("-", "_")
            raise ConfigError(f"{option} {value}: must be between 0 and {LONGEST_MS}", param=name)
    if not 0 <= arguments.port <= 65535:
        raise ConfigError(f"--port {arguments.port}: must be between 0 and 65535", param="port")
    for origin in arguments.origin:
        checks.check_origin(origin)
    if arguments.redis is not None:
        checks.check_redis(arguments.redis)
    if arguments.data is not None:
        checks.check_data(arguments.data)
    if arguments.turn_model is not None and not arguments.turn_model.is_file():
        raise ConfigError(
            f"--turn-model {arguments.turn_model}: no such file; name smart-turn's ONNX file",
            param="turn_model",
        )
    if arguments.curve_keys is not None and not arguments.curve_keys.is_dir():
        raise ConfigError(
            f"--curve-keys {arguments.curve_keys}: no such folder; docs/deployment.md says how to make one",
            param="curve_keys",
        )
