"""The client's microphone: its sound kept as long as a turn may need it, and cut into judged frames."""

from collections.abc import Callable

import numpy as np

from voice_app.server import sound
from voice_app.server.protocol.config import AudioInput, ServerVad
from voice_app.server.session.turn_types import Frame
from voice_app.server.session.vad import FRAME_MS, FRAME_SAMPLES, Hush, SpeechDetector

PER_MS = sound.EAR_RATE // 1000
_FRAME_BYTES = FRAME_SAMPLES * 2
_LEAD = bytes(2 * sound.QUICK_LEAD)
_RECENT_BYTES = 100 * PER_MS * 2
"""More than any resampler holds back."""
_SPARE_MS = 2_000
"""Sound kept beyond what is needed, so that it is pruned rarely."""
_SPEECH, _HUSHED, _SILENCE = Frame(0), Frame(0, hushed=True), Frame(FRAME_MS)
"""Most frames are one of these, which need not be made fifty times a second."""


class Microphone:
    """Positions are ms since the session's first sample. With turn detection off, nothing is judged.

    What is kept for the models is resampled well, which takes until some milliseconds after it was heard;
    what is judged, quickly."""

    def __init__(self, config: AudioInput, make_detector: Callable[[float], SpeechDetector]) -> None:
        self._make_detector = make_detector
        self._config = config
        self._detector = self._new_detector()
        self._hush = Hush()
        self._sound = bytearray()
        self._base = 0
        """Position of the first sample kept, in samples."""
        self._unjudged = bytearray()
        """Less than a frame of the quick sound."""
        self._recent = bytearray()
        """The end of the quick sound, in the place of what is not kept yet."""
        self._begin()

    @property
    def position_ms(self) -> int:
        """How much was heard in this session."""
        return self._heard // PER_MS

    @property
    def kept_from_ms(self) -> int:
        return self._base // PER_MS

    @property
    def listening(self) -> bool:
        return self._detector is not None

    @property
    def _end(self) -> int:
        return self._base + len(self._sound) // 2

    def configure(self, config: AudioInput) -> None:
        """The session's configuration changed."""
        if config.format != self._config.format:
            self._take_rest()
            self._config = config
            self._begin()
        before, now = _threshold(self._config), _threshold(config)
        self._config = config
        # Any other change leaves the detector what it has learnt of the room and of a sound in progress.
        if now != before:
            if not self.listening:
                # What came before was not listened to.
                self.skip()
            self._detector = self._new_detector()

    def _begin(self) -> None:
        """A new stream of sound."""
        audio_format = self._config.format
        self._stream = sound.EarStream(audio_format)
        self._quick = sound.EarStream(audio_format, quick=True)
        if self.listening:
            self._unjudged += _LEAD
        self._recent.clear()
        self._heard = self._end
        """Position up to which quick sound has come, in samples."""

    def _new_detector(self) -> SpeechDetector | None:
        threshold = _threshold(self._config)
        return None if threshold is None else self._make_detector(threshold)

    def hear(self, data: bytes) -> list[Frame]:
        """More sound in the client's format; what each whole frame of it is. The first one of a silence adds
        what the detector's overhang hid before."""
        self._sound += self._stream.feed(data).tobytes()
        quick = self._quick.feed(data)
        self._heard += len(quick)
        self._recent = (self._recent + quick.tobytes())[-_RECENT_BYTES:]
        detector = self._detector
        if detector is None:
            return []
        self._unjudged += quick.tobytes()
        judged: list[Frame] = []
        start = 0
        while (end := start + _FRAME_BYTES) <= len(self._unjudged):
            frame = bytes(self._unjudged[start:end])
            hushed = self._hush.judge(frame)
            if detector.is_speech(frame):
                judged.append(_HUSHED if hushed else _SPEECH)
            else:
                hidden_ms = detector.overhang_ms
                judged.append(Frame(FRAME_MS + hidden_ms) if hidden_ms else _SILENCE)
            start = end
        del self._unjudged[:start]
        return judged

    def flush(self) -> None:
        """Take in what the resamplers still hold: the client says that its sound ends here."""
        self._take_rest()
        self._begin()

    def _take_rest(self) -> None:
        self._sound += self._stream.flush().tobytes()
        if self.listening:
            self._unjudged += self._quick.flush().tobytes()

    def skip(self) -> None:
        """Judge nothing of what was heard so far."""
        self._unjudged[:] = _LEAD

    def cut(self, start_ms: int, end_ms: int) -> np.ndarray:
        """[n] int16 at 16 kHz: the sound between two positions, as far as it is kept. What the good resampler
        holds back is the quick one's."""
        first = max(0, start_ms * PER_MS - self._base)
        last = max(first, end_ms * PER_MS - self._base)
        kept = self._sound
        if last * 2 > len(kept) and (held_back := self._heard - self._end) > 0:
            kept = kept + self._recent[-2 * held_back :]
        return np.frombuffer(bytes(kept[first * 2 : last * 2]), "<i2")

    def forget_before(self, position_ms: int) -> None:
        """No turn will ask for anything earlier."""
        # What was heard last is not all kept yet.
        spare = min(position_ms * PER_MS - self._base, len(self._sound) // 2)
        if spare > _SPARE_MS * PER_MS:
            del self._sound[: spare * 2]
            self._base += spare


def _threshold(config: AudioInput) -> float | None:
    """The detector's; None with turn detection off."""
    match config.turn_detection:
        case None:
            return None
        case ServerVad(threshold=threshold):
            return threshold
        case _:
            return ServerVad().threshold
