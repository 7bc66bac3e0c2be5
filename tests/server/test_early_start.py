"""Work on a turn starts sooner while the pipeline has nothing else to do: when, and what of it is counted."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from fake_pipeline import FakePipeline, answer, spoken, written
from running_server import FAST, server
from virtual_talk import LONG, VirtualTalk, answering, talk
from websockets.asyncio.client import connect
from wire_client import LOUD, wire_client

from voice_app import messages as m
from voice_app.errors import StageFailed
from voice_app.server.driver import Driver, now
from voice_app.server.hub import Hub, make_hub
from voice_app.server.occupancy import SETTLES_S, Occupancy
from voice_app.server.outbox import Outbox
from voice_app.server.session.session import Session
from voice_app.server.session.turns import Rules
from voice_app.server.settings import ServerSettings, TalkSettings

OTHER = m.TurnId("sess_2", "turn")
"""Another talk's turn."""
PACKET_S = 0.02
"""Its sound may come so much later than it was made."""


def starts(t: VirtualTalk, spoke_until: float) -> list[int]:
    """After how much silence (ms), in whole frames, work began."""
    return [round((at - spoke_until) * 1000) for at, _ in t.requests if at > spoke_until]


# ------------------------------------------------------------------------------------------- when it starts


def test_work_starts_early_when_nobody_else_waits():
    t = talk("Hello there.")
    t.speak(1)
    spoke_until = t.now
    t.silence(3)
    assert starts(t, spoke_until) == [80]
    [stopped] = t.times("input_audio_buffer.speech_stopped")
    assert stopped - t.requests[0][0] == pytest.approx(0.42), "500 ms of silence end a turn"
    assert t.last("response.done")["response"]["status"] == "completed"


@pytest.mark.parametrize(("free_after_ms", "started"), [(60, 80), (100, 120), (120, 140), (400, 160)])
def test_while_another_s_turn_is_worked_on_it_starts_as_late_as_ever(free_after_ms: int, started: int):
    """But at once when that turn is done."""
    occupancy = Occupancy()
    t = talk("Hello there.", occupancy=occupancy)
    occupancy.enter(OTHER)
    t.speak(1)
    spoke_until = t.now
    t.silence(free_after_ms / 1000)
    occupancy.done(OTHER)
    t.silence(2)
    assert starts(t, spoke_until) == [started]


def test_of_two_talks_the_second_waits():
    occupancy = Occupancy()
    first, second = (talk("Hello there.", occupancy=occupancy, session_id=f"sess_{n}") for n in (3, 4))
    for t in (first, second):
        t.now += 0.02 * (t is second)
        t.speak(1)
    ends = first.now, second.now
    for _ in range(25):
        first.silence(0.02)
        second.silence(0.02)
    assert [starts(first, ends[0]), starts(second, ends[1])] == [[80], [160]]


def test_another_s_turn_that_was_cut_short_may_still_be_in_a_call():
    occupancy = Occupancy()
    t = talk("Hello there.", occupancy=occupancy)
    t.speak(1)
    spoke_until = t.now
    occupancy.enter(OTHER)
    occupancy.leave(OTHER, t.now + 0.11 - SETTLES_S)
    t.silence(1)
    assert starts(t, spoke_until) == [120]


@pytest.mark.parametrize("more_s", [0.06, 0.5])
def test_after_an_early_start_that_was_in_vain_the_next_is_as_early(more_s: float):
    """Its own stale work may be in a call still, but nobody else's turn has to wait for both."""
    t = talk("Hello there.")
    t.speak(1)
    t.silence(0.1)
    assert len(t.requests) == 1
    t.speak(more_s)
    spoke_until = t.now
    t.silence(2)
    assert starts(t, spoke_until) == [80]
    assert t.cancelled == [t.requests[0][1].turn]
    assert [request.turn.generation for _, request in t.requests] == [0, 1]
    assert len(t.events("response.created")) == 1
    part = t.requests[-1][1].messages[-1].parts[0]
    assert isinstance(part, m.AudioPart)
    heard_s = 1.1 + more_s + 0.08
    assert len(part.samples) / 16_000 == pytest.approx(heard_s, abs=0.03), "the whole turn"


@pytest.mark.parametrize(
    ("settings", "started"),
    [
        (TalkSettings(early_ms=None), 160),
        (TalkSettings(early_ms=120), 120),
        (TalkSettings(speculate_ms=None), 500),
    ],
)
def test_how_early_is_the_operator_s(settings: TalkSettings, started: int):
    t = talk("Hello there.", settings)
    t.speak(1)
    spoke_until = t.now
    t.silence(2)
    assert starts(t, spoke_until) == [started]


@pytest.mark.parametrize("idle", [True, False])
def test_where_packets_stay_away_it_starts_as_early(idle: bool):
    occupancy = Occupancy()
    t = talk("Hello there.", TalkSettings(early_ms=240, speculate_ms=400), occupancy=occupancy)
    if not idle:
        occupancy.enter(OTHER)
    t.speak(1)
    spoke_until = t.now
    t.wait(2)
    [(at, _)] = t.requests
    assert at - spoke_until == pytest.approx((0.24 if idle else 0.4) + PACKET_S, abs=0.002)


def test_what_was_too_soon_is_due_when_packets_stay_away():
    """It could not start at 100 ms of silence; then the others were done, and nothing was heard any more."""
    occupancy = Occupancy()
    t = talk("Hello there.", occupancy=occupancy)
    t.update(audio={"input": {"turn_detection": {"silence_duration_ms": 1500}}})
    occupancy.enter(OTHER)
    t.speak(1)
    t.silence(0.1)
    last = t.now
    occupancy.done(OTHER)
    t.wait(1)
    [(at, _)] = t.requests
    assert at - last == pytest.approx(0.2 + PACKET_S, abs=0.002), "so long they count as late"


