"""The fixed list of questions: reading it, and judging an answer. Pure but for reading files."""

import json
import re
import unicodedata
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from voice_app import audio
from voice_app.errors import ConfigError
from voice_app.messages import AudioPart, ImagePart, Part

FOLDER = Path(__file__).parents[2] / "tests" / "data"
_MARKDOWN = re.compile(r"[*_`#]|^\s*[-•]\s|\]\(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Question:
    """One entry: what is said turn by turn, and what an acceptable last answer must hold."""

    id: str
    kind: str
    says: tuple[str, ...]
    accept: str
    reject: str | None = None
    finish_reason: str | None = None
    now: str | None = None
    image: str | None = None
    image_text: str | None = None
    silence_seconds: float = 0.0


def read() -> list[Question]:
    """All questions. Raises ConfigError outside a checkout."""
    path = FOLDER / "questions.json"
    if not path.exists():
        raise ConfigError(f"{path}: not found: the list of questions is in the project's checkout")
    entries = json.loads(path.read_text())["questions"]
    return [
        Question(says=tuple(t["say"] for t in e["turns"]), **{k: v for k, v in e.items() if k != "turns"})
        for e in entries
    ]


def acceptable(question: Question, text: str, finish_reason: str | None, max_words: int = 60) -> bool:
    """Whether the last answer holds what it must, is short, and has nothing that cannot be spoken."""
    if question.finish_reason and finish_reason != question.finish_reason:
        return False
    if len(text.split()) > max_words or _MARKDOWN.search(text) or _has_emoji(text):
        return False
    if question.reject and re.search(question.reject, text, re.IGNORECASE):
        return False
    return re.search(question.accept, text.strip(), re.IGNORECASE) is not None


def _has_emoji(text: str) -> bool:
    return any(unicodedata.category(character) == "So" and character != "°" for character in text)


def parts(question: Question, turn: int) -> tuple[Part, ...]:
    """What the user sends in `turn`: the spoken question, and in the last one the picture."""
    found: list[Part] = []
    if turn == len(question.says) - 1:
        if question.image:
            found.append(ImagePart((FOLDER / "pictures" / question.image).read_bytes()))
        if question.image_text:
            found.append(ImagePart(sign(question.image_text)))
    if question.silence_seconds:
        noise = np.random.default_rng(1).normal(0, 1e-4, int(16000 * question.silence_seconds))
        found.append(AudioPart(noise.astype(np.float32), 16000))
    else:
        sound = audio.read(FOLDER / "spoken" / f"{question.id}-{turn + 1}.flac")
        found.append(AudioPart(sound.samples, sound.sample_rate))
    return tuple(found)


def sign(text: str) -> bytes:
    """A picture of a sign that says `text`, as a JPEG file."""
    picture = Image.new("RGB", (640, 360), (70, 110, 80))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((60, 100, 580, 260), fill=(245, 245, 240), outline=(30, 30, 30), width=6)
    draw.text((320, 180), text, fill=(20, 20, 20), font=ImageFont.load_default(64), anchor="mm")
    file = BytesIO()
    picture.save(file, "JPEG", quality=90)
    return file.getvalue()
