"""Word error rate, both sides brought to one spelling of numbers, contractions and punctuation."""

from collections.abc import Iterable
from functools import cache

from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

from voice_app.errors import ConfigError

try:
    import jiwer
except ImportError as error:
    raise ConfigError("word error rates need jiwer: pip install 'voice-app[dev]'") from error


@cache
def _normalizer() -> EnglishTextNormalizer:
    # Whisper's published way to compare transcripts; its list of British spellings is not needed here.
    return EnglishTextNormalizer({})


def normalised(text: str) -> str:
    """Lower case, no punctuation, contractions written out, numbers as digits."""
    return " ".join(_normalizer()(text).split())


def error_rate(pairs: Iterable[tuple[str, str]]) -> float:
    """Edits a word of the reference over all (reference, heard) pairs; 0 is perfect."""
    edits = words = 0
    for reference, heard in pairs:
        wanted, got = normalised(reference), normalised(heard)
        measures = jiwer.process_words(wanted, got)
        edits += measures.substitutions + measures.deletions + measures.insertions
        words += measures.hits + measures.substitutions + measures.deletions
    return edits / words if words else float("nan")
