"""One turn's frames on their way to samples: segments, context, text marks. Plain bookkeeping."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from voice_app.messages import CodeFrames, FrameMark, TextMark
from voice_app.schedulers.base import WaveSpec, WaveWindow
from voice_app.schedulers.wave_window import PlaybackLead


def check_frames(frames: np.ndarray, spec: WaveSpec) -> str | None:
    """What is wrong with a payload's frames, in words; None if the decoder may see them."""
    if frames.shape[:1] == (0,):
        return None
    if frames.ndim != 2 or frames.shape[1] != spec.channels:
        return f"frames have the shape {list(frames.shape)}; the decoder takes [n, {spec.channels}]"
    if spec.codebook is None:
        return None if np.isfinite(frames).all() else "a frame is not finite"
    if not np.issubdtype(frames.dtype, np.integer):
        return f"codes are {frames.dtype}; the decoder takes integers"
    outside = frames[(frames < 0) | (frames >= spec.codebook)]
    if outside.size:
        return f"code {outside[0]} is outside the codebook of {spec.codebook}"
    return None


@dataclass(slots=True, eq=False)
class Segment:
    """Frames that are decoded by themselves. `frames`: [left + pending, channels], of which the first
    `left` are decoded already and kept as context."""

    start_frame: int
    """Of the turn's."""
    start_sample: int = 0
    """Of the reply's; known once the segment's turn has come."""
    frames: np.ndarray | None = None
    left: int = 0
    decoded: int = 0
    closed: bool = False

    @property
    def pending(self) -> int:
        return 0 if self.frames is None else len(self.frames) - self.left

    def append(self, frames: np.ndarray) -> None:
        """Copies: the payload's space may go back."""
        self.frames = frames.copy() if self.frames is None else np.concatenate([self.frames, frames])

    def ready(self, right_context: int) -> int:
        """Frames that can be decoded exactly now."""
        return self.pending if self.closed else max(0, self.pending - right_context)

    def advance(self, new: int, left_context: int) -> None:
        assert self.frames is not None
        self.decoded += new
        self.left += new
        surplus = max(0, self.left - left_context)
        self.frames = self.frames[surplus:]
        self.left -= surplus


@dataclass(slots=True, eq=False)
class WaveTurn:
    """One turn. `state` is the runner's, meaningful once `opened`."""

    spec: WaveSpec
    state: object = None
    opened: bool = False
    segments: deque[Segment] = field(default_factory=lambda: deque([Segment(start_frame=0)]))
    """The first is being decoded, the last is being filled."""
    last_seen: bool = False
    frames_in: int = 0
    frames_out: int = 0
    samples: int = 0
    """Made so far."""
    previous_window: int = 0
    lead: PlaybackLead = field(default_factory=PlaybackLead)
    _marks: deque[FrameMark] = field(default_factory=deque)
    _due: list[TextMark] = field(default_factory=list)
    _credit: deque[tuple[int, Callable[[], None]]] = field(default_factory=deque)
    """(frames in once it had arrived, release) of payloads not given back yet."""

    def add(self, payload: CodeFrames, release: Callable[[], None]) -> None:
        """Take one checked payload."""
        if len(payload.frames):
            self.segments[-1].append(payload.frames)
        self.frames_in += len(payload.frames)
        self._marks.extend(payload.marks)
        self._credit.append((self.frames_in, release))
        if payload.segment_end or payload.last:
            self.segments[-1].closed = True
            self.last_seen = payload.last
            if not payload.last:
                self.segments.append(Segment(start_frame=self.frames_in))
        self._settle()

    @property
    def ready(self) -> int:
        """Frames that can be decoded exactly now."""
        return self.segments[0].ready(self.spec.right_context)

    @property
    def closed(self) -> bool:
        """No frame is to follow in the segment being decoded."""
        return self.segments[0].closed

    @property
    def over(self) -> bool:
        """Everything is decoded and nothing is to come."""
        return self.last_seen and self.segments[0].pending == 0

    def window(self, new: int) -> WaveWindow:
        """The decoder's next call: `new` frames (≤ `ready`) with their context."""
        segment = self.segments[0]
        assert segment.frames is not None
        right = min(self.spec.right_context, segment.pending - new)
        return WaveWindow(
            state=self.state,
            frames=segment.frames[: segment.left + new + right],
            left=segment.left,
            right=right,
            segment_start=segment.decoded == 0,
            segment_end=segment.closed and new == segment.pending,
        )

    def advance(self, new: int, samples: int) -> None:
        """`new` frames were decoded and gave `samples`."""
        self.segments[0].advance(new, self.spec.left_context)
        self.frames_out += new
        self.samples += samples
        self.previous_window = max(self.previous_window, new)
        self._settle()

    def take_marks(self) -> tuple[TextMark, ...]:
        """Marks whose sound is made, each once."""
        segment = self.segments[0]
        while self._marks and self._sample_of(self._marks[0], segment) <= self.samples:
            self._make_due(segment)
        if self.over:
            while self._marks:
                self._make_due(segment)
        due, self._due = tuple(self._due), []
        return due

    def release_all(self) -> None:
        """Give back what is held of payloads."""
        while self._credit:
            self._credit.popleft()[1]()

    def _settle(self) -> None:
        while self.segments[0].closed and self.segments[0].pending == 0 and len(self.segments) > 1:
            done = self.segments.popleft()
            # A decoder may give a segment fewer samples than frames × samples_per_frame.
            while self._marks and self._marks[0].frame <= self.segments[0].start_frame:
                self._make_due(done)
            self.segments[0].start_sample = self.samples
        # Pending frames are bounded by holding back the senders' credit; a largest window with its
        # context is always let in, so that waiting for one cannot lock up.
        bound = self.spec.max_window + self.spec.right_context
        while self._credit and self._credit[0][0] - self.frames_out <= bound:
            self._credit.popleft()[1]()

    def _sample_of(self, mark: FrameMark, segment: Segment) -> int:
        offset = (mark.frame - segment.start_frame) * self.spec.samples_per_frame
        return max(0, segment.start_sample + offset)

    def _make_due(self, segment: Segment) -> None:
        mark = self._marks.popleft()
        self._due.append(TextMark(mark.chars, min(self._sample_of(mark, segment), self.samples)))