def test_a_sound_over_a_reply_is_judged_when_it_ever_was():
    """The pipeline has made the reply, which is still heard: it is at rest."""
    t = VirtualTalk(lambda r: spoken(LONG if len(r.messages) == 1 else "Fine.", heard="Mm-hm."), first_s=0.08)
    t.speak(1)
    t.silence(1.5)
    assert t.session.occupancy.turns == 0
    t.speak(0.3)
    spoke_until = t.now
    t.silence(1)
    assert starts(t, spoke_until) == [160]
    assert t.kinds.count("input_audio_buffer.speech_started") == 1, "it was passed over"


@pytest.mark.parametrize("early_ms", [0, 90, 160, 200])
def test_what_is_not_early_is_refused(early_ms: int):
    with pytest.raises(ValueError, match=f"early_ms {early_ms}: not a multiple of 20 between 0 and 160"):
        Rules(early_ms=early_ms)


def test_the_rules_by_default_are_those_of_the_settings():
    rules, settings = Rules(), TalkSettings()
    assert (rules.early_ms, rules.speculate_ms) == (settings.early_ms, settings.speculate_ms)


# ------------------------------------------------------------------------------------------- who is counted


def test_turns_of_a_virtual_talk_are_counted_until_they_end():
    def failing(request: m.TurnRequest):
        return [*spoken(LONG)[:6], StageFailed("thinker: out of memory")]

    for script in (answering(LONG), failing):
        t = VirtualTalk(script, first_s=0.3)
        for _ in range(3):
            t.speak(1)
            t.silence(1.2)
        t.session.close(t.now)
        t._act()
        assert t.session.occupancy.turns == 0


class Watched(Occupancy):
    def __init__(self) -> None:
        super().__init__()
        self._moved = asyncio.Event()

    def enter(self, turn: m.TurnId) -> None:
        super().enter(turn)
        self._moved.set()

    def done(self, turn: m.TurnId) -> None:
        super().done(turn)
        self._moved.set()

    def leave(self, turn: m.TurnId, now: float) -> None:
        super().leave(turn, now)
        self._moved.set()

    async def until(self, turns: int) -> None:
        """Until so many are in the pipeline."""
        async with asyncio.timeout(10):
            while self.turns != turns:
                self._moved.clear()
                await self._moved.wait()


def watched(pipeline: FakePipeline) -> tuple[Hub, Watched]:
    """A hub, and what its talks have in the pipeline."""
    hub, occupancy = make_hub(pipeline, ServerSettings(talk=FAST)), Watched()
    hub.occupancy = occupancy
    return hub, occupancy


@pytest.mark.parametrize("how", ["completed", "cancelled", "interrupted", "failed", "refused"])
async def test_a_turn_is_counted_until_it_ends(how: str):
    def script(request: m.TurnRequest):
        if how == "failed":
            return [*spoken(LONG)[:4], StageFailed("thinker: out of memory")]
        return written(LONG) if not request.speech else spoken(LONG)

    pipeline = FakePipeline(script, most=0 if how == "refused" else 100)
    pipeline.gated = how in ("cancelled", "interrupted")
    hub, occupancy = watched(pipeline)
    async with server(pipeline, hub=hub) as port, wire_client(port, check=False) as client:
        await client.send("response.create")
        if pipeline.gated:
            await client.until("response.created")
            assert occupancy.turns == 1
        match how:
            case "cancelled":
                await client.send("response.cancel")
            case "interrupted":
                for _ in range(8):
                    await client.append(LOUD)
        done = (await client.until("response.done"))["response"]
        expected = {"refused": "failed", "interrupted": "cancelled"}.get(how, how)
        assert done["status"] == expected
        await occupancy.until(0)


@pytest.mark.parametrize("how", ["leaves", "is killed"])
async def test_what_a_talk_had_in_the_pipeline_goes_with_it(how: str):
    pipeline = FakePipeline(answer)
    pipeline.gated = True
    hub, occupancy = watched(pipeline)
    async with server(pipeline, hub=hub) as port:
        client = await connect(f"ws://127.0.0.1:{port}/v1/realtime", compression=None)
        await client.send(json.dumps({"type": "response.create"}))
        await occupancy.until(1)
        if how == "leaves":
            await client.close()
        else:
            client.transport.abort()
        await occupancy.until(0)


class Quiet:
    """A client that says nothing."""

    async def messages(self) -> AsyncIterator[str | bytes]:
        await asyncio.Event().wait()
        yield ""

    async def send(self, data: str | bytes) -> None:
        pass

    async def close(self, code: int, reason: str) -> None:
        pass


async def test_a_turn_is_counted_off_though_nobody_began_to_read_it():
    """The talk ends right after it was submitted."""
    pipeline = FakePipeline(answer)
    hub, occupancy = watched(pipeline)
    session = Session(
        "sess_1", TalkSettings(), lambda prefix: prefix, now=now(), unix_time=0.0, occupancy=occupancy
    )
    driver = Driver(
        session, Quiet(), pipeline, Outbox(1 << 20), hub.metrics, event_prefix="event", send_timeout_s=1.0
    )
    before = asyncio.all_tasks()
    session.receive(json.dumps({"type": "response.create"}), now())
    driver.act()
    assert occupancy.turns == 1
    [reader] = asyncio.all_tasks() - before
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    assert not pipeline.turns[0].closed, "not a line of it was run"
    await occupancy.until(0)
    assert not occupancy.idle(now(), OTHER.session), "it may still be in a call"
    assert occupancy.idle(now() + SETTLES_S, OTHER.session)
