"""What is noted of the local pack's calls, and the lines through them."""

from dataclasses import dataclass

import numpy as np
import pytest
import talker_calls
from test_simulation import PACK

from load.question_shapes import AFTER_S, Asking, frames_of, packets, pool
from load.simulation.costs import Line
from load.simulation.listening import PACKET_S
from load.simulation.runners import ClauseTalker
from load.simulation.shapes import Shape
from load.stage_calls import Call, Calls, line, pace, paces
from voice_app.bench import callers
from voice_app.bench.one_thread import OneThread
from voice_app.config import PackConfig
from voice_app.messages import Stage
from voice_app.models import registry
from voice_app.models.local.acoustic import AcousticModel
from voice_app.models.local.draft import ROWS
from voice_app.models.local.engine_onnx import OnnxEngine
from voice_app.models.local.paged_attention import PAGE_SIZE
from voice_app.models.local.whisper import Whisper
from voice_app.models.local.whisper_decoder import WhisperDecoder
from voice_app.server.session.vad import HUSH_FRAMES


@pytest.mark.parametrize(("base", "expected"), [(True, (3.0, (2.0, 0.0))), (False, (0.0, (5.0, 4.0)))])
def test_the_line_through_calls_of_one_kind_and_of_several(base: bool, expected: tuple):
    amounts = [(1, 0), (2, 0), (3, 0)] if base else [(1, 0), (0, 1), (0, 2)]
    seconds = [5.0, 7.0, 9.0] if base else [5.0, 4.0, 8.0]
    calls = [Call(some, took) for some, took in zip(amounts, seconds, strict=True)]
    found = line([*calls, Call((0, 0), 1.0)], base=base)
    assert (found.base, found.each) == (pytest.approx(expected[0]), pytest.approx(expected[1]))


def test_the_pace_is_what_calls_took_beside_their_lines_as_time_went_by():
    lines = {Stage.THINKER: Line(0.0, (1.0,)), Stage.CODE2WAV: Line(1.0, (1.0,))}
    calls = {
        Stage.THINKER: [Call((1,), 1.0, began=5.0), Call((2,), 3.0, began=7.5), Call((0,), 9.0, began=6.0)],
        Stage.CODE2WAV: [Call((1,), 2.0, began=5.9), Call((2,), 4.5, began=11.0)],
    }
    # Nothing but a call with nothing in it began in the second of these steps of a second.
    assert paces(lines, calls, 1.0) == pytest.approx((1.0, 1.0, 1.5, 1.5, 1.5, 1.5, 1.5))
    assert pace(lines, calls) == pytest.approx(10.5 / 8)


@dataclass(frozen=True)
class Asked:
    """One question. `spoken`: the amounts of the talker's calls in which it spoke."""

    shape: Shape
    spoken: list[tuple[float, ...]]


@pytest.fixture(scope="module")
def asked():
    """Of a question that a rule answers, and of three that the brain does."""
    with pytest.MonkeyPatch.context() as patched:
        for kind, name in (
            (OnnxEngine, "logits"),
            (OnnxEngine, "forward"),
            (Whisper, "features"),
            (WhisperDecoder, "write"),
            (AcousticModel, "speak"),
            (AcousticModel, "latents"),
        ):
            patched.setattr(kind, name, vars(kind)[name])
        calls = Calls()
        calls.count_work()
        pack = registry.create(PackConfig(), lambda _: None)
        asking = Asking(OneThread(lambda stage: calls.timed(stage, pack.build(stage))), calls)
        found: dict[str, Asked] = {}
        for question in (
            question for question in pool() if question.id in ("sum-2", "fact-3", "fact-7", "fact-9")
        ):
            calls.clear()
            (shape,) = asking.talk([question])
            spoken = [call.amounts for call in calls.by_stage[Stage.TALKER_AR] if any(call.amounts)]
            found[shape.question] = Asked(shape, spoken)
        yield found


@pytest.mark.models
@pytest.mark.parametrize("name", ["sum-2-1", "fact-3-1"])
def test_a_question_is_heard_in_steps(asked: dict[str, Asked], name: str):
    shape = asked[name].shape
    assert [(step.encodes, step.writes) for step in shape.hears] == [(1, 0), (0, 1)]
    encode, write = shape.hears
    # Half a second of silence on either side, and what the detector leaves of the question.
    assert 1.0 < encode.encoded_s <= shape.speech_s + 2.2
    assert write.written_s == pytest.approx(encode.encoded_s)
    assert write.passes > shape.heard / 2


@pytest.mark.models
def test_rows_of_an_answer_that_was_alone_are_counted(asked: dict[str, Asked]):
    ruled, own = asked["sum-2-1"].shape, asked["fact-3-1"].shape
    assert (ruled.ruled, own.ruled) == (True, False)
    assert [len(shape.passed) for shape in (ruled, own)] == [ruled.tokens - 1, own.tokens - 1]
    # One pass a page, but for what the prompt's last pass computed already.
    assert 0 in ruled.passed
    assert max(ruled.passed) <= PAGE_SIZE
    assert sum(map(bool, ruled.passed)) <= -(-len(ruled.passed) // PAGE_SIZE)
    assert set(own.passed) <= set(range(ROWS + 2))
    # "What is the ..." is answered with "The ...".
    assert 0 < own.guessed <= ROWS + 1
    assert own.passed[0] == 0


@pytest.mark.models
def test_an_answer_that_begins_with_plain_words_has_an_opening(asked: dict[str, Asked]):
    assert [clause.end for clause in asked["sum-2-1"].shape.clauses] == [None]
    opened = [one.shape.clauses for one in asked.values() if one.shape.clauses[0].end is not None]
    assert opened
    for opening, clause, *others in opened:
        assert opening.tokens <= clause.tokens
        assert 0 < opening.over < opening.frames < clause.frames
        # Their words' times differ by what follows them.
        assert clause.start == pytest.approx(opening.over, abs=20)
        assert {(other.start, other.end) for other in others} <= {(0, None)}


@pytest.mark.models
@pytest.mark.parametrize("name", ["sum-2-1", "fact-3-1", "fact-7-1", "fact-9-1"])
def test_the_model_s_talker_makes_the_calls_of_the_real_one(asked: dict[str, Asked], name: str):
    """Whose first step is as long."""
    real = asked[name]
    assert talker_calls.spoken(real.shape, PACK).calls == real.spoken
    assert real.spoken[0][2] == ClauseTalker.FIRST_PART


def test_each_packet_is_judged_as_it_comes():
    """A sound fades within 5 ms: it is known to be faint as soon as so many packets have come."""
    sound = np.random.default_rng(1).normal(0, 0.1, callers.RATE).astype(np.float32)
    sound[-120:] *= np.linspace(1, 0, 120, dtype=np.float32)
    told = [stretch for stretch in frames_of(sound) for _ in range(stretch.frames)]
    assert len(told) == packets(sound) + round(AFTER_S / PACKET_S)
    assert [frame.hushed for frame in told].index(True) == packets(sound) + HUSH_FRAMES - 1
