"""A run that never was: turns, samples and traces with known figures."""

from load.figures import Evidence, Window
from load.listener import Underrun
from load.pacing import Pacing
from load.traces import StageSpan, TurnTrace
from load.turns import Outcome, Record, Turn
from load.watch import CLIENT, ProcessSample, Sample

WALL = 1_000_000.0
"""The wall's clock is so far ahead of ours."""


def turn(ended: float, first_audio_s: float = 0.7, **fields) -> Turn:
    """A question of a second, answered by two seconds of sound; it was heard out at `ended`."""
    speech_ended = ended - 2.0 - first_audio_s
    made = Turn(
        person="asks",
        talk=1,
        session="sess_1",
        recording="fact-1-1",
        counted=True,
        speech_began=speech_ended - 1.0,
        speech_ended=speech_ended,
        silence_ended=speech_ended + 0.5,
        first_text=speech_ended + first_audio_s - 0.1,
        first_audio=speech_ended + first_audio_s,
        last_audio=ended - 0.5,
        audio_s=2.0,
        chunks=[(speech_ended + first_audio_s, 1.0), (ended - 1.2, 1.0)],
        ended=ended,
        outcome=Outcome.HEARD,
    )
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def interrupted(ended: float) -> Turn:
    """Heard for 0.4 s more after the interruption; sound came for 0.05 s of it."""
    return turn(
        ended,
        outcome=Outcome.INTERRUPTED,
        interrupted=ended - 0.4,
        silent=ended,
        last_audio_after=ended - 0.35,
    )


def underrun(at: float, seconds: float) -> Underrun:
    return Underrun(at, seconds)


def sample(at: float, cpu: float = 50.0) -> Sample:
    processes = {
        CLIENT: ProcessSample(5.0, 100.0),
        "server": ProcessSample(10.0, 160.0),
        "worker text": ProcessSample(cpu, 1200.0 + at),
    }
    return Sample(at, processes, {"voice_app_talks": 4.0}, {"thinker": at % 3}, {"thinker": 1.0})


def trace(at: float, session: str = "sess_1", scale: float = 1.0) -> TurnTrace:
    """Submitted `at` of our clock; its first sound comes 0.2 s · scale later."""
    outs = {"preprocessing": 0.01, "audio_encoder": 0.07, "thinker": 0.11, "talker_ar": 0.19, "code2wav": 0.2}
    stages = {
        name: StageSpan(first_in=0.0, first_out=out * scale, last_out=out * scale + 0.3, busy_s=0.05)
        for name, out in outs.items()
    }
    return TurnTrace(session, f"turn-{at}", WALL + at, stages)


def pacing(late_s: float, begin: float = 0.0, end: float = 100.0) -> Pacing:
    made = Pacing()
    for number in range(round((end - begin) / 0.1)):
        due = begin + number * 0.1
        made.left(due + late_s, due)
    return made


def evidence(
    turns: list[Turn], traces: list[TurnTrace] | None = None, late_s: float = 0.001, seconds: int = 100
) -> Evidence:
    record = Record()
    record.turns = turns
    samples = [sample(float(at)) for at in range(seconds)]
    return Evidence(record, pacing(late_s, end=seconds), samples, traces or [], WALL)


WINDOW = Window(sessions=4, begin=10.0, end=90.0, waits=[0.0, 0.5])
