"""What the microphone keeps, at any moment: nothing of it is late, lost or shifted."""

import numpy as np
import pytest
from test_vad import FORMATS, packets

from voice_app.server.protocol.config import AudioFormat, AudioInput, PcmFormat, PcmuFormat, ServerVad
from voice_app.server.session.microphone import Microphone
from voice_app.server.session.vad import FRAME_MS, WebRtcDetector
from voice_app.server.sound import to_ear

CLOSE = 0.9
"""Correlation of what the quick resampler makes of speech with what the good one makes."""


def microphone_for(audio_format: AudioFormat) -> Microphone:
    return Microphone(AudioInput(format=audio_format, turn_detection=ServerVad()), WebRtcDetector)


def alike(heard: np.ndarray, expected: np.ndarray) -> bool:
    return float(np.corrcoef(heard, expected)[0, 1]) > CLOSE


@pytest.mark.parametrize("audio_format", FORMATS, ids=str)
def test_what_was_heard_just_now_can_be_cut_already(audio_format: AudioFormat) -> None:
    microphone, said = microphone_for(audio_format), packets(audio_format)
    whole = to_ear(b"".join(said), audio_format)
    for number, packet in enumerate(said, 1):
        microphone.hear(packet)
        if number % 5 == 0 and 20 <= number <= 60:
            end = microphone.position_ms
            cut = microphone.cut(end - 60, end)
            assert len(cut) == 60 * 16
            assert alike(cut, whole[(end - 60) * 16 : end * 16])


@pytest.mark.parametrize("audio_format", FORMATS, ids=str)
def test_what_is_forgotten_moves_nothing(audio_format: AudioFormat) -> None:
    """All that was heard, more than the two seconds that are kept anyway."""
    microphone, said = microphone_for(audio_format), packets(audio_format)
    whole = to_ear(b"".join(said * 2), audio_format)
    for packet in said:
        microphone.hear(packet)
    begin = microphone.position_ms
    assert begin > 2_000
    microphone.forget_before(begin)
    for packet in said:
        microphone.hear(packet)
    end = microphone.position_ms - 100
    assert alike(microphone.cut(begin + 100, end), whole[(begin + 100) * 16 : end * 16])


@pytest.mark.parametrize("audio_format", FORMATS, ids=str)
def test_after_a_skip_a_packet_still_completes_its_own_frame(audio_format: AudioFormat) -> None:
    microphone, said = microphone_for(audio_format), packets(audio_format)
    microphone.skip()
    assert [len(microphone.hear(packet)) for packet in said[:20]] == [1] * 20
    microphone.skip()
    assert [len(microphone.hear(packet)) for packet in said[20:40]] == [1] * 20


def test_another_format_in_the_middle_of_a_talk() -> None:
    first, second = PcmFormat(), PcmuFormat()
    microphone = microphone_for(first)
    for turn in range(20):
        audio_format = (first, second)[turn % 2]
        microphone.configure(AudioInput(format=audio_format, turn_detection=ServerVad()))
        frames = [len(microphone.hear(packet)) for packet in packets(audio_format)[:10]]
        assert sum(frames) in (10, 11)
    assert abs(microphone.position_ms - 20 * 10 * FRAME_MS) <= 20
