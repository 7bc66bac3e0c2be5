"""`voice-app bench recognisers`: word error rate and latency of each recogniser, the way it runs in the pack.

Speech: human prompts (one professional speaker) and questions spoken by espeak-ng, each clean, in pink noise
at 20, 10 and 5 dB, in white noise at 10 dB, through a telephone's band (8 kHz), from 44.1 kHz, with two
seconds of faint noise before and after, and quiet. Non-speech: silence, noise, hum, tones, clicks, monkeys.
Everything goes through preprocessing first, as in a turn. Times are the processor's on one thread: what a
call takes with a core for itself.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from voice_app import audio
from voice_app.bench import report, speech
from voice_app.bench.words import error_rate
from voice_app.config import PackConfig
from voice_app.models.local import assets
from voice_app.models.local.audio_encoder import transcribe
from voice_app.models.local.listening import Listening
from voice_app.models.local.recogniser import Recogniser
from voice_app.models.local.recognisers import RECOGNISERS, open_recogniser

RATE = speech.RATE
VOICES = (("en-us", 155), ("en-gb+f3", 165))
SECONDS = (2, 5, 10)
OTHER_SOUNDS = ("beep", "beeperr", "ascending-2tone", "confbridge-join", "silence/3", "tt-monkeys")
"""Those of the prompts' package that hold no words."""

Change = Callable[[np.ndarray, int], np.ndarray]
"""(clean speech at 16 kHz, a seed) → the same speech, spoilt, at 16 kHz."""


def _padded(samples: np.ndarray, seed: int) -> np.ndarray:
    hush = 0.001 * speech.pink_noise(2 * RATE, seed)
    return np.concatenate([hush, samples, hush])


CHANGES: dict[str, Change] = {
    "clean": lambda samples, seed: samples,
    "pink 20 dB": lambda samples, seed: speech.with_noise(samples, 20, seed),
    "pink 10 dB": lambda samples, seed: speech.with_noise(samples, 10, seed),
    "pink 5 dB": lambda samples, seed: speech.with_noise(samples, 5, seed),
    "white 10 dB": lambda samples, seed: speech.with_noise(samples, 10, seed, pink=False),
    "8 kHz": lambda samples, seed: audio.resample(audio.resample(samples, RATE, 8000), 8000, RATE),
    "44.1 kHz": lambda samples, seed: audio.resample(audio.resample(samples, RATE, 44100), 44100, RATE),
    "silence around": _padded,
    "20 dB quieter": lambda samples, seed: samples * 0.1,
}


@dataclass(frozen=True, slots=True)
class Result:
    """One recogniser. `errors`: (set of speech, change) → word error rate. `made_up`: what it heard where
    nothing was said. `latency_ms`: seconds of speech → median of its own time in ms."""

    name: str
    errors: dict[tuple[str, str], float]
    made_up: dict[str, str]
    mean_ms: float
    latency_ms: dict[int, float]


def main(json_path: str | None) -> int:
    """Measure, print the tables, keep the figures."""
    quiet = assets.silent
    listening = Listening(assets.ensure("turn_taking", quiet))
    results = []
    for name in RECOGNISERS:
        recogniser = open_recogniser(PackConfig(recogniser=name), quiet)
        results.append(measure(name, recogniser, listening))
    _print(results)
    report.write_json(json_path, {"recognisers": [_figures(result) for result in results]})
    return 0


def measure(name: str, recogniser: Recogniser, listening: Listening) -> Result:
    """All figures of one recogniser."""
    recogniser.hear(np.zeros(RATE, np.float32))
    times: list[float] = []

    def hear(samples: np.ndarray) -> str:
        heard = listening.speech(samples)
        start = time.process_time()
        text = transcribe(recogniser, heard)
        times.append(time.process_time() - start)
        return text

    sets = {"human": list(human()), "synthetic": list(synthetic())}
    errors = {
        (kind, change): error_rate(
            (text, hear(spoil(samples, seed))) for seed, (text, samples) in enumerate(pairs)
        )
        for kind, pairs in sets.items()
        for change, spoil in CHANGES.items()
    }
    mean_ms = 1000 * float(np.mean(times))
    wordless = machine_sounds() | {name: speech.asterisk_prompt(name) for name in OTHER_SOUNDS}
    made_up = {what: text for what, samples in wordless.items() if (text := hear(samples))}
    return Result(name, errors, made_up, mean_ms, _latency(recogniser))


