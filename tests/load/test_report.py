"""From what was seen to figures, and from figures to the page."""

import re
from html.parser import HTMLParser

import made_up
import pytest
from made_up import WINDOW, evidence, interrupted, trace, turn, underrun

from load import figures, page, report
from load.pacing import bottleneck
from load.ramp import Limits
from load.report import Answer, Report
from load.turns import Outcome
from voice_app.errors import ConfigError

LIMITS = Limits()


def step(seen: figures.Evidence) -> figures.StepFigures:
    return figures.step_figures(seen, WINDOW, LIMITS, origin=5.0)


def test_only_turns_that_ended_within_the_window_and_count_are_looked_at():
    seen = evidence([turn(9.9), turn(20.0), turn(50.0), turn(90.0), turn(30.0, counted=False)])
    assert [t.ended for t in figures.turns_of(seen, WINDOW)] == [20.0, 50.0]
    found = step(seen)
    assert found.outcomes == {"heard": 2}
    assert (found.begin, found.end) == (5.0, 85.0)
    assert found.why_not == []


def test_percentiles_are_of_the_turns():
    seen = evidence([turn(20.0 + i / 10, first_audio_s=0.01 * i) for i in range(1, 101)])
    found = step(seen).first_audio
    assert found.n == 100
    assert (found.p50, found.p95, found.p99) == (pytest.approx(0.5), pytest.approx(0.95), pytest.approx(0.99))


def test_work_is_without_the_silence_and_text_comes_before_sound():
    found = step(evidence([turn(20.0, first_audio_s=0.7)]))
    assert found.work.p50 == pytest.approx(0.2)
    assert found.first_text.p50 == pytest.approx(0.6)


def test_interruptions_have_two_figures():
    found = step(evidence([turn(20.0), interrupted(30.0)]))
    assert found.outcomes == {"heard": 1, "interrupted": 1}
    assert found.silence.n == 1
    assert found.silence.p50 == pytest.approx(0.4)
    assert found.still_sent.p50 == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("turns", "why"),
    [
        ([turn(20.0, underruns=[underrun(19.0, 0.3)])], ["1 underruns"]),
        ([turn(20.0, first_audio_s=1.2)], ["p95 of first audio 1.20 s"]),
        ([turn(20.0), turn(21.0, outcome=Outcome.SOUNDLESS)], ["1 turns or talks failed"]),
        ([turn(20.0), turn(21.0, outcome=Outcome.LEFT)], []),
    ],
)
def test_what_speaks_against_a_number(turns, why):
    assert step(evidence(turns)).why_not == why


def test_every_turn_is_kept_with_its_figures():
    gone = turn(30.0, underruns=[underrun(29.0, 0.3)], chunks=[(27.0, 0.5), (27.5, 1.0), (29.3, 0.5)])
    first, second = figures.turn_figures(evidence([gone, turn(95.0), interrupted(50.0)]), WINDOW, origin=5.0)
    assert (first.outcome, first.sessions, first.underruns) == ("heard", 4, [(24.0, 0.3)])
    assert first.speech_ended == pytest.approx(30.0 - 2.0 - 0.7 - 5.0)
    assert first.first_audio_s == pytest.approx(0.7)
    assert first.gap_s == pytest.approx(1.8)
    assert (second.outcome, second.silence_s) == ("interrupted", pytest.approx(0.4))
    assert step(evidence([gone])).gap.p50 == pytest.approx(1.8)


def test_an_early_answer_has_no_latency():
    found = step(evidence([turn(20.0), turn(21.0, first_audio_s=-0.5, early=True)]))
    assert (found.first_audio.n, found.early) == (1, 1)


def test_questions_that_wait_when_the_window_ends_are_overdue():
    seen = evidence([turn(20.0)])
    window = figures.Window(4, 10.0, 90.0, [0.0, 0.9, 1.1])
    assert figures.step(seen, window, LIMITS).overdue == 1


