"""How well an answer's sound is understood: recognised by Whisper tiny.en and compared with its text."""

import re
from collections.abc import Sequence

import numpy as np

from voice_app.audio import resample


def word_error_rate(spoken: Sequence[tuple[str, np.ndarray, int]]) -> float:
    """Over all of `spoken` (text, samples [n] float32, sample rate): edits a word of the text, both
    sides brought to one spelling of numbers and symbols."""
    raise AssertionError
