"""What callers say: recordings as subjects of one or several turns, and the pictures they show."""

import base64
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from voice_app import audio
from voice_app.bench import callers
from voice_app.bench import speech as sources
from voice_app.errors import ConfigError

ASTERISK = "asterisk"
LONGEST_S = 6.0
"""Of the asterisk prompts only shorter ones are used: longer ones are speeches."""
WINDOW_S = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """`samples`: [n] float32 at 24 kHz, from the first word to the last. `pause_at`: index at which a speaker
    who hesitates would, the quietest point of the middle half."""

    name: str
    samples: np.ndarray
    pause_at: int


Subject = tuple[Recording, ...]
"""What is said one after the other: a question, and its follow-ups."""


def subjects(patterns: Iterable[str], folder: Path) -> list[Subject]:
    """The recordings that `patterns` name, seen from `folder`. Raises ConfigError if one names none,
    InputError if a file is no sound."""
    found: list[Recording] = []
    for pattern in patterns:
        found += _asterisk() if pattern == ASTERISK else [_read(path) for path in files(pattern, folder)]
    found.sort(key=lambda recording: _numbers(recording.name))
    return [tuple(group) for _, group in groupby(found, key=lambda recording: subject_of(recording.name))]


def subject_of(name: str) -> str:
    """The name without a last number that counts the turns of a subject."""
    return re.sub(r"-\d+$", "", name)


def files(pattern: str, folder: Path) -> list[Path]:
    """The files that `pattern` names, seen from `folder`, in order. Raises ConfigError if there are none."""
    path = Path(pattern)
    root = Path(path.anchor) if path.is_absolute() else folder
    found = sorted(p for p in root.glob(str(path.relative_to(path.anchor))) if p.is_file())
    if not found:
        raise ConfigError(f"{pattern!r}: there is no such file, seen from {folder}", param="scenario")
    return found


def recording(name: str, samples: np.ndarray) -> Recording:
    """`samples`: [n] float32 at 24 kHz, without silence around it."""
    step = round(WINDOW_S * callers.RATE)
    windows = samples[: len(samples) // step * step].reshape(-1, step)
    loudness = np.square(windows).mean(axis=1)
    quarter = len(loudness) // 4
    middle = loudness[quarter : len(loudness) - quarter]
    quietest = quarter + int(middle.argmin()) if len(middle) else 0
    return Recording(name, samples, quietest * step)


def picture_events(patterns: Sequence[str], folder: Path) -> list[str]:
    """The pictures as events of the extension `camera`. Raises ConfigError."""
    return [
        json.dumps(
            {"type": "input_image_buffer.append", "image": base64.b64encode(path.read_bytes()).decode()}
        )
        for pattern in patterns
        for path in files(pattern, folder)
    ]


def _read(path: Path) -> Recording:
    return recording(path.stem, callers.speech(path))


def _asterisk() -> list[Recording]:
    found: list[Recording] = []
    for name in sources.PROMPTS:
        try:
            prompt = sources.asterisk_prompt(name)
        except sources.Missing as error:
            raise ConfigError(f"{ASTERISK!r}: {error}", param="scenario") from error
        if len(prompt) < LONGEST_S * sources.RATE:
            samples = audio.resample(prompt, sources.RATE, callers.RATE)
            found.append(recording(f"{ASTERISK}/{name}", callers.without_silence(samples)))
    return found


def _numbers(name: str) -> list[tuple[str, int]]:
    """A key that sorts trip-2 before trip-10."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name)]