def test_faults_outside_of_turns_count_in_their_window():
    seen = evidence([turn(20.0)])
    seen.record.errors += [(5.0, "early"), (50.0, "closed by the server"), (95.0, "late")]
    found = step(seen)
    assert found.errors == {"closed by the server": 1}
    assert found.why_not == ["1 turns or talks failed"]


def test_cpu_of_a_turn_is_that_of_all_processes_but_the_callers():
    found = step(evidence([turn(20.0), turn(30.0), turn(40.0, outcome=Outcome.FAILED)]))
    # 79 seconds between the first sample and the last, 10 % and 50 % of a core, two turns.
    assert found.cpu_s_per_turn == pytest.approx(79 * 0.6 / 2)
    assert found.cpu["worker text"].p50 == 50.0


@pytest.mark.parametrize(
    ("late", "cpu", "says"),
    [
        ([0.001] * 99 + [0.5], [50.0], None),
        ([0.001] * 97 + [0.03] * 3, [50.0], "fell behind: p99 of their packets 30 ms"),
        ([0.001], [95.0] * 20, "whole core: p95 95 %"),
        ([], [], None),
    ],
)
def test_callers_that_were_the_bottleneck_are_named(late, cpu, says):
    found = bottleneck(late, cpu)
    assert found is None if says is None else found is not None and says in found


def test_a_run_whose_callers_fell_behind_says_so():
    found = step(evidence([turn(20.0)], late_s=0.05))
    assert found.client is not None
    assert found.why_not == [found.client]


def test_the_parts_of_a_turn_add_up_to_its_first_sound():
    parts = figures.path_to_sound(trace(20.0))
    assert parts == pytest.approx(
        {
            "preprocessing": 0.01,
            "audio_encoder": 0.06,
            "thinker": 0.04,
            "talker_ar": 0.08,
            "code2wav": 0.01,
        }
    )
    assert list(parts) == list(figures.PATH[:2]) + list(figures.PATH[3:])


def test_a_turn_without_sound_has_no_parts():
    silent = trace(20.0)
    del silent.stages["code2wav"]
    assert figures.path_to_sound(silent) == {}


def test_what_was_heard_has_its_gaps_and_ends_with_the_silence():
    assert report.heard(turn(20.0, chunks=[(1.0, 0.5), (1.2, 0.5), (3.0, 0.5)])) == [(1.0, 2.0), (3.0, 3.5)]
    assert report.heard(turn(20.0, chunks=[(1.0, 0.5), (3.0, 0.5)], silent=1.25)) == [(1.0, 1.25)]


def test_the_timeline_shows_the_talk_with_an_interruption():
    plain = [turn(20.0), turn(30.0)]
    cut = [turn(40.0, talk=2, session="sess_2"), interrupted(50.0)]
    cut[1].talk, cut[1].session = 2, "sess_2"
    seen = evidence(plain + cut, [trace(17.0), trace(37.0, "sess_2")])
    shown = report.timeline(seen, WINDOW, origin=5.0)
    assert shown is not None
    assert [said.outcome for said in shown.said] == ["heard", "interrupted"]
    assert {bar.begin for bar in shown.stages} == {32.0}
    assert shown.said[1].silent == pytest.approx(45.0)


def test_a_soak_knows_what_drifts():
    turns = [turn(10.0 + i * 0.5, first_audio_s=0.6 + 0.05 * (i % 3)) for i in range(160)]
    found = {drift.name: drift for drift in report.drifts(evidence(turns), WINDOW, origin=5.0, warm_up_s=0)}
    assert found["p95 of first audio"].verdict == "within noise"
    assert found["memory, server"].verdict == "within noise"
    leak = found["memory, worker text"]
    assert leak.verdict == "grows"
    assert not any(name.startswith("memory, callers") for name in found), "they keep what they measured"
    # A megabyte a second, from the middle of the first of 26 parts (of three samples or more) to the last's.
    assert len(leak.points) == 26
    assert leak.change == pytest.approx(80 * 25 / 26, rel=0.01)


