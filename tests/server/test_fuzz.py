"""Whatever a client sends, it is answered in order, and the talk lives on."""

import os
import random

import msgspec
from fake_pipeline import FakePipeline, spoken, written
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from running_server import server
from schema_fuzz import Fuzzer
from virtual_talk import VirtualTalk
from wire_client import wire_client

from voice_app import messages as m
from voice_app.errors import StageFailed
from voice_app.server import auth
from voice_app.server.hub import make_hub
from voice_app.server.settings import ServerSettings, TalkSettings

EVENTS = int(os.environ.get("FUZZ_EVENTS", "100000"))
TALKS = 50


def answer(request: m.TurnRequest):
    if request.tool_choice not in ("auto", "none") and request.tools:
        return [m.ToolCall(request.tools[0].name, "{}"), m.TextDone("tool_call"), m.TurnDone({})]
    return spoken("Well then.", heard=None) if request.speech else written("Well then.")


def test_a_hundred_thousand_events_of_the_schema():
    """Of 25 talks, one is held to the whole protocol: the models cost more than the server."""
    sent = sum(fuzz(seed, EVENTS // TALKS, check=seed % 25 == 0) for seed in range(TALKS))
    assert sent == EVENTS


def fuzz(seed: int, count: int, *, check: bool) -> int:
    """One talk of `count` random events."""
    fuzzer = Fuzzer(seed)
    t = VirtualTalk(answer, TalkSettings(session_s=1e9), first_s=0.01, each_s=0.001, check=check)
    for number in range(count):
        told = len(t.log)
        t.session.receive(msgspec.json.encode(fuzzer.event()), t.now)
        t._act()
        if number % 20 == 0:
            t.wait(0.1)
            fuzzer.ids = [item.id for item in list(t.session.conversation)[-5:]]
        fuzzer.ids += [e["item"]["id"] for _, e in t.log[told:] if "item" in e]
    assert t.closed is None
    assert len(t.log) > count // 4
    t.wait(30)
    if check:
        t.checker.finish()
    return count


async def test_random_events_over_a_socket_close_nothing():
    """The whole way: text frames, binary frames, what is no JSON. The server answers on."""
    fuzzer, dice = Fuzzer(99), random.Random(99)
    pipeline = FakePipeline(answer)
    settings = ServerSettings(talk=TalkSettings(lead_s=1e9, responses_per_minute=10_000))
    # On a quick machine they are more in a second than a key may send.
    keys = auth.Keys({auth.hashed("k"): auth.Key("fuzz", auth.Limits(events_per_second=100_000))})
    hub = make_hub(pipeline, settings, keys)
    async with (
        server(pipeline, hub=hub) as port,
        wire_client(port, check=False, additional_headers={"Authorization": "Bearer k"}) as client,
    ):
        for number in range(2_000):
            message = msgspec.json.encode(fuzzer.event())
            kind = dice.random()
            if kind < 0.05:
                await client.socket.send(dice.randbytes(dice.randrange(200)))
            elif kind < 0.1:
                await client.socket.send(message.decode()[: dice.randrange(len(message))])
            else:
                await client.socket.send(message.decode())
            if number % 100 == 99:
                await client.send("conversation.item.retrieve", item_id=f"marker-{number}")
                while True:
                    error = await client.until("error", 30)
                    if f"marker-{number}" in error["error"]["message"]:
                        break
        await client.say("Still there?")


class Client(RuleBasedStateMachine):
    """Someone who speaks, types, interrupts, cancels, cuts and changes settings in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.t = VirtualTalk(self._answer, each_s=0.05)
        self.fail = False

    def _answer(self, request: m.TurnRequest):
        if self.fail:
            return [*spoken("one two three", heard=None)[:3], StageFailed("it broke")]
        return spoken("one two three four five", heard="mm-hm" if len(self.t.requests) % 2 else "stop it")

    @rule(seconds=st.sampled_from([0.02, 0.1, 0.3, 0.6]))
    def speak(self, seconds: float) -> None:
        self.t.speak(seconds)

    @rule(seconds=st.sampled_from([0.1, 0.2, 0.6]))
    def be_silent(self, seconds: float) -> None:
        self.t.silence(seconds)

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0]))
    def vanish(self, seconds: float) -> None:
        self.t.wait(seconds)

    @rule()
    def type_a_question(self) -> None:
        self.t.say("Why?")

    @rule(aside=st.booleans())
    def ask(self, aside: bool) -> None:
        self.t.send("response.create", response={"conversation": "none" if aside else "auto"})

    @rule()
    def cancel(self) -> None:
        self.t.send("response.cancel")

    @rule()
    def commit(self) -> None:
        self.t.send("input_audio_buffer.commit")

    @rule()
    def clear(self) -> None:
        self.t.send("input_audio_buffer.clear")

    @rule(end_ms=st.sampled_from([0, 100, 300, 1000, 1600]))
    def truncate_the_last_answer(self, end_ms: int) -> None:
        spoken_items = [e["item"]["id"] for e in self.t.events("response.output_item.added")]
        if spoken_items:
            self.t.send(
                "conversation.item.truncate", item_id=spoken_items[-1], content_index=0, audio_end_ms=end_ms
            )

    @rule()
    def delete_the_last_item(self) -> None:
        if self.t.session.conversation.last_id:
            self.t.send("conversation.item.delete", item_id=self.t.session.conversation.last_id)

    @rule(detection=st.sampled_from([None, {"interrupt_response": False}, {"interrupt_response": True}]))
    def change_turn_detection(self, detection: dict[str, bool] | None) -> None:
        self.t.update(audio={"input": {"turn_detection": detection}})

    @rule(fail=st.booleans())
    def let_the_pipeline_fail(self, fail: bool) -> None:
        self.fail = fail

    @invariant()
    def nothing_runs_for_nobody(self) -> None:
        """Every turn in the pipeline is one that the session still knows."""
        assert {turn for _, _, turn, _ in self.t._queue} <= self.t.session.in_pipeline

    def teardown(self) -> None:
        self.fail = False
        self.t.update(audio={"input": {"turn_detection": None}})
        self.t.wait(30)
        self.t.checker.finish()
        assert not self.t.session.in_pipeline


TestClient = Client.TestCase
TestClient.settings = hypothesis_settings(max_examples=100, stateful_step_count=30, deadline=None)
