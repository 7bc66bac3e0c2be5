"""`voice-app bench voice`: the local pack's voice, on one thread, without the rest of the pipeline.

Each answer's text goes into the talker, its frames through the code2wav scheduler. Measured: the words that
another recogniser hears in it, the time from a text that is whole to its first sound, and the speed.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from voice_app.bench import report
from voice_app.bench.answers import ANSWERS
from voice_app.bench.heard_back import Spoken, hear
from voice_app.bench.words import error_rate
from voice_app.config import PackConfig
from voice_app.errors import VoiceAppError
from voice_app.messages import (
    AudioChunk,
    CodeFrames,
    EdgePayload,
    PromptIds,
    PromptParams,
    StageEvent,
    TextMark,
    TokenVector,
    TurnId,
)
from voice_app.models.local import code2wav, talker_ar
from voice_app.models.local.code2wav import Code2Wav
from voice_app.models.local.spoken_form import spoken_form
from voice_app.models.local.talker_ar import TalkerAr
from voice_app.schedulers.base import StageInput
from voice_app.schedulers.code2wav import Code2WavScheduler
from voice_app.schedulers.talker import QwenTalkerScheduler

HEARD_BACK_WER = 0.08
FIRST_SOUND_MS = 60.0
REAL_TIME_FACTOR = 0.08
_TURN = TurnId("bench", "voice")


class Utf8Tokens:
    """A tokenizer whose tokens are the bytes of the text."""

    def token_bytes(self, token: int) -> bytes:
        return bytes([token])

    def warm_up(self) -> None:
        pass


@dataclass(slots=True)
class Sound:
    """What was said of one text, and how fast. Times in seconds since the text was whole."""

    samples: np.ndarray
    marks: list[TextMark]
    first_sound: float
    seconds_taken: float


@dataclass(slots=True)
class _Kept:
    """An outbox that keeps what is emitted, with the time."""

    payloads: list[EdgePayload | StageEvent] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def emit(self, turn: TurnId, payload: EdgePayload | StageEvent) -> None:
        self.payloads.append(payload)
        self.times.append(time.perf_counter())

    def has_room(self, turn: TurnId) -> bool:
        return True

    def fail(self, turn: TurnId, error: VoiceAppError) -> None:
        raise error

    def finish(self, turn: TurnId) -> None:
        pass

    def charge(self, turns: Sequence[TurnId], seconds: float) -> None:
        pass


class Speaker:
    """The voice side of the local pack in one thread."""

    def __init__(self, config: PackConfig) -> None:
        self.talker: TalkerAr = talker_ar.build(config, Utf8Tokens(), lambda line: None)
        self.decoder: Code2Wav = code2wav.build(config, lambda line: None)
        self.talker.warm_up()
        self.decoder.warm_up()

    @property
    def rate(self) -> int:
        """Hz."""
        return self.decoder.spec.sample_rate

    def frames(self, text: str, params: PromptParams | None = None) -> list[CodeFrames]:
        """What the talker makes of `text`."""
        kept = _Kept()
        talker = self._talker(text, params, kept)
        while talker.step():
            pass
        return [payload for payload in kept.payloads if isinstance(payload, CodeFrames)]

    def say(self, text: str, params: PromptParams | None = None) -> Sound:
        """`text`, as if it came a byte at a token and all at once."""
        frames, sound = _Kept(), _Kept()
        talker = self._talker(text, params, frames)
        decoder = Code2WavScheduler(self.decoder, sound)
        start = time.perf_counter()
        taken = 0
        while talker.step() or taken < len(frames.payloads):
            for payload in frames.payloads[taken:]:
                assert isinstance(payload, CodeFrames)
                decoder.receive(_input(payload))
                taken += 1
            while decoder.step():
                pass
        chunks = [payload for payload in sound.payloads if isinstance(payload, AudioChunk)]
        return Sound(
            np.concatenate([chunk.samples for chunk in chunks]) if chunks else np.empty(0, np.float32),
            [mark for chunk in chunks for mark in chunk.marks],
            sound.times[0] - start,
            sound.times[-1] - start,
        )

    def _talker(self, text: str, params: PromptParams | None, kept: _Kept) -> QwenTalkerScheduler:
        talker = QwenTalkerScheduler(self.talker, kept)
        talker.receive(_input(PromptIds((), params or PromptParams())))
        for byte in text.encode():
            talker.receive(_input(TokenVector(byte, None)))
        talker.receive(_input(TokenVector(None, None, "stop")))
        return talker


def in_words(text: str) -> str:
    """With numbers in words: a recogniser writes 10:30 or 10 30 for what is said the same way."""
    return " ".join(word.text for word in spoken_form(text))


def _input(payload: EdgePayload) -> StageInput:
    return StageInput(_TURN, payload, speech=True)


def main(json_path: str | None, config: PackConfig | None = None) -> int:
    """Measure and print; returns 1 if a goal was missed."""
    speaker = Speaker(config or PackConfig())
    rate = speaker.rate
    sounds = [speaker.say(written) for written, _ in ANSWERS]
    wanted = [in_words(read or written) for written, read in ANSWERS]
    heard = hear([Spoken(text, sound.samples, rate) for text, sound in zip(wanted, sounds, strict=True)])
    rows = []
    for (written, _), text, words, sound in zip(ANSWERS, wanted, heard, sounds, strict=True):
        wrong = error_rate([(text, in_words(words))])
        rows.append((written, words, f"{wrong:.0%}", f"{sound.first_sound * 1000:.0f}"))
    report.print_table("answers heard back", ("written", "heard", "WER", "first sound, ms"), rows)
    spoken = sum(len(sound.samples) for sound in sounds) / rate
    everything = np.concatenate([sound.samples for sound in sounds])
    figures = {
        "wer": error_rate(zip(wanted, map(in_words, heard), strict=True)),
        "first_sound_ms": 1000 * report.median([sound.first_sound for sound in sounds]),
        "first_sound_p95_ms": 1000 * report.percentile([sound.first_sound for sound in sounds], 95),
        "real_time_factor": sum(sound.seconds_taken for sound in sounds) / spoken,
        "peak": float(np.abs(everything).max()),
        "seconds": spoken,
    }
    goals = [
        report.Goal("words heard wrong", figures["wer"], HEARD_BACK_WER),
        report.Goal("text to first sound, median", figures["first_sound_ms"], FIRST_SOUND_MS, "ms"),
        report.Goal("text to first sound, p95", figures["first_sound_p95_ms"], 2 * FIRST_SOUND_MS, "ms"),
        report.Goal("real-time factor, one thread", figures["real_time_factor"], REAL_TIME_FACTOR),
        report.Goal("highest sample", figures["peak"], 1.0),
    ]
    report.write_json(json_path, dict(figures), goals)
    return report.print_goals(goals)
