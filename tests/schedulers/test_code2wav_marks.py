"""Code2WavScheduler: which sample each mark of the text falls on, and with which sound it is told."""

from dataclasses import replace

import pytest
from scheduler_toys import Tray, turn_id
from wave_toys import SPEC, TRIM, Clock, FirDecoder, chunked, codes, sound_of

from voice_app.messages import AudioChunk, CodeFrames, FrameMark, TextMark, TurnId
from voice_app.schedulers.code2wav import Code2WavScheduler


def marks_of(tray: Tray, turn: TurnId) -> list[TextMark]:
    return [mark for p in tray.sent[turn] if isinstance(p, AudioChunk) for mark in p.marks]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_marks_are_told_with_their_sound(size: int) -> None:
    tray, clock = Tray(), Clock()
    scheduler = Code2WavScheduler(FirDecoder(replace(SPEC, left_context=4), TRIM), tray, clock=clock)
    marks = (FrameMark(2, 3), FrameMark(5, 7), FrameMark(9, 12), FrameMark(11, 20))
    for number, segment in enumerate((codes(12, 1), codes(8, 2))):
        first, *rest = chunked(segment, size, last=number == 1)
        mine = marks[:3] if number == 0 else marks[3:]
        for payload in (CodeFrames(first.frames, first.segment_end, first.last, mine), *rest):
            tray.deliver(scheduler, turn_id(0), payload)
            tray.run(scheduler)
    # The first segment gives 12 * 4 - 3 = 45 samples, the second begins there.
    expected = [TextMark(2, 12), TextMark(5, 28), TextMark(9, 45), TextMark(11, 45 + 8 * 4 - 3)]
    assert marks_of(tray, turn_id(0)) == expected
    for chunk in tray.sent[turn_id(0)][:-1]:
        assert isinstance(chunk, AudioChunk)
        assert all(mark.sample <= chunk.start + len(chunk.samples) for mark in chunk.marks)
    assert len(sound_of(tray, turn_id(0))) == 45 + 29


def test_marks_that_come_with_the_end_are_not_lost() -> None:
    tray = Tray()
    scheduler = Code2WavScheduler(FirDecoder(replace(SPEC, right_context=0)), tray)
    tray.deliver(scheduler, turn_id(0), CodeFrames(codes(1)))
    tray.run(scheduler)
    end = CodeFrames(codes(0), last=True, marks=(FrameMark(3, 1), FrameMark(4, 9)))
    tray.deliver(scheduler, turn_id(0), end)
    tray.run(scheduler)
    assert marks_of(tray, turn_id(0)) == [TextMark(3, 4), TextMark(4, 4)]
    sound_of(tray, turn_id(0))


def test_a_mark_that_comes_too_late_is_told_with_the_next_sound() -> None:
    tray = Tray()
    scheduler = Code2WavScheduler(FirDecoder(replace(SPEC, left_context=4), TRIM), tray)
    tray.deliver(scheduler, turn_id(0), CodeFrames(codes(5), segment_end=True))
    tray.run(scheduler)
    late = CodeFrames(codes(5), last=True, marks=(FrameMark(1, 0), FrameMark(2, 6)))
    tray.deliver(scheduler, turn_id(0), late)
    tray.run(scheduler)
    assert marks_of(tray, turn_id(0)) == [TextMark(1, 0), TextMark(2, 17 + 4)]