def _latency(recogniser: Recogniser) -> dict[int, float]:
    talk = np.concatenate([samples for _, samples in human()])
    found = {}
    for seconds in SECONDS:
        times = []
        for start in range(0, 10 * seconds * RATE, 2 * seconds * RATE):
            begin = time.process_time()
            recogniser.hear(talk[start : start + seconds * RATE])
            times.append(1000 * (time.process_time() - begin))
        found[seconds] = report.median(times)
    return found


def human() -> Iterator[tuple[str, np.ndarray]]:
    """(words, samples at 16 kHz): every human prompt whose words are known."""
    for name, text in speech.PROMPTS.items():
        yield text, speech.asterisk_prompt(name)


def synthetic() -> Iterator[tuple[str, np.ndarray]]:
    """(words, samples at 16 kHz): every question in two voices of espeak-ng."""
    for text in speech.QUESTIONS:
        for voice, speed in VOICES:
            yield text, speech.spoken(text, voice, speed)


def machine_sounds() -> dict[str, np.ndarray]:
    """What → samples at 16 kHz, in which nobody speaks."""
    count = 3 * RATE
    t = np.arange(count) / RATE
    hum = np.sum([np.sin(2 * np.pi * 50 * k * t) / k for k in range(1, 9)], axis=0)
    sounds = {
        "digital silence": np.zeros(count),
        "mains hum": 0.1 * hum,
        "tone": 0.2 * np.sin(2 * np.pi * 1000 * t),
        "clicks": clicks(count, every=RATE // 2),
        "typing": clicks(count, every=RATE // 8),
    }
    for level in (0.001, 0.03, 0.3):
        sounds[f"pink noise {level}"] = level * speech.pink_noise(count, 1)
        sounds[f"white noise {level}"] = level * speech.white_noise(count, 1)
    return {what: samples.astype(np.float32) for what, samples in sounds.items()}


def clicks(count: int, every: int) -> np.ndarray:
    """[count] float32: a 2 ms click every `every` samples."""
    click = np.random.default_rng(0).standard_normal(32) * np.exp(-np.arange(32) / 8)
    samples = np.zeros(count, np.float32)
    for start in range(every // 2, count - 32, every):
        samples[start : start + 32] = 0.5 * click
    return samples


def _print(results: list[Result]) -> None:
    report.print_table(
        "word error rate",
        ("speech", "condition", *(result.name for result in results)),
        [
            (kind, change, *(f"{100 * result.errors[kind, change]:.1f} %" for result in results))
            for kind, change in results[0].errors
        ],
    )
    report.print_table(
        "processor time, one thread",
        ("", *(result.name for result in results)),
        [
            ("mean over all speech above", *(f"{result.mean_ms:.0f} ms" for result in results)),
            *(
                (f"{seconds} s of speech", *(f"{result.latency_ms[seconds]:.0f} ms" for result in results))
                for seconds in SECONDS
            ),
        ],
    )
    for result in results:
        print(f"{result.name}, heard where nothing was said: {result.made_up or 'nothing'}")


def _figures(result: Result) -> dict[str, object]:
    return {
        "name": result.name,
        "word_error_rate": {f"{kind}, {change}": rate for (kind, change), rate in result.errors.items()},
        "made_up": result.made_up,
        "mean_ms": result.mean_ms,
        "latency_ms": {str(seconds): ms for seconds, ms in result.latency_ms.items()},
    }
