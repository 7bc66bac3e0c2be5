"""Real and synthetic speech with known words, and ways to spoil it: for benchmarks and tests.

`asterisk_prompt` is human: Debian's asterisk-core-sounds-en-g722, one professional speaker, 16 kHz. The words
below are what she says, in our own transcription. `spoken` is espeak-ng, another synthesiser than the app's.
Decoded and spoken sounds are cached in the user's cache.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np

from voice_app import audio
from voice_app.config import home

RATE = 16_000
"""Of everything that this module gives, in Hz."""

PROMPT_FOLDER = Path("/usr/share/asterisk/sounds/en_US_f_Allison")
PROMPT_PACKAGE = "asterisk-core-sounds-en-g722"

PROMPTS: dict[str, str] = {
    "agent-alreadyon": "that agent is already logged on please enter your agent number followed by the pound "
    "key",
    "agent-newlocation": "please enter a new extension followed by pound",
    "all-circuits-busy-now": "all circuits are busy now",
    "cannot-complete-as-dialed": "your call cannot be completed as dialed",
    "check-number-dial-again": "please check the number and dial again",
    "conf-full": "that conference is full",
    "conf-invalid": "that is not a valid conference number please try again",
    "conf-leaderhasleft": "the leader has left the conference",
    "conf-onlyperson": "you are currently the only person in this conference",
    "conf-placeintoconf": "you will now be placed into the conference",
    "conf-waitforleader": "the conference will begin when the leader arrives",
    "confbridge-lock-no-join": "the conference is currently locked and cannot be joined",
    "confbridge-pin-bad": "you have entered too many invalid personal identification numbers",
    "demo-echodone": "the echo test has been completed",
    "demo-nomatch": "i am sorry there are no matches for those keywords",
    "dir-instr": "if this is the person you are looking for press one now otherwise please press star now",
    "dir-nomatch": "no directory entries match your search",
    "enter-num-blacklist": "please enter the number to be blacklisted",
    "feature-not-avail-line": "that feature is not available on this line",
    "followme/options": "press one to accept this call or two to reject it",
    "followme/pls-hold-while-try": "please hold while i try to locate the person you are calling",
    "followme/sorry": "i am sorry but i was unable to locate the person you are calling",
    "hello-world": "hello world",
    "invalid": "i am sorry that is not a valid extension please try again",
    "please-try-call-later": "please try your call again later",
    "priv-callpending": "i have a caller waiting who introduces themselves as",
    "queue-periodic-announce": "all of our representatives are currently busy please stay on the line and "
    "your call will be answered by the next available representative",
    "queue-thankyou": "thank you for your patience",
    "queue-youarenext": "your call is now first in line and will be answered by the next available "
    "representative",
    "something-terribly-wrong": "something is terribly wrong",
    "sorry-youre-having-problems": "sorry you are having problems",
    "tt-allbusy": "all representatives of the household are currently assisting other telemarketers please "
    "hold and your call will be answered in the order it was received",
    "tt-weasels": "weasels have eaten our phone system",
    "vm-intro": "please leave your message after the tone when done hang up or press the pound key",
    "vm-nobodyavail": "nobody is available to take your call at the moment",
    "vm-rec-name": "after the tone say your name and then press the pound key",
    "vm-tooshort": "your message is too short",
    "vm-whichbox": "to leave a message please enter a mailbox number",
}
"""Name of a sound → the words in it (lower case, no punctuation, numbers in words)."""

QUESTIONS: tuple[str, ...] = (
    "what is the capital of france",
    "how many days are there in a week",
    "who wrote romeo and juliet",
    "what is seven times eight",
    "what time is it now",
    "can you tell me a short joke",
    "which planet is closest to the sun",
    "my name is john please remember it",
    "what do you see in the picture",
    "how do i boil an egg",
    "what is the tallest mountain in the world",
    "where do penguins live",
    "tell me something about the moon",
    "is a whale a fish or a mammal",
    "what should i cook for dinner tonight",
    "how far is it from london to paris",
    "what colour do you get when you mix blue and yellow",
    "thank you that was very helpful",
    "please stop talking for a moment",
    "what is the weather like in the winter",
)
"""What a user might ask, for `spoken`."""


class Missing(Exception):
    """A program or sound that this machine lacks; `what` and the Debian `package` that brings it."""

    def __init__(self, what: str, package: str) -> None:
        super().__init__(f"needs {what}: apt-get install {package}")
        self.what = what
        self.package = package


def spoken(text: str, voice: str = "en-us", words_a_minute: int = 155) -> np.ndarray:
    """`text` spoken by espeak-ng: [n] float32 at 16 kHz. Raises Missing."""
    program = _program("espeak-ng")
    key = hashlib.blake2b(f"{voice} {words_a_minute} {text}".encode(), digest_size=12).hexdigest()
    return _made(f"espeak-{key}", (program, "-v", voice, "-s", str(words_a_minute), "--stdout", text))


def asterisk_prompt(name: str) -> np.ndarray:
    """A human prompt of `PROMPTS` (or any other sound of the package): [n] float32 at 16 kHz.

    Raises Missing."""
    source = PROMPT_FOLDER / f"{name}.g722"
    if not source.exists():
        raise Missing(str(source), PROMPT_PACKAGE)
    program = _program("ffmpeg")
    make = (program, "-v", "error", "-f", "g722", "-i", str(source), "-f", "wav", "-")
    return _made(f"asterisk-{name.replace('/', '-')}", make)


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Missing(name, name)
    return path


@lru_cache(maxsize=256)
def _made(name: str, make: tuple[str, ...]) -> np.ndarray:
    """The 16 kHz samples of the WAV that the command `make` prints; kept in a file and in memory."""
    path = home() / "speech" / f"{name}.wav"
    if not path.exists():
        made = audio.read(subprocess.run(make, check=True, capture_output=True).stdout, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, suffix=".wav")
        os.close(handle)
        audio.write(Path(part), audio.resample(made.samples, made.sample_rate, RATE), RATE)
        os.replace(part, path)
    samples = audio.read(path).samples
    samples.flags.writeable = False
    return samples


def with_noise(samples: np.ndarray, snr_db: float, seed: int = 0, *, pink: bool = True) -> np.ndarray:
    """`samples` [n] with noise mixed in (pink, whose slope is much like speech's own, or white), `snr_db`
    below the speech's power where it is loud (`loudness`)."""
    noise = (pink_noise if pink else white_noise)(len(samples), seed)
    return (samples + noise * (loudness(samples) / 10 ** (snr_db / 20))).astype(np.float32)


def loudness(samples: np.ndarray) -> float:
    """Root mean square over the 20 ms frames within 30 dB of the loudest."""
    size = RATE // 50
    power = np.square(samples[: len(samples) // size * size].reshape(-1, size)).mean(axis=1)
    return float(np.sqrt(power[power > power.max() * 1e-3].mean()))


def pink_noise(count: int, seed: int = 0) -> np.ndarray:
    """[count] float32 of unit power, -3 dB an octave."""
    spectrum = np.fft.rfft(np.random.default_rng(seed).standard_normal(count))
    spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum)))
    spectrum[0] = 0
    noise = np.fft.irfft(spectrum, count)
    return (noise / noise.std()).astype(np.float32)


def white_noise(count: int, seed: int = 0) -> np.ndarray:
    """[count] float32 of unit power, the same at every frequency."""
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)