def test_memory_counts_when_processes_are_warm():
    """From 45 s on: 15 parts of three samples each."""
    found = report.drifts(evidence([turn(20.0)]), WINDOW, origin=5.0, warm_up_s=40.0)
    assert {len(figures.points) for figures in found} == {15}
    assert min(at for at, _ in found[0].points) == pytest.approx(41.5, abs=0.5)
    assert report.drifts(evidence([turn(20.0)]), WINDOW, origin=5.0) == []


def test_a_soak_with_too_few_turns_says_nothing_of_them():
    turns = [turn(10.0 + i, first_audio_s=0.6 + 0.005 * i) for i in range(80)]
    assert "p95 of first audio" not in [
        d.name for d in report.drifts(evidence(turns), WINDOW, origin=5.0, warm_up_s=0)
    ]


class Page(HTMLParser):
    """What refers to something outside, and what is drawn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.drawn = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.drawn += tag == "svg"
        if tag in ("script", "link", "img", "iframe"):
            self.outside.append(tag)
        for name, value in attrs:
            if name in ("href", "xlink:href", "src") and not (value or "").startswith("#"):
                self.outside.append(f"{tag} {value}")


def a_report(kind: str = "ramp") -> Report:
    turns = [turn(12.0 + 0.7 * i, first_audio_s=0.5 + 0.01 * (i % 20)) for i in range(110)]
    seen = evidence([*turns, interrupted(60.0)], [trace(15.0 + i, scale=1 + i / 40) for i in range(60)])
    return Report(
        kind=kind,
        machine={
            "time": "now", "processor": "<b>", "cores": 2, "memory_gib": 8, "system": "Linux", "python": "3"
        },
        target="the local pack",
        scenario="people.toml",
        silence_ms=500,
        first_audio_limit_s=1.0,
        settle_s=8.0,
        answer=Answer(4, True, "") if kind == "ramp" else None,
        steps=[figures.step_figures(seen, WINDOW, LIMITS, 0.0)],
        turns=figures.turn_figures(seen, WINDOW, 0.0),
        samples=report.samples_since(seen, 0.0),
        breakdown=report.breakdown(seen, [WINDOW]),
        timeline=report.timeline(seen, WINDOW, 0.0),
        drifts=report.drifts(seen, WINDOW, 0.0, warm_up_s=0) if kind == "soak" else [],
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "drawings"), [("ramp", 5), ("soak", 7)])
def test_the_page_is_one_file_with_every_plot(kind, drawings):
    text = page.html(a_report(kind))
    parsed = Page(text)
    assert parsed.outside == []
    assert parsed.drawn == drawings
    assert "url(http" not in text
    assert "&lt;b&gt;" in text
    # Colours of text and lines are the page's, so that it can be read in light and in dark.
    assert "currentColor" in text
    assert not re.search(r"(fill|stroke): #000000", text)


def test_the_page_says_how_turns_ended_and_every_figure_of_a_step():
    text = page.html(a_report())
    assert "heard, 1 interrupted" in text
    for figure in (
        "first audio", "first text", "work", "underrun", "real-time factor", "interruption → silence",
        "resumed talks", "dialled again → resumed", "dialled → greeted", "errors outside of turns",
    ):  # fmt: skip
        assert f"<td>{figure}" in text, figure


def test_a_report_is_read_back_as_it_was(tmp_path):
    made = a_report()
    report.write(made, tmp_path / "report.json")
    assert report.read(tmp_path / "report.json") == made


def test_what_is_no_report_is_named(tmp_path):
    path = tmp_path / "report.json"
    with pytest.raises(ConfigError, match="No such file"):
        report.read(path)
    path.write_text('{"kind": 3}')
    with pytest.raises(ConfigError, match="not a report of this version"):
        report.read(path)


def test_a_run_that_never_was_is_what_it_says():
    """The made-up turn has the times that the other tests count on."""
    made = made_up.turn(20.0)
    assert made.first_audio_s == pytest.approx(0.7)
    assert made.real_time_factor == pytest.approx((19.5 - 18.0) / 2)
