"""The talker of the local pack: the reply's tokens, as they come → latent frames, a clause at a step.

It speaks the text of the tokens and does not look at their vectors. A clause is spoken as soon as its text is
whole: spoken form → phonemes → acoustic half. Each clause is one segment, decoded by itself; what a turn
begins with comes in two steps, so that its first sound need not wait for all its frames (28 instead
of 37 ms after its text, median of 40 answers).

A reply's opening, its first few words, does not even wait for its clause: it is spoken together with the word
that follows, up to that word, and when the clause is whole, that is spoken from the same word on. Where many
turns share the machine, the rest might come too late for the ear, and a reply begins with its clause.
"""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakSet

import numpy as np

from voice_app.config import PackConfig
from voice_app.errors import InputError
from voice_app.messages import CodeFrames, EdgePayload, FrameMark, PromptIds, TokenVector, TurnId
from voice_app.models.base import Report
from voice_app.models.local.acoustic import AcousticModel, Edges, Utterance
from voice_app.models.local.clauses import Clause, ClauseCutter, Opening
from voice_app.models.local.phonemes import Phonemizer
from voice_app.models.local.piper import PiperVoice, load_voice, voice_path
from voice_app.models.local.spoken_form import SpokenWord, spoken_form
from voice_app.schedulers.base import NothingToPark, TalkerOutput, TokenDecoder

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")
_MAX_STATES = 64
FEW = 2
"""Turns up to which a reply has an opening. With 8 people on two cores 11 % of the turns had a gap with
openings in any company, 5 % without any."""
_FIRST_PART = 32
"""Frames of a turn's first step: what code2wav's first window and its context take, and a little more."""
_WARM_UP = (
    "Hello!",
    "I read that Zorbalon uses somewhat longer sentences, so that every model has been used once.",
)
"""A past tense wakes the part-of-speech tagger, an unknown name the letter-to-sound model."""

_LEAD = 0.05
_AFTER_SENTENCE = Edges(_LEAD, 0.30, 0.60)
_AFTER_PART = Edges(_LEAD, 0.10, 0.22)
_WITHIN_PART = Edges(_LEAD, 0.02, 0.06)
"""Quiet around clauses, as people pause after a period, after a comma, and where nothing is written."""
_SPEEDS = (0.25, 4.0)


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Talk:
    """One turn's."""

    cutter: ClauseCutter = field(default_factory=ClauseCutter)
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: _Utf8Decoder(errors="replace"))
    """As the detokenizer's, so that characters are counted alike."""
    speaker: int | None = None
    """None: the prompt, which names the voice, has not come yet."""
    speed: float = 1.0
    frames_left: int | None = None
    frames: int = 0
    unused: int = 0
    """Payloads fed and not yet reported as consumed."""
    saying: "_Saying | None" = None
    """The clause or the opening of which a part was given."""
    opened: int | None = None
    """Characters that the opening has spoken; 0: there was none. None: that is not known yet."""


@dataclass(slots=True, eq=False)
class _Saying:
    """A clause under way, or an opening: the frames from `given` to `end`. `marks` count from the utterance's
    first."""

    utterance: Utterance
    marks: list[FrameMark]
    given: int
    end: int
    opens: bool = False

    def frame(self, chars: int) -> int:
        """The frame at which the text up to `chars` is over."""
        return max((mark.frame for mark in self.marks if mark.chars <= chars), default=0)


