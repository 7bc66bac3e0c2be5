"""What the local pack offers to clients. Opens no model."""

from pathlib import Path

from voice_app.config import PackConfig
from voice_app.models.base import Offer
from voice_app.models.local.catalogue import MODELS
from voice_app.models.local.piper_settings import read_settings, settings_path, speakers

LANGUAGES = ("en",)
"""A recogniser of many languages is told that it hears English, and the brain and the voice know no other."""


def offer(config: PackConfig) -> Offer:
    """Raises ModelFileError where the voice's settings are there, and damaged."""
    packaged = MODELS["voice"]
    voice = Path(config.voice) if config.voice else packaged.folder / packaged.files[0].name
    if not settings_path(voice).is_file():
        return Offer(languages=LANGUAGES)
    return Offer(tuple(speakers(voice.stem, read_settings(voice))), LANGUAGES)
