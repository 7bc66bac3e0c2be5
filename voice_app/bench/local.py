"""`voice-app bench local`: the local pack as a person meets it, on this machine, in one run.

1. start: seconds from nothing to ready, memory of all processes.
2. answers: the fixed list of questions, spoken, one after the other: how many answers are acceptable,
   end of speech → first text → first audio (the recording is sent when it ends, so nothing is hidden
   by work done ahead), and what each stage took of it.
3. heard back: the spoken answers recognised by another recogniser than the pack's: word error rate.
4. talks: several people at once who ask, listen in real time, think, and ask again: gaps in playback.
5. the thinker's tokens a second under its scheduler, against a lean loop over the same weights.

An answer by a built-in function (a sum, the date, what the user said before) says nothing about the brain, so
the two are counted apart as well.
"""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import psutil

from voice_app.bench import heard_back, lean_thinker, questions, report, talks
from voice_app.cli.answer import Answer
from voice_app.config import PackConfig, PipelineConfig
from voice_app.errors import VoiceAppError
from voice_app.messages import Message, TextPart, TurnId, TurnRequest
from voice_app.models.functions import plan
from voice_app.pipeline.client import PipelineClient

FIRST_AUDIO_MS = 350.0
PASS_RATE = 0.75
START_SECONDS = 20.0
MEMORY_GB = 3.0
HEARD_BACK_WER = 0.08
TALKS = (1, 4, 8, 12)
TALKS_WITHOUT_GAP = 8
LEAN_RATIO = 0.9


@dataclass(slots=True)
class Answered:
    """One question with its last answer."""

    question: questions.Question
    answer: Answer
    passed: bool
    by_function: bool = False


@dataclass(slots=True)
class Figures:
    """All that one run measured."""

    start_seconds: float = 0.0
    memory_gb: float = 0.0
    answers: list[Answered] = field(default_factory=list)
    word_error_rate: float = float("nan")
    thinker: lean_thinker.Comparison | None = None
    crowds: list[talks.Crowd] = field(default_factory=list)


def main(json_path: str | None, pack: PackConfig | None = None) -> int:
    """Measure and print; returns 1 if a goal was missed."""
    figures = asyncio.run(_measure(PipelineConfig(pack=pack or PackConfig())))
    figures.word_error_rate = heard_back.word_error_rate(
        [
            heard_back.Spoken(a.answer.text, a.answer.samples, a.answer.sample_rate)
            for a in figures.answers
            if a.answer.text
        ]
    )
    figures.thinker = lean_thinker.compare(pack or PackConfig())
    goals = _goals(figures, figures.thinker)
    _print(figures)
    missed = report.print_goals(goals)
    report.write_json(json_path, _as_json(figures), goals)
    return 1 if missed else 0


async def _measure(config: PipelineConfig) -> Figures:
    figures = Figures()
    began = time.perf_counter()
    async with PipelineClient(config, report=lambda line: print(f"… {line}", flush=True)) as client:
        figures.start_seconds = time.perf_counter() - began
        for number, question in enumerate(questions.read(), 1):
            answered = await _answer(client, question, number)
            figures.answers.append(answered)
            mark = "✓" if answered.passed else "✗"
            print(f"{mark} {question.id:12} {question.says[-1]!r} → {answered.answer.text!r}", flush=True)
        for people in TALKS:
            crowd = await talks.run(client, people)
            figures.crowds.append(crowd)
            print(f"… {people} talks at once: {len(crowd.turns)} turns, {crowd.gaps} with a gap", flush=True)
        figures.memory_gb = _memory_gb()
    return figures


async def _answer(client: PipelineClient, question: questions.Question, number: int) -> Answered:
    history: list[Message] = []
    heard: list[str] = []
    answer = Answer()
    for turn in range(len(question.says)):
        answer = Answer()
        said = questions.parts(question, turn)
        request = TurnRequest(
            TurnId(f"question-{number}", str(turn)), (*history, Message("user", said)), now=question.now
        )
        answer.begin()
        try:
            async for event in client.submit(request):
                answer.take(event)
        except VoiceAppError as error:
            answer.finish_reason = f"{error.code}: {error.message}"
            return Answered(question, answer, passed=False)
        heard.append(answer.transcript or "")
        history.append(Message("user", (TextPart(heard[-1]),)))
        history.append(Message("assistant", (TextPart(answer.text),)))
    passed = questions.acceptable(question, answer.text, answer.finish_reason)
    return Answered(question, answer, passed, _by_function(question, heard))


