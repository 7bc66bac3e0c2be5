"""One reply's voice on its way out: converted, cut into small pieces, paced by the listener's clock."""

from collections import deque

from voice_app.messages import AudioChunk
from voice_app.server import sound
from voice_app.server.protocol.config import AudioFormat
from voice_app.server.session.playback import PlaybackClock

PIECE_MS = 100
"""Longest audio delta."""
_TICK_S = 0.001
"""Times are sums of floats: what is due at a moment must surely be due when that moment comes."""


class Voice:
    """Pieces wait here until the client's ear is near enough. `lead_s`: how far ahead it may be sent."""

    def __init__(self, audio_format: AudioFormat, lead_s: float) -> None:
        self.clock = PlaybackClock()
        self.format = audio_format
        self.held = False
        self.stopped = False
        self._lead_s = lead_s
        self._per_s = sound.bytes_per_ms(audio_format) * 1000
        self._stream: sound.VoiceStream | None = None
        self._pieces: deque[bytes] = deque()
        self._queued = 0
        self.gap_s = 0.0
        """How long the listener waited before the last pieces taken."""

    @property
    def queued_s(self) -> float:
        """Seconds that wait."""
        return self._queued / self._per_s

    @property
    def drained(self) -> bool:
        return not self._pieces

    def feed(self, chunk: AudioChunk) -> None:
        """More of the voice, at the model's rate."""
        if self._stream is None:
            self._stream = sound.VoiceStream(self.format, chunk.sample_rate)
        self._queue(self._stream.feed(chunk.samples))

    def finish(self) -> None:
        """The voice is complete: what the resampler holds follows."""
        if self._stream is not None:
            self._queue(self._stream.finish())
            self._stream = None

    def _queue(self, data: bytes) -> None:
        if self.stopped:
            return
        step = sound.bytes_per_ms(self.format) * PIECE_MS
        for start in range(0, len(data), step):
            self._pieces.append(data[start : start + step])
        self._queued += len(data)

    def take(self, now: float) -> list[bytes]:
        """The pieces that may be sent now; they count as sent."""
        pieces: list[bytes] = []
        self.gap_s = self.clock.starved_s(now) if self._pieces and not self.held else 0.0
        while self._pieces and not self.held and self.clock.ahead_s(now) < self._lead_s:
            piece = self._pieces.popleft()
            self._queued -= len(piece)
            self.clock.sent(len(piece) / self._per_s, now)
            pieces.append(piece)
        return pieces

    def next_at(self, now: float) -> float | None:
        """When the next piece may be sent; None: nothing waits for time."""
        if not self._pieces or self.held:
            return None
        return now + max(0.0, self.clock.ahead_s(now) - self._lead_s + _TICK_S)

    def drop(self) -> None:
        """Send nothing more; what was sent plays on."""
        self.stopped = True
        self._pieces.clear()
        self._queued = 0

    def stop(self, now: float) -> float:
        """Send nothing more, and the client plays nothing more; gives the seconds that were heard."""
        self.drop()
        return self.clock.stop(now)
