"""Whisper and the silence after speech: without it the decoder says over again what it said."""

from pathlib import Path

import ctranslate2
import numpy as np
import pytest
import soundfile
from speech import PROMPTS, RATE, asterisk_prompt, with_noise

from voice_app import audio
from voice_app.bench.words import error_rate, normalised
from voice_app.models.local import assets
from voice_app.models.local.audio_encoder import believed
from voice_app.models.local.listening import Listening
from voice_app.models.local.whisper import Whisper

pytestmark = pytest.mark.models
SPOKEN = Path(__file__).parents[1] / "data" / "spoken"

SHORT = (
    "all-circuits-busy-now",
    "conf-leaderhasleft",
    "confbridge-pin-bad",
    "demo-echodone",
    "dir-nomatch",
    "please-try-call-later",
    "queue-youarenext",
    "vm-tooshort",
)
"""1.8 to 5.4 s of speech, every one said twice or more by a decoder that no silence stops."""

LONG = (
    ("vm-whichbox", "check-number-dial-again", "confbridge-lock-no-join", "vm-tooshort"),
    ("conf-leaderhasleft", "tt-weasels", "conf-placeintoconf", "queue-thankyou"),
    ("vm-rec-name", "vm-whichbox", "conf-waitforleader", "cannot-complete-as-dialed"),
    ("tt-allbusy", "agent-alreadyon", "demo-nomatch", "queue-thankyou"),
)
"""10 to 21 s of speech whose last sentence was said again when a window ended with the speech."""


@pytest.fixture(scope="module")
def listening() -> Listening:
    return Listening(assets.ensure("turn_taking"))


@pytest.fixture(scope="module")
def whisper() -> Whisper:
    return Whisper(assets.ensure("whisper").parent, "whisper")


def rounds(text: str, words: str) -> int:
    """How often `text` begins to say `words`."""
    start = " ".join(words.split()[:2])
    return normalised(text).count(start)


def without_silence(features: np.ndarray) -> str:
    """What the model makes of `features` [mels, frames] alone, in at most 40 tokens."""
    model = ctranslate2.models.Whisper(str(assets.ensure("whisper").parent), compute_type="int8")
    view = ctranslate2.StorageView.from_array(features[None])
    prompt = ["<|startoftranscript|>", "<|notimestamps|>"]
    (result,) = model.generate(view, [prompt], beam_size=1, max_length=40)
    return "".join(result.sequences[0]).replace("Ġ", " ")


def test_speech_is_said_once(listening: Listening, whisper: Whisper) -> None:
    speech = {name: listening.speech(asterisk_prompt(name)) for name in SHORT}
    heard = {name: whisper.hear(samples).text for name, samples in speech.items()}
    assert error_rate((PROMPTS[name], text) for name, text in heard.items()) <= 0.05, heard
    assert {rounds(text, PROMPTS[name]) for name, text in heard.items()} == {1}, heard


def test_without_silence_it_is_said_again(listening: Listening, whisper: Whisper) -> None:
    """What the test above would see if nothing followed the speech. Most: rounding differs by processor."""
    alone = {
        name: without_silence(whisper.features(listening.speech(asterisk_prompt(name)))) for name in SHORT
    }
    again = [name for name, text in alone.items() if rounds(text, PROMPTS[name]) > 1]
    assert len(again) > len(SHORT) / 2, alone


@pytest.mark.parametrize("names", LONG)
def test_long_speech_is_said_once(listening: Listening, whisper: Whisper, names: tuple[str, ...]) -> None:
    pause = np.zeros(RATE // 4, np.float32)
    talk = np.concatenate([sound for name in names for sound in (asterisk_prompt(name), pause)])
    heard = whisper.hear(listening.speech(talk))
    assert not heard.looped
    assert error_rate([(" ".join(PROMPTS[name] for name in names), heard.text)]) <= 0.05, heard
    assert rounds(heard.text, PROMPTS[names[-1]]) == 1, heard


def test_short_speech_costs_what_is_in_it(whisper: Whisper) -> None:
    """The encoder's cost is its frames', 10 ms each: the speech's and a second around it."""
    for seconds in (0, 1, 2, 9.5, whisper.max_seconds):
        samples = np.zeros(int(seconds * RATE), np.float32)
        assert whisper.features(samples).shape == (80, 100 * (seconds + 1))


def test_short_speech_that_leaves_doubt_is_heard_again(listening: Listening, whisper: Whisper) -> None:
    """In noise, where a first hearing made "the Varn gang" of a good morning."""
    steps: list[int] = []

    class Watched(Whisper):
        def features(self, samples: np.ndarray, least: int = 0) -> np.ndarray:
            steps.append(least)
            return super().features(samples, least)

    noisy = {
        "good morning": with_noise(question("chit-chat-2-1"), 20, 5),
        "i have a dog called rex": with_noise(question("follow-up-5-1"), 10, 27),
        "hello world": with_noise(asterisk_prompt("hello-world"), 20, 22),
    }
    sounds = [*noisy.values(), *(asterisk_prompt(name) for name in SHORT)]
    some = [listening.speech(samples) for samples in sounds]
    watched = Watched(assets.ensure("whisper").parent, "watched")
    heard = [watched.hear(samples) for samples in some]
    again = len(steps) - len(some)
    assert 0 < again <= len(noisy)
    assert sorted(steps) == [0] * len(some) + [525] * again
    assert error_rate(zip(noisy, map(believed, heard), strict=False)) <= 0.2, heard
    assert [one.text for one in heard] == [whisper.hear(samples).text for samples in some]


def question(name: str) -> np.ndarray:
    samples, rate = soundfile.read(SPOKEN / f"{name}.flac", dtype="float32")
    return audio.resample(samples, rate, RATE)