class TalkerAr(NothingToPark):
    """`TalkerRunner` over one Piper voice."""

    max_states = _MAX_STATES

    def __init__(self, voice: PiperVoice, tokens: TokenDecoder, threads: int) -> None:
        self.voice = voice
        self._tokens = tokens
        self._phonemizer = Phonemizer(voice.settings.phoneme_id_map)
        self._acoustic = AcousticModel(voice, threads)
        self._open = WeakSet[_Talk]()

    def warm_up(self) -> None:
        for text in _WARM_UP:
            saying = self.begin(Clause(text, 0), 1.0, 0)
            if saying is not None:
                saying.utterance.frames(0, _FIRST_PART)
                saying.utterance.frames(0, len(saying.utterance))

    def open(self, turn: TurnId) -> object:
        talk = _Talk()
        self._open.add(talk)
        return talk

    def feed(self, state: object, payload: EdgePayload) -> None:
        """Raises InputError for a voice or a speed that there is not."""
        talk = _talk(state)
        talk.unused += 1
        if isinstance(payload, PromptIds):
            if talk.speaker is not None:
                return  # A further part of the prompt; the parameters are the first's.
            params = payload.request
            if not _SPEEDS[0] <= params.speed <= _SPEEDS[1]:
                raise InputError(f"speed {params.speed}: must be {_SPEEDS[0]} to {_SPEEDS[1]}", param="speed")
            talk.speaker = self.voice.speaker(params.voice)
            talk.speed = params.speed
            talk.frames_left = params.max_frames
        elif isinstance(payload, TokenVector):
            if payload.id is not None:
                talk.cutter.push(talk.decoder.decode(self._tokens.token_bytes(payload.id)))
            if payload.finish_reason is not None:
                talk.cutter.push(talk.decoder.decode(b"", final=True))
                talk.cutter.finish()

    def ready(self, state: object) -> bool:
        """Whether the reply's opening or a clause is there or the text is over, and also whenever a payload's
        credit can go back: the thinker would else stop in the middle of a long clause."""
        talk = _talk(state)
        return talk.unused > 0 or self._can_speak(talk) or (talk.speaker is not None and talk.cutter.done)

    def step(self, states: Sequence[object]) -> Sequence[TalkerOutput]:
        """One clause, for the turn that has spoken least so far, and nothing for the others: a step for all
        would hold the first clause back until the last is done. A clause that has begun goes before: its
        first part does not last long."""
        talks = [_talk(state) for state in states]
        able = filter(self._can_speak, talks)
        chosen = min(able, key=lambda talk: (talk.saying is None, talk.frames), default=None)
        return [self._advance(talk, talk is chosen) for talk in talks]

    def close(self, state: object) -> None:
        self._open.discard(_talk(state))

    def _can_speak(self, talk: _Talk) -> bool:
        if talk.saying is not None:
            return True
        if talk.speaker is None:
            return False
        return talk.cutter.peek() is not None or (talk.opened is None and self._opening(talk) is not None)

    def _opening(self, talk: _Talk) -> Opening | None:
        return talk.cutter.opening() if len(self._open) <= FEW else None

    def _advance(self, talk: _Talk, speak: bool) -> TalkerOutput:
        consumed, talk.unused = talk.unused, 0
        if talk.speaker is None:
            return TalkerOutput(consumed=consumed)
        frames = self._say_on(talk, talk.speaker) if speak else None
        if (talk.cutter.done and talk.saying is None) or talk.frames_left == 0:
            return TalkerOutput(self._closed(talk, frames), consumed, done=True)
        return TalkerOutput(frames, consumed)

    def _closed(self, talk: _Talk, frames: CodeFrames | None) -> CodeFrames:
        """The turn's last payload: `frames`, if there are any. A text spoken to its end is marked whole, with
        what is never spoken (emoji) after its last word; no text is not marked."""
        rows = frames.frames if frames else np.empty((0, self.voice.channels), np.float32)
        marks = frames.marks if frames else ()
        length, marked = talk.cutter.length, marks[-1].chars if marks else 0
        if talk.frames_left != 0 and marked < length:
            marks = (*marks, FrameMark(length, talk.frames))
        return CodeFrames(rows, segment_end=True, last=True, marks=marks)

    def _say_on(self, talk: _Talk, speaker: int) -> CodeFrames | None:
        """The next frames: of what is under way, else of the next; None if it is not spoken."""
        saying = talk.saying or self._next(talk, speaker)
        if saying is None:
            return None
        start, end = saying.given, saying.end
        if talk.frames == 0:
            end = min(end, max(start, _FIRST_PART))
        if talk.frames_left is not None:
            end = min(end, start + talk.frames_left)
            talk.frames_left -= end - start
        over = end == saying.end
        marks = tuple(
            FrameMark(mark.chars, talk.frames + mark.frame - start)
            for mark in saying.marks
            if start < mark.frame <= end
        )
        talk.frames += end - start
        saying.given = end
        talk.saying = None if over else saying
        return CodeFrames(
            saying.utterance.frames(start, end), segment_end=over and not saying.opens, marks=marks
        )

    def _next(self, talk: _Talk, speaker: int) -> _Saying | None:
        """The reply's opening or its next clause, timed."""
        if talk.opened is None:
            opening = self._opening(talk)
            talk.opened = opening.end if opening else 0
            if opening:
                saying = self.begin(Clause(opening.text, 0, pause=""), talk.speed, speaker)
                assert saying is not None
                saying.end, saying.opens = saying.frame(opening.end), True
                return saying
        saying = self.begin(talk.cutter.take(), talk.speed, speaker)
        if saying is not None and talk.opened:
            saying.given = saying.frame(talk.opened)
            talk.opened = 0
        return saying

    def begin(self, clause: Clause, speed: float, speaker: int) -> _Saying | None:
        """The clause, timed; None if nothing in it is spoken."""
        words = [] if clause.silent else spoken_form(clause.text)
        if not words:
            return None
        edges = _edges(words[-1].pause, clause.pause)
        if not words[-1].pause:
            words[-1] = replace(words[-1], pause=clause.pause)
        phonemes = self._phonemizer(words)
        utterance = self._acoustic.speak(phonemes, edges, speed, speaker)
        ends = utterance.ends
        marks = [FrameMark(chars, int(ends[phonemes.last[i]])) for i, chars in _word_ends(clause, words)]
        return _Saying(utterance, marks, 0, len(utterance))


def _edges(written: str, unwritten: str) -> Edges:
    """For a clause that ends with the mark `written`, or with none where one would be `unwritten`."""
    if (written or unwritten) in ".!?":
        return _AFTER_SENTENCE
    return _AFTER_PART if written else _WITHIN_PART


def _word_ends(clause: Clause, words: Sequence[SpokenWord]) -> list[tuple[int, int]]:
    """For each written word: (index of its last spoken word, characters of the reply up to its end with the
    punctuation that clings to it)."""
    ends = []
    for i, word in enumerate(words):
        if i + 1 < len(words) and words[i + 1].start < word.end:
            continue
        end = word.end
        limit = words[i + 1].start if i + 1 < len(words) else len(clause.text)
        while end < limit and not clause.text[end].isspace():
            end += 1
        ends.append((i, clause.start + end))
    return ends


def _talk(state: object) -> _Talk:
    assert isinstance(state, _Talk)
    return state


def build(config: PackConfig, tokens: TokenDecoder, report: Report) -> TalkerAr:
    """The runner over the configured voice. Raises ModelFileError."""
    report("loading the voice")
    return TalkerAr(load_voice(voice_path(config, report), report), tokens, config.threads)
