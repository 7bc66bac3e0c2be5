"""What is noted of the local pack's calls, and the lines through them."""

import pytest

from load.question_shapes import Asking, pool
from load.simulation.shapes import Shape
from load.stage_calls import Call, Calls, line
from voice_app.bench.one_thread import OneThread
from voice_app.config import PackConfig
from voice_app.models import registry
from voice_app.models.local.draft import ROWS
from voice_app.models.local.engine_onnx import OnnxEngine
from voice_app.models.local.paged_attention import PAGE_SIZE
from voice_app.models.local.whisper import Whisper
from voice_app.models.local.whisper_decoder import WhisperDecoder


@pytest.mark.parametrize(("base", "expected"), [(True, (3.0, (2.0, 0.0))), (False, (0.0, (5.0, 4.0)))])
def test_the_line_through_calls_of_one_kind_and_of_several(base: bool, expected: tuple):
    amounts = [(1, 0), (2, 0), (3, 0)] if base else [(1, 0), (0, 1), (0, 2)]
    seconds = [5.0, 7.0, 9.0] if base else [5.0, 4.0, 8.0]
    calls = [Call(some, took) for some, took in zip(amounts, seconds, strict=True)]
    found = line([*calls, Call((0, 0), 1.0)], base=base)
    assert (found.base, found.each) == (pytest.approx(expected[0]), pytest.approx(expected[1]))


@pytest.fixture(scope="module")
def asked():
    """Of a question that a rule answers and one that the brain does."""
    with pytest.MonkeyPatch.context() as patched:
        for kind, name in (
            (OnnxEngine, "logits"),
            (OnnxEngine, "forward"),
            (Whisper, "features"),
            (WhisperDecoder, "write"),
        ):
            patched.setattr(kind, name, vars(kind)[name])
        calls = Calls()
        calls.count_work()
        pack = registry.create(PackConfig(), lambda _: None)
        asking = Asking(OneThread(lambda stage: calls.timed(stage, pack.build(stage))), calls)
        wanted = [question for question in pool() if question.id in ("sum-2", "fact-3")]
        yield {shape.question: shape for question in wanted for shape in asking.talk([question])}


@pytest.mark.models
@pytest.mark.parametrize("name", ["sum-2-1", "fact-3-1"])
def test_a_question_is_heard_in_steps(asked: dict[str, Shape], name: str):
    shape = asked[name]
    assert [(step.encodes, step.writes) for step in shape.hears] == [(1, 0), (0, 1)]
    encode, write = shape.hears
    # Half a second of silence on either side, and what the detector leaves of the question.
    assert 1.0 < encode.encoded_s <= shape.speech_s + 2.2
    assert write.written_s == pytest.approx(encode.encoded_s)
    assert write.passes > shape.heard / 2


@pytest.mark.models
def test_rows_of_an_answer_that_was_alone_are_counted(asked: dict[str, Shape]):
    ruled, own = asked["sum-2-1"], asked["fact-3-1"]
    assert (ruled.ruled, own.ruled) == (True, False)
    assert [len(shape.passed) for shape in (ruled, own)] == [ruled.tokens - 1, own.tokens - 1]
    # One pass a page, but for what the prompt's last pass computed already.
    assert 0 in ruled.passed
    assert max(ruled.passed) <= PAGE_SIZE
    assert sum(map(bool, ruled.passed)) <= -(-len(ruled.passed) // PAGE_SIZE)
    assert set(own.passed) <= set(range(ROWS + 2))
    assert own.passed[0] > 0
