"""Small parts by themselves: telephone audio, streams, the playback clock, outbox, buckets, back-channels."""

import asyncio
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_app.messages import AudioChunk
from voice_app.server import g711
from voice_app.server.limits import Bucket
from voice_app.server.outbox import Outbox
from voice_app.server.protocol.config import Config, PcmaFormat, PcmFormat, PcmuFormat, update
from voice_app.server.protocol.errors import ProtocolError
from voice_app.server.session.playback import PlaybackClock
from voice_app.server.session.turn_types import Frame, ReplyStarted, Rules, State, Tick
from voice_app.server.session.turns import deadline, step
from voice_app.server.session.voice import Voice
from voice_app.server.session.words import is_back_channel
from voice_app.server.sound import EarStream, VoiceStream, from_ear, to_ear

# ------------------------------------------------------------------------------------------------- G.711


def audioop():
    """The standard library's codec, an independent one; gone from Python 3.13 on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("audioop")


def test_every_code_means_what_the_standard_library_says():
    codes = bytes(range(256))
    assert np.array_equal(g711.decode_mulaw(codes), np.frombuffer(audioop().ulaw2lin(codes, 2), "<i2"))
    assert np.array_equal(g711.decode_alaw(codes), np.frombuffer(audioop().alaw2lin(codes, 2), "<i2"))


@pytest.mark.parametrize("law", ["mulaw", "alaw"])
def test_no_code_is_nearer_than_the_one_that_is_chosen(law: str):
    encode, decode, values = {
        "mulaw": (g711.encode_mulaw, g711.decode_mulaw, g711.MULAW_VALUES),
        "alaw": (g711.encode_alaw, g711.decode_alaw, g711.ALAW_VALUES),
    }[law]
    samples = np.arange(-32768, 32768, dtype=np.int16)
    error = np.abs(decode(encode(samples)).astype(int) - samples)
    levels = np.unique(values.astype(int))
    best = np.abs(levels[None, :] - samples[::257, None].astype(int)).min(axis=1)
    assert np.array_equal(error[::257], best)
    assert np.array_equal(decode(encode(values)), values)


# ------------------------------------------------------------------------------------------------ streams


def sine(hz: float, rate: int, seconds: float = 1.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


@pytest.mark.parametrize("size", [1, 3, 160, 441, 480, 960, 7777])
def test_no_sample_is_lost_at_the_border_of_two_packets(size: int):
    """In bytes, odd ones too: the stream equals the whole."""
    pcm = (sine(440, 24_000) * 32767).astype("<i2").tobytes()
    stream = EarStream(PcmFormat())
    got = [stream.feed(pcm[start : start + size]) for start in range(0, len(pcm), size)]
    whole = to_ear(pcm, PcmFormat()).astype(int)
    assert np.abs(np.concatenate([*got, stream.flush()]) - whole).max() <= 2, "but for the last bit's dither"
    assert sum(len(piece) for piece in got) == pytest.approx(16_000, abs=150)


@pytest.mark.parametrize("audio_format", [PcmFormat(), PcmFormat(rate=16000), PcmuFormat(), PcmaFormat()])
def test_a_tone_survives_the_way_in_and_out(audio_format):
    heard = to_ear(from_ear((sine(440, 16_000) * 32767).astype(np.int16), audio_format), audio_format)
    spectrum = np.abs(np.fft.rfft(heard[1000:-1000] * np.hanning(len(heard) - 2000)))
    assert np.argmax(spectrum) * 16_000 / (len(heard) - 2000) == pytest.approx(440, abs=2)
    assert np.abs(heard).max() == pytest.approx(0.5 * 32767, rel=0.1)


@pytest.mark.parametrize("rate", [22_050, 24_000, 16_000])
def test_a_voice_keeps_its_length_whatever_its_rate(rate: int):
    stream = VoiceStream(PcmFormat(), rate)
    tone = sine(330, rate, 1.7)
    out = b"".join(stream.feed(tone[start : start + 1234]) for start in range(0, len(tone), 1234))
    assert len(out + stream.finish()) / 48_000 == pytest.approx(1.7, abs=0.002)


def test_loud_samples_are_clipped_not_wrapped():
    out = np.frombuffer(VoiceStream(PcmFormat(), 24_000).feed(np.array([2.0, -2.0], np.float32)), "<i2")
    assert out.tolist() == [32767, -32768]


# ------------------------------------------------------------------------------------------- the listener


def test_the_playback_clock_stands_when_there_is_nothing_to_play():
    clock = PlaybackClock()
    clock.sent(1.0, now=10.0)
    assert clock.heard_s(10.4) == pytest.approx(0.4)
    assert clock.heard_s(12.0) == pytest.approx(1.0)
    assert clock.starved_s(12.0) == pytest.approx(1.0)
    clock.sent(1.0, now=12.0)
    assert clock.heard_s(12.5) == pytest.approx(1.5), "the second that was silent is not counted"
    assert clock.stop(12.5) == pytest.approx(1.5)
    assert clock.heard_s(99.0) == pytest.approx(1.5)


@given(st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.0, 2.0)), max_size=20))
def test_what_was_heard_never_falls_and_never_passes_what_was_sent(steps: list[tuple[float, float]]):
    clock, now, before = PlaybackClock(), 0.0, 0.0
    for sent, passed in steps:
        clock.sent(sent, now)
        now += passed
        heard = clock.heard_s(now)
        assert before - 1e-9 <= heard <= clock.sent_s + 1e-9
        assert heard - before <= passed + 1e-9
        before = heard


@given(st.lists(st.floats(0.01, 0.7), min_size=1, max_size=20), st.floats(0.0, 0.5))
def test_a_voice_is_sent_whole_in_order_and_never_too_far_ahead(chunks: list[float], pause: float):
    voice, now, got = Voice(PcmFormat(), lead_s=0.5), 0.0, b""
    ramp = np.linspace(-0.9, 0.9, int(sum(chunks) * 24_000) + len(chunks), dtype=np.float32)
    place = 0
    for seconds in chunks:
        size = int(seconds * 24_000)
        voice.feed(AudioChunk(ramp[place : place + size], 24_000, place))
        place += size
        now += pause
        got += b"".join(voice.take(now))
        assert voice.clock.ahead_s(now) <= 0.5 + 0.1 + 1e-3
    voice.finish()
    while (at := voice.next_at(now)) is not None:
        now = max(now, at)
        got += b"".join(voice.take(now))
        assert voice.clock.ahead_s(now) <= 0.5 + 0.1 + 1e-3
    samples = np.frombuffer(got, "<i2")
    assert len(samples) == place
    assert (np.diff(samples.astype(int)) >= 0).all()


def test_a_held_voice_gives_nothing_and_then_goes_on():
    voice = Voice(PcmFormat(), lead_s=1.0)
    voice.feed(AudioChunk(sine(330, 24_000, 3.0), 24_000, 0))
    first = voice.take(0.0)
    voice.held = True
    assert voice.take(5.0) == []
    assert voice.next_at(5.0) is None
    voice.held = False
    assert sum(len(piece) for piece in first + voice.take(5.0)) / 48_000 == pytest.approx(2.0, abs=0.11)


# ------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("text", "answerable", "expected"),
    [
        ("Mm-hm.", False, True),
        ("Uh-huh", True, True),
        ("", True, True),
        ("...", True, True),
        ("Yeah, okay.", False, True),
        ("Yes.", True, False),
        ("No.", False, False),
        ("Stop!", False, False),
        ("Okay stop.", False, False),
        ("Yeah yeah yeah yeah", False, False),
        ("Wait", False, False),
        ("等一下", False, False),
    ],
)
def test_back_channels(text: str, answerable: bool, expected: bool):
    assert is_back_channel(text, answerable=answerable) is expected


# ------------------------------------------------------------------------------------------------- bounds


async def test_the_outbox_drops_only_the_audio_of_the_response_that_is_over():
    outbox = Outbox(limit=10)
    for data, response in (("a", None), ("b1", "one"), ("c", None), ("b2", "two")):
        outbox.put(data, response)
    outbox.drop_audio("one")
    assert [await outbox.get() for _ in range(3)] == ["a", "c", "b2"]
    assert outbox.calm
    outbox.put("x" * 11)
    assert outbox.full


async def test_the_outbox_holds_audio_back_and_keeps_the_order():
    outbox = Outbox(limit=100)
    for data, response in (("a", None), ("b1", "one"), ("c", None), ("b2", "one")):
        outbox.put(data, response)
    outbox.hold_audio("one")
    assert await outbox.get() == "a"
    waiting = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    outbox.put("d")
    await asyncio.sleep(0)
    assert not waiting.done()
    outbox.release_audio()
    assert [await waiting, *[await outbox.get() for _ in range(3)]] == ["b1", "c", "b2", "d"]


async def test_the_outbox_goes_on_when_what_it_held_is_dropped():
    outbox = Outbox(limit=100)
    outbox.put("b1", "one")
    outbox.hold_audio("one")
    waiting = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    outbox.put("c")
    outbox.drop_audio("one")
    assert await asyncio.wait_for(waiting, 30) == "c"


def test_a_bucket_allows_a_burst_and_then_its_rate():
    bucket = Bucket(rate=10, burst=5)
    assert [bucket.take(1, now=100.0) for _ in range(6)] == [True] * 5 + [False]
    assert bucket.take(1, now=100.15)
    assert not bucket.take(1, now=100.15)


# ------------------------------------------------------------------------------------------------- turns


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["speech", "hushed", "silence", "after speech", "tick", "reply"]), st.booleans()
        ),
        max_size=300,
    ),
    st.sampled_from([(80, 160), (240, 400)]),
)
def test_the_turn_machine_never_promises_a_deadline_that_does_nothing(
    events: list[tuple[str, bool]], begins_ms: tuple[int, int]
):
    """A tick at the deadline changes the state: else a driver would spin. Also where work may not start early
    any more, or may again."""
    early_ms, speculate_ms = begins_ms
    idle = Rules(idle_ms=700, early_ms=early_ms, speculate_ms=speculate_ms)
    busy = replace(idle, early_ms=None)
    state, now = State(), 0.0
    for event, is_idle in events:
        now += 0.02
        rules, others = (idle, busy) if is_idle else (busy, idle)
        made = {
            "speech": Frame(0),
            "hushed": Frame(0, hushed=True),
            "silence": Frame(20),
            "after speech": Frame(120),
            "tick": Tick(),
            "reply": ReplyStarted(),
        }[event]
        state, _ = step(state, made, now, rules)
        due = deadline(state, rules)
        if due is not None and due >= now:
            for then in (rules, others):
                after, _ = step(state, Tick(), due, then)
                following = deadline(after, then)
                assert following is None or following > due


def test_a_configuration_survives_its_own_echo():
    """A client may send back what it was shown."""
    config = update(Config(), {"type": "realtime", "audio": {"output": {"voice": "joe"}}, "tracing": "auto"})
    again = update(
        config, {"id": "sess_1", "object": "realtime.session", "expires_at": 1, **config.to_wire()}
    )
    assert again == config


@pytest.mark.parametrize(
    "patch", [{"type": "realtime", "tools": [{"type": "mcp", "server_label": "x"}]}, {"type": 5}]
)
def test_what_cannot_be_is_refused(patch: dict[str, object]):
    with pytest.raises(ProtocolError):
        update(Config(), patch)
