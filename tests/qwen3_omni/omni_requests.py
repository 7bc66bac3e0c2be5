"""Requests for the tests: deterministic sounds, pictures and words, all small."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from voice_app import messages as m


def sound(seed: int, seconds: float = 1.3) -> m.AudioPart:
    """Noise that swells and fades, so that no two seconds are alike."""
    rng = np.random.default_rng(seed)
    count = int(seconds * 16000)
    swell = 0.1 + 0.1 * np.sin(np.arange(count) / 3000 + seed)
    return m.AudioPart((rng.standard_normal(count) * swell).astype(np.float32), 16000)


def picture(seed: int, width: int = 128, height: int = 96) -> m.ImagePart:
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 255, (6, 8, 3), dtype=np.uint8))
    file = io.BytesIO()
    coarse.resize((width, height)).save(file, "PNG")
    return m.ImagePart(file.getvalue())


def text(words: str) -> m.TextPart:
    return m.TextPart(words)


def user(*parts: m.Part) -> m.Message:
    return m.Message("user", parts)


def assistant(words: str) -> m.Message:
    return m.Message("assistant", (m.TextPart(words),))


def system(words: str) -> m.Message:
    return m.Message("system", (m.TextPart(words),))


def greedy(
    name: str,
    *messages: m.Message,
    tokens: int = 10,
    frames: int = 14,
    speech: bool = True,
    voice: str | None = None,
) -> m.TurnRequest:
    return m.TurnRequest(
        turn=m.TurnId("test", name),
        messages=messages,
        speech=speech,
        voice=voice,
        greedy=True,
        sampling=m.Sampling(max_tokens=tokens),
        max_frames=frames,
    )


def kinds() -> Sequence[m.TurnRequest]:
    """One request of each kind that the model takes."""
    return (
        greedy("text", user(text("Hello there, what time is it?"))),
        greedy("audio", user(sound(1))),
        greedy("image", user(picture(2), text("What do you see in the picture?"))),
        greedy("audio and image", user(sound(3), picture(4))),
        greedy(
            "between words",
            user(text("Listen:"), sound(5, 2.1), text("and look:"), picture(6), text("Well?")),
        ),
        greedy(
            "two turns",
            system("You speak briefly."),
            user(sound(7)),
            assistant("It is ten past nine."),
            user(picture(8, 96, 160), text("And now?")),
            voice="Chelsie",
        ),
        greedy("two pictures", user(picture(9), picture(10, 160, 96), text("Compare."))),
        greedy("short sound", user(sound(11, 0.4), text("Again?"))),
        greedy("written", user(text("Please answer in writing.")), speech=False),
    )