def _by_function(question: questions.Question, heard: list[str]) -> bool:
    """Whether a built-in function takes the last of the words `heard`, not the brain."""
    now = datetime.fromisoformat(question.now) if question.now else datetime.now().astimezone()
    seen = "something; text: something" if question.image or question.image_text else ""
    return plan(heard[-1], now, heard[:-1], seen) is not None


def _memory_gb() -> float:
    """Resident memory of this process and its workers. Shared pages count in each process, so the
    true figure is lower."""
    here = psutil.Process()
    return sum(p.memory_info().rss for p in (here, *here.children(recursive=True))) / 1e9


def _first_audio(figures: Figures) -> list[float]:
    return [a.answer.first_audio_ms for a in figures.answers if a.answer.first_audio_ms is not None]


def _most_people(crowds: list[talks.Crowd]) -> int:
    """The largest crowd that, like all smaller ones, heard every answer without a gap."""
    most = 0
    for crowd in crowds:
        if not crowd.smooth:
            break
        most = crowd.people
    return most


def _goals(figures: Figures, thinker: lean_thinker.Comparison) -> list[report.Goal]:
    passed = sum(a.passed for a in figures.answers)
    return [
        report.Goal(
            "end of speech → first audio, median", report.median(_first_audio(figures)), FIRST_AUDIO_MS, "ms"
        ),
        report.Goal("acceptable answers", passed / len(figures.answers), PASS_RATE, at_least=True),
        report.Goal("answers heard back, word error rate", figures.word_error_rate, HEARD_BACK_WER),
        report.Goal(
            "talks at once without a gap", _most_people(figures.crowds), TALKS_WITHOUT_GAP, at_least=True
        ),
        report.Goal(
            "thinker's tokens a second against a lean loop", thinker.ratio, LEAN_RATIO, at_least=True
        ),
        report.Goal("start to ready", figures.start_seconds, START_SECONDS, "s"),
        report.Goal("memory of all processes", figures.memory_gb, MEMORY_GB, "GB"),
    ]


def _stage_rows(figures: Figures) -> list[tuple[str, str, str]]:
    names = {name for a in figures.answers for name in a.answer.stages}
    rows: list[tuple[float, str, str, str]] = []
    for name in names:
        timings = [a.answer.stages[name] for a in figures.answers if name in a.answer.stages]
        first = report.median([t.first_out_ms for t in timings if not np.isnan(t.first_out_ms)])
        busy = report.median([t.busy_ms for t in timings])
        rows.append((first, name, f"{first:.0f}", f"{busy:.0f}"))
    return [(name, first, busy) for _, name, first, busy in sorted(rows)]


def _print(figures: Figures) -> None:
    kinds = dict.fromkeys(a.question.kind for a in figures.answers)
    report.print_table(
        "answers",
        ("kind", "acceptable", "of", "of them by a function"),
        [_kind_row(figures, k) for k in kinds],
    )
    for name, by_function in (("built-in functions", True), ("the brain", False)):
        chosen = [a for a in figures.answers if a.by_function is by_function]
        print(f"answered by {name}: {sum(a.passed for a in chosen)} of {len(chosen)} acceptable")
    report.print_table("where a turn's time goes (median ms since the question's end)",
                       ("stage", "first output", "busy in all"), _stage_rows(figures))  # fmt: skip
    firsts = _first_audio(figures)
    report.print_table(
        "end of speech → first audio (ms)",
        ("turns", "p50", "p90", "max"),
        [(len(firsts), *(f"{report.percentile(firsts, p):.0f}" for p in (50, 90, 100)))],
    )
    report.print_table("talks at once", talks.HEADER, [crowd.row() for crowd in figures.crowds])


def _kind_row(figures: Figures, kind: str) -> tuple[str, int, int, int]:
    answers = [a for a in figures.answers if a.question.kind == kind]
    return kind, sum(a.passed for a in answers), len(answers), sum(a.by_function for a in answers)


def _as_json(figures: Figures) -> dict[str, object]:
    return {
        "first_audio_ms": _first_audio(figures),
        "answers": [
            {
                "id": a.question.id,
                "heard": a.answer.transcript,
                "passed": a.passed,
                "by_function": a.by_function,
                **a.answer.summary(),
            }
            for a in figures.answers
        ],
        "talks": [crowd.as_json() for crowd in figures.crowds],
    }
