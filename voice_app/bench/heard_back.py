"""How well an answer's sound is understood: heard by a recogniser, compared with the answer's text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from voice_app.audio import resample
from voice_app.bench.words import error_rate
from voice_app.config import PackConfig
from voice_app.models.local.recogniser import SAMPLE_RATE
from voice_app.models.local.recognisers import DEFAULT, RECOGNISERS, open_recogniser


@dataclass(frozen=True, slots=True)
class Spoken:
    """An answer: its text, and its voice `samples` [n] float32 at `sample_rate` Hz."""

    text: str
    samples: np.ndarray
    sample_rate: int


def other_recogniser() -> str:
    """The packaged recogniser that the pack does not use by default: a listener of its own mind."""
    return next(name for name in RECOGNISERS if name != DEFAULT)


def hear(answers: Sequence[Spoken], recogniser: str | None = None) -> list[str]:
    """What `recogniser` (default: `other_recogniser`) understands of each answer, in its longest window."""
    listener = open_recogniser(PackConfig(recogniser=recogniser or other_recogniser()), lambda line: None)
    most = int(listener.max_seconds * SAMPLE_RATE)
    heard: list[str] = []
    for answer in answers:
        samples = resample(answer.samples, answer.sample_rate, SAMPLE_RATE)
        cuts = [samples[start : start + most] for start in range(0, max(1, len(samples)), most)]
        heard.append(" ".join(listener.hear(_filled(cut, most)).text for cut in cuts))
    return heard


def word_error_rate(answers: Sequence[Spoken], recogniser: str | None = None) -> float:
    """Edits a word of the text over all `answers`; NaN if there are none."""
    if not answers:
        return float("nan")
    return error_rate(zip([answer.text for answer in answers], hear(answers, recogniser), strict=True))


def _filled(samples: np.ndarray, length: int) -> np.ndarray:
    """Silence up to `length`: Whisper hears best in the long window that it was trained on."""
    window = np.zeros(length, np.float32)
    window[: len(samples)] = samples
    return window
