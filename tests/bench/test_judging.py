"""The judge of answers and the listener's playback clock."""

import pytest

from voice_app.bench import questions
from voice_app.bench.report import Goal, percentile
from voice_app.bench.talks import Listener
from voice_app.messages import AudioPart, ImagePart


def question(**fields) -> questions.Question:
    return questions.Question("x-1", "fact", ("What?",), **fields)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("The capital of France is Paris.", True),
        ("PARIS!", True),
        ("It is Parisian.", False),
        ("**Paris**", False),
        ("Paris 🎉", False),
        ("- Paris", False),
        ("", False),
        ("Paris " + "and so on " * 20, False),
    ],
)
def test_an_answer_must_hold_the_fact_and_be_speakable(text, passes):
    assert questions.acceptable(question(accept=r"\bparis\b"), text, "stop") is passes


def test_reject_and_finish_reason():
    assert not questions.acceptable(question(accept="4", reject="5"), "4 or 5", "stop")
    assert questions.acceptable(question(accept="^$", finish_reason="silence"), "", "silence")
    assert not questions.acceptable(question(accept="^$", finish_reason="silence"), "", "stop")


def test_every_question_has_its_recording_or_picture():
    entries = questions.read()
    assert len(entries) == 40
    assert {q.kind for q in entries} >= {"fact", "sum", "time", "follow-up", "camera", "chit-chat", "silence"}
    for entry in entries:
        turns = [questions.parts(entry, turn) for turn in range(len(entry.says))]
        for parts in turns:
            assert isinstance(parts[-1], AudioPart)
            assert len(parts[-1].samples) > 8000
        assert any(isinstance(p, ImagePart) for p in turns[-1]) == (entry.kind == "camera")


def test_the_listener_runs_dry_only_when_a_chunk_comes_late():
    listener = Listener()
    listener.hear(now=10.0, seconds=0.2)
    listener.hear(now=10.1, seconds=0.3)
    assert listener.gap == 0.0
    assert listener.dry_at == pytest.approx(10.5)
    listener.hear(now=10.7, seconds=0.1)
    assert listener.gap == pytest.approx(0.2)
    assert listener.dry_at == pytest.approx(10.8)


def test_percentile_is_by_nearest_rank():
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, p) for p in (50, 95, 100)] == [50.0, 95.0, 100.0]
    assert percentile([7.0], 95) == 7.0


def test_a_goal_knows_its_direction():
    assert Goal("latency", 300, 350).met
    assert not Goal("latency", 351, 350).met
    assert Goal("rate", 0.8, 0.75, at_least=True).met
