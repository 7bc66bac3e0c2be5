"""What a Qwen3-Omni checkpoint offers to clients. Opens no model, and fetches nothing."""

import json
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from voice_app.config import PackConfig
from voice_app.models.base import Offer

LANGUAGES = (
    "en", "zh", "ko", "ja", "de", "ru", "it", "fr", "es", "pt", "ms", "nl", "id", "tr", "vi", "yue",
    "ar", "ur",
)  # fmt: skip
"""Of speech that it hears, as the published model card names them."""


def offer(config: PackConfig) -> Offer:
    """Its speakers, where config.json is there already; the workers tell what is wrong with it."""
    path = _config(config.model or "")
    try:
        read = json.loads(path.read_text(encoding="utf-8")) if path else {}
        speakers = tuple(read["talker_config"]["speaker_id"])
    except (OSError, ValueError, LookupError, TypeError):
        speakers = ()
    return Offer(speakers, LANGUAGES)


def _config(model: str) -> Path | None:
    """`model`: a folder or a hub id."""
    folder = Path(model)
    if folder.is_dir():
        return folder / "config.json"
    try:
        cached = try_to_load_from_cache(model, "config.json")
    except HFValidationError:
        return None
    return Path(cached) if isinstance(cached, str) else None
