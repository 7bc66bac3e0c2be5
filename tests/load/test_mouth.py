"""What a caller sends, in virtual time: no sockets, no waiting."""

import base64
import json
import random
from itertools import pairwise

import numpy as np
import pytest

from load.ear import Ear, decode
from load.mouth import Leave, Mouth, Packet, Picture, Script, Step
from load.recordings import Recording, recording
from load.scenario import Person
from load.turns import Outcome, Turn
from voice_app.bench.callers import PACKET_S, RATE

LOUD, QUIET = 0.1, 0.005


def a_recording(name: str, seconds: float = 1.0) -> Recording:
    """A tone, with 60 ms of silence in the middle."""
    samples = LOUD * np.sin(2 * np.pi * 220 * np.arange(round(seconds * RATE)) / RATE)
    middle = len(samples) // 2
    samples[middle : middle + round(0.06 * RATE)] = 0
    return recording(name, samples.astype(np.float32))


class World:
    """A server that answers each question 0.7 s after its end with `answer_s` of sound, in virtual time."""

    def __init__(self, answer_s: float = 2.0, **habits) -> None:
        person = Person.model_validate({"speech": ["x"], "pause_s": (0.1, 0.2), **habits})
        self.turns: list[Turn] = []
        self.now = 0.0
        self.answer_s = answer_s
        self.ear = Ear("asks", 1, self._keep)
        self.steps: list[tuple[float, Step]] = []
        subjects = [(a_recording("a-1"), a_recording("a-2")), (a_recording("b-1", 1.5),)]
        script = Script(person, subjects, person.pictures, 500)
        self.mouth = Mouth(script, self.ear, random.Random(4), lambda: self.now)
        self._answered: set[float] = set()

    def _keep(self, turn: Turn) -> None:
        self.turns.append(turn)

    def _say(self, kind: str, **fields) -> None:
        self.ear.hear(decode(json.dumps({"type": kind, **fields})), self.now)

    def run(self, packets: int = 20_000) -> list[Step]:
        for step in self.mouth.talk():
            self.steps.append((self.now, step))
            if isinstance(step, Packet):
                self.now += PACKET_S
                self._serve()
            if step is Leave.LOSE:
                self.ear.leave(self.now)
            if len(self.steps) >= packets:
                break
        return [step for _, step in self.steps]

    def _serve(self) -> None:
        waits = self.ear.waits_s(self.now)
        if waits > 0.7 and (ended := round(self.now - waits, 3)) not in self._answered:
            self._answered.add(ended)
            self._say("response.created", response={"id": f"r{ended}"})
            delta = base64.b64encode(bytes(round(self.answer_s * RATE) * 2)).decode()
            self._say("response.output_audio.delta", response_id=f"r{ended}", delta=delta)
            self._say("response.done", response={"id": f"r{ended}", "status": "completed"})


def loudness(step: Step) -> float:
    assert isinstance(step, Packet)
    pcm = np.frombuffer(base64.b64decode(json.loads(step.message)["audio"]), "<i2") / 32768
    assert len(pcm) == round(PACKET_S * RATE)
    return float(np.sqrt(np.square(pcm).mean()))


def test_a_talk_asks_listens_to_the_end_and_says_goodbye():
    world = World(turns=6)
    steps = world.run()
    assert steps[-1] is Leave.GOODBYE
    assert [turn.outcome for turn in world.turns] == [Outcome.HEARD] * 6
    for turn, following in pairwise(world.turns):
        assert turn.ended is not None
        assert 0.1 <= following.speech_began - turn.ended <= 0.25


def test_the_microphone_is_never_off_and_is_loud_only_while_the_user_speaks():
    world = World(turns=2)
    world.run()
    packets = [(at, step) for at, step in world.steps if isinstance(step, Packet)]
    for at, step in packets:
        speaking = any(turn.speech_began <= at < (turn.speech_ended or 0) for turn in world.turns)
        assert speaking or loudness(step) < QUIET
    assert [at for at, _ in packets] == pytest.approx(list(np.arange(len(packets)) * PACKET_S))


def test_no_recording_is_the_same_sound_twice():
    steps = World(turns=30).run()
    loud = [step.message for step in steps if isinstance(step, Packet) and loudness(step) > 0.05]
    assert len(set(loud)) == len(loud) > 100


def test_subjects_are_said_in_order():
    world = World(turns=30)
    world.run()
    names = [turn.recording for turn in world.turns]
    assert set(names) == {"a-1", "a-2", "b-1"}
    assert all(following == "a-2" for name, following in pairwise(names) if name == "a-1")


def test_whoever_interrupts_speaks_while_the_answer_is_heard():
    world = World(answer_s=5.0, turns=5, interrupts=1.0, interrupts_after_s=(0.5, 0.6))
    world.run()
    first, second = world.turns[0], world.turns[1]
    assert first.interrupted is not None
    assert first.first_audio is not None
    assert 0.5 <= first.interrupted - first.first_audio <= 0.65
    assert second.speech_began == first.interrupted


def test_whoever_hesitates_is_silent_for_less_than_ends_a_turn():
    world = World(turns=6, hesitates=1.0)
    world.run()
    for turn in world.turns:
        plain_s = 1.5 if turn.recording == "b-1" else 1.0
        assert 0.1 <= spoken_s(turn) - plain_s <= 0.22
        said = [
            step for at, step in world.steps if turn.speech_began <= at < turn.speech_began + spoken_s(turn)
        ]
        silent = [loudness(step) < QUIET for step in said]
        # The silence that is there already makes up some of it.
        assert silent.count(True) * PACKET_S < 0.5 - 0.06


def spoken_s(turn: Turn) -> float:
    assert turn.speech_ended is not None
    return turn.speech_ended - turn.speech_began


def test_whoever_hangs_up_is_gone_in_mid_word():
    world = World(turns=5, hangs_up=1.0)
    steps = world.run()
    assert steps[-1] is Leave.HANG_UP
    spoken = [step for step in steps if isinstance(step, Packet) and loudness(step) > QUIET]
    assert 10 <= len(spoken) <= 0.7 * 1.5 / PACKET_S + 1


def test_whoever_is_cut_off_goes_on_afterwards():
    world = World(turns=3, loses_connection=1.0)
    steps = world.run()
    assert steps.count(Leave.LOSE) == 3
    assert steps[-1] is Leave.GOODBYE
    assert [turn.outcome for turn in world.turns] == [Outcome.LEFT] * 3


def test_pictures_are_shown_while_the_user_speaks_as_often_as_wanted():
    world = World(turns=1, pictures=["x"], pictures_per_s=4.0)
    world.run()
    (turn,) = world.turns
    shown = [at for at, step in world.steps if isinstance(step, Picture)]
    assert all(turn.speech_began <= at < (turn.speech_ended or 0) for at in shown)
    assert len(shown) == pytest.approx(spoken_s(turn) * 4, abs=1)


def test_quiet_is_silence_on_top_of_the_pause():
    world = World(turns=3, quiet_s=(3.0, 3.0))
    world.run()
    gap = world.turns[1].speech_began - (world.turns[0].ended or 0)
    assert 3.1 <= gap <= 3.25


def test_the_same_dice_give_the_same_talk():
    assert World(turns=4).run() == World(turns=4).run()
