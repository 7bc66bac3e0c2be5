"""Speech with known words for tests: `voice_app.bench.speech`, where a missing program skips the test."""

import numpy as np
from needs import missing

from voice_app.bench import speech
from voice_app.bench.speech import PROMPTS, QUESTIONS, RATE, pink_noise, with_noise

__all__ = ["PROMPTS", "QUESTIONS", "RATE", "asterisk_prompt", "pink_noise", "spoken", "with_noise"]


def spoken(text: str, voice: str = "en-us", words_a_minute: int = 155) -> np.ndarray:
    """`text` spoken by espeak-ng: [n] float32 at 16 kHz."""
    try:
        return speech.spoken(text, voice, words_a_minute)
    except speech.Missing as error:
        missing(error.what, f"apt-get install {error.package}")


def asterisk_prompt(name: str) -> np.ndarray:
    """A human prompt of `PROMPTS`: [n] float32 at 16 kHz."""
    try:
        return speech.asterisk_prompt(name)
    except speech.Missing as error:
        missing(error.what, f"apt-get install {error.package}")
