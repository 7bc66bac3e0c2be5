"""What comes in through the microphone: kept, cut into frames, judged, and put to the turn machine."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from voice_app.server import sound
from voice_app.server.protocol.config import AudioInput, ServerVad
from voice_app.server.protocol.errors import ProtocolError
from voice_app.server.session import turns
from voice_app.server.session.vad import FRAME_SAMPLES, SpeechDetector

MIN_COMMIT_MS = 100
MAX_BUFFER_MS = 600_000
"""Longest sound of one turn."""
_PER_MS = sound.EAR_RATE // 1000
_SPARE_MS = 2_000
"""Sound kept beyond the prefix while nobody speaks, so that it is pruned rarely."""


class Hearing:
    """The input buffer and the turn machine over it. Positions are ms since the session's first sample.

    Methods that move the machine yield its actions one by one; the caller carries each out before it
    asks for the next, because an action (a reply that starts) may change how the next frame is taken."""

    def __init__(
        self, config: AudioInput, rules: turns.Rules, make_detector: Callable[[float], SpeechDetector]
    ) -> None:
        self._make_detector = make_detector
        self._rules = rules
        self._state = turns.State()
        self._config = config
        self._stream = sound.EarStream(config.format)
        self._detector: SpeechDetector | None = None
        self._sound = bytearray()
        self._base = 0
        self._framed = 0
        self._set_detector()

    @property
    def position_ms(self) -> int:
        """How much was heard in this session."""
        return (self._base + len(self._sound) // 2) // _PER_MS

    @property
    def speaking(self) -> bool:
        return self._state.user is turns.User.SPEAKING

    def configure(self, config: AudioInput, rules: turns.Rules) -> None:
        """The session's configuration changed."""
        if config.format != self._config.format:
            self._stream = sound.EarStream(config.format)
        detection_before = self._config.turn_detection
        self._config, self._rules = config, rules
        if config.turn_detection != detection_before:
            self._set_detector()

    def _set_detector(self) -> None:
        detection = self._config.turn_detection
        if detection is None:
            self._detector = None
            return
        if self._detector is None:
            # What came before was not listened to.
            self._framed = self._base + len(self._sound) // 2
            self._state = replace(self._state, user=turns.User.QUIET, heard_ms=self.position_ms)
        self._detector = self._make_detector(
            detection.threshold if isinstance(detection, ServerVad) else ServerVad().threshold
        )

    def append(self, data: bytes, now: float) -> Iterator[turns.Action]:
        """More sound in the client's format."""
        heard = self._stream.feed(data)
        if self._pending_ms() + len(heard) // _PER_MS > MAX_BUFFER_MS:
            raise ProtocolError(
                "invalid_value",
                f"The input audio buffer holds {MAX_BUFFER_MS // 60_000} minutes: commit or clear it.",
                param="audio",
            )
        self._sound += heard.tobytes()
        while self._detector is not None and self._framed + FRAME_SAMPLES <= self._end:
            start = (self._framed - self._base) * 2
            frame = bytes(self._sound[start : start + FRAME_SAMPLES * 2])
            self._framed += FRAME_SAMPLES
            yield from self._step(turns.Frame(self._detector.is_speech(frame)), now)
        self._prune()

    @property
    def _end(self) -> int:
        return self._base + len(self._sound) // 2

    def _pending_ms(self) -> int:
        if self._detector is not None and self._state.user is turns.User.QUIET:
            return 0
        return self.position_ms - self._state.floor_ms

    def _prune(self) -> None:
        """Forget what no turn can reach any more."""
        keep_from = self._state.floor_ms
        if self._detector is not None and self._state.user is turns.User.QUIET:
            keep_from = max(keep_from, self._state.heard_ms - self._rules.prefix_ms)
        elif self._detector is not None:
            keep_from = max(keep_from, self._state.onset_ms - self._rules.prefix_ms)
        spare = keep_from * _PER_MS - self._base
        if spare > _SPARE_MS * _PER_MS:
            del self._sound[: spare * 2]
            self._base += spare

    def tick(self, now: float) -> Iterator[turns.Action]:
        """Time has passed."""
        yield from self._step(turns.Tick(), now)

    def deadline(self) -> float | None:
        """When `tick` should be called."""
        return None if self._detector is None else turns.deadline(self._state, self._rules)

    def words(self, *, back_channel: bool, now: float) -> Iterator[turns.Action]:
        """What the sound over the reply turned out to be."""
        yield from self._step(turns.Words(back_channel), now)

    def reply_started(self, now: float) -> Iterator[turns.Action]:
        yield from self._step(turns.ReplyStarted(), now)

    def reply_ended(self, now: float) -> Iterator[turns.Action]:
        """A reply was heard to its end, or stopped."""
        yield from self._step(turns.ReplyEnded(), now)

    def _step(self, event: turns.Event, now: float) -> Iterator[turns.Action]:
        self._state, actions = turns.step(self._state, event, now, self._rules)
        yield from actions

    def cut(self, start_ms: int, end_ms: int) -> np.ndarray:
        """[n] int16 at 16 kHz: the sound between two positions, as far as it is kept."""
        first = max(0, start_ms * _PER_MS - self._base)
        last = max(first, end_ms * _PER_MS - self._base)
        return np.frombuffer(bytes(self._sound[first * 2 : last * 2]), "<i2")

    def commit(self, now: float) -> tuple[np.ndarray, list[turns.Action]]:
        """The client says that the turn is over: its sound, and what that changes. Raises ProtocolError if
        there is less than 100 ms of it."""
        start = self._state.start_ms if self.speaking else self._state.floor_ms
        heard_ms = self.position_ms - max(start, self._base // _PER_MS)
        if heard_ms < MIN_COMMIT_MS:
            raise ProtocolError(
                "input_audio_buffer_commit_empty",
                "Error committing input audio buffer: buffer too small. Expected at least "
                f"{MIN_COMMIT_MS}ms of audio, but buffer only has {heard_ms:.2f}ms of audio.",
            )
        samples = self.cut(start, self.position_ms)
        return samples, self.clear(now)

    def clear(self, now: float) -> list[turns.Action]:
        """Forget the sound so far."""
        self._state = replace(self._state, heard_ms=self.position_ms)
        self._framed = max(self._framed, self.position_ms * _PER_MS)
        actions = list(self._step(turns.BufferTaken(), now))
        self._prune()
        return actions
