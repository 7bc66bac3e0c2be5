"""Which recognisers there are, and how `--recogniser` chooses one."""

from pathlib import Path

from voice_app.config import PackConfig
from voice_app.errors import ConfigError
from voice_app.models.base import Report
from voice_app.models.local import assets
from voice_app.models.local.recogniser import Recogniser

RECOGNISERS = ("moonshine", "whisper")
_VERSIONS = {"moonshine": 1, "whisper": 3}
"""How each hears: raised when the same samples could give other words. A folder is heard with as Whisper."""
DEFAULT = "whisper"
"""Some 40 % fewer word errors than Moonshine (docs/performance.md), in no more time."""


def open_recogniser(config: PackConfig, report: Report) -> Recogniser:
    """Load the recogniser that `config` asks for: one of `RECOGNISERS`, or a folder with a Whisper model in
    CTranslate2's format. Raises ConfigError or ModelFileError."""
    choice = config.recogniser or DEFAULT
    identity = recogniser_identity(config.recogniser)
    # Imported here: each brings a runtime of its own, and only one is used.
    if choice == "moonshine":
        from voice_app.models.local.moonshine import Moonshine

        return Moonshine(assets.ensure(choice, report).parent, identity, config.threads)
    from voice_app.models.local.whisper import Whisper

    if choice == "whisper":
        return Whisper(assets.ensure(choice, report).parent, identity, config.threads)
    folder = Path(choice).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"--recogniser {choice}: neither {' nor '.join(RECOGNISERS)} nor a folder", param="recogniser"
        )
    return Whisper(folder, identity, config.threads)


def recogniser_identity(choice: str | None) -> str:
    """What stands for the recogniser of `--recogniser` in media keys; a folder's changes with its weights."""
    name = choice or DEFAULT
    if name in RECOGNISERS:
        return f"{name}:{_VERSIONS[name]}"
    weights = Path(name).expanduser() / "model.bin"
    return f"{weights}:{weights.stat().st_mtime_ns if weights.exists() else 0}:{_VERSIONS['whisper']}"
