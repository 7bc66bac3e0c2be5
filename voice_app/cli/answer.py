"""What `ask` does with an answer: collect it, time it, play it, write it."""

import asyncio
import shutil
import time
from asyncio.subprocess import Process
from dataclasses import dataclass, field

import numpy as np

from voice_app import audio
from voice_app.errors import ConfigError
from voice_app.messages import (
    AudioChunk,
    StageTiming,
    TextDelta,
    TextDone,
    Transcript,
    TurnDone,
    TurnEvent,
)


@dataclass(slots=True)
class Answer:
    """One answer as it grows. Times are milliseconds since `begin`."""

    transcript: str | None = None
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    sample_rate: int = 24000
    chunks: list[np.ndarray] = field(default_factory=list)
    codes: list[list[int]] = field(default_factory=list)
    """Frames × groups; none from a voice without codes."""
    stages: dict[str, StageTiming] = field(default_factory=dict)
    first_text_ms: float | None = None
    first_audio_ms: float | None = None
    end_to_end_ms: float | None = None
    _start: float = 0.0

    def begin(self) -> None:
        """The question has been submitted."""
        self._start = time.perf_counter()

    def take(self, event: TurnEvent) -> str:
        """Account for `event`; returns the words to show, if any."""
        now = (time.perf_counter() - self._start) * 1000
        match event:
            case Transcript(text):
                self.transcript = text
            case TextDelta(text, token_ids):
                if self.first_text_ms is None:
                    self.first_text_ms = now
                self.text += text
                self.token_ids += token_ids
                return text
            case TextDone(finish_reason):
                self.finish_reason = finish_reason
            case AudioChunk(samples, sample_rate, codes=codes):
                if self.first_audio_ms is None and len(samples):
                    self.first_audio_ms = now
                self.sample_rate = sample_rate
                self.chunks.append(np.array(samples, dtype=np.float32))
                if codes is not None:
                    self.codes += codes.tolist()
            case TurnDone(stages):
                self.stages = stages
                self.end_to_end_ms = now
            case _:
                pass
        return ""

    @property
    def samples(self) -> np.ndarray:
        """The whole voice, [n] float32 mono."""
        return np.concatenate(self.chunks) if self.chunks else np.zeros(0, np.float32)

    def summary(self) -> dict[str, object]:
        """What `--json` prints."""
        return {
            "transcript": self.transcript,
            "text": self.text,
            "token_ids": self.token_ids,
            "codes": self.codes,
            "sample_rate": self.sample_rate,
            "samples": len(self.samples),
            "first_text_ms": _rounded(self.first_text_ms),
            "first_audio_ms": _rounded(self.first_audio_ms),
            "end_to_end_ms": _rounded(self.end_to_end_ms),
            "stage_ms": {
                stage: {
                    "first_in": _rounded(t.first_in_ms),
                    "first_out": _rounded(t.first_out_ms),
                    "last_out": _rounded(t.last_out_ms),
                    "busy": _rounded(t.busy_ms),
                }
                for stage, t in self.stages.items()
            },
            "finish_reason": self.finish_reason,
        }


def _rounded(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds, 1)


_PLAYERS = {
    "aplay": ["-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", "{rate}"],
    "paplay": ["--raw", "--format=s16le", "--channels=1", "--rate={rate}"],
    "ffplay": ["-loglevel", "error", "-nodisp", "-autoexit", "-f", "s16le", "-ar", "{rate}", "-i", "-"],
    "play": ["-q", "-t", "raw", "-e", "signed", "-b", "16", "-c", "1", "-r", "{rate}", "-"],
}


class Player:
    """Plays chunks as they come through a command that reads raw PCM from its standard input."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._process: Process | None = None

    @classmethod
    def find(cls) -> "Player":
        """The first player on the PATH. Raises ConfigError that names those that would do."""
        for command in _PLAYERS:
            if shutil.which(command):
                return cls(command)
        raise ConfigError(f"--play: needs one of {', '.join(_PLAYERS)} on the PATH", param="play")

    async def feed(self, event: TurnEvent) -> None:
        """Play `event` if it is sound; waits while the player has enough."""
        if not isinstance(event, AudioChunk):
            return
        if self._process is None:
            options = [option.format(rate=event.sample_rate) for option in _PLAYERS[self._command]]
            self._process = await asyncio.create_subprocess_exec(
                self._command, *options, stdin=asyncio.subprocess.PIPE
            )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(audio.to_pcm16(event.samples))
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConfigError(f"--play: {self._command} stopped: is there a sound device?") from error

    async def finish(self) -> None:
        """Wait until all was played."""
        if self._process and self._process.stdin:
            self._process.stdin.close()
            await self._process.wait()
