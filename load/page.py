"""The report as one HTML file without anything outside of it."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template

from load import plots
from load.figures import Spread, StepFigures
from load.report import Report
from load.turns import FAULTS

_PAGE = Template(Path(__file__).with_suffix(".html").read_text())

Row = Sequence[str]


def html(report: Report) -> str:
    """The whole page."""
    title = "Load test" if report.kind == "ramp" else "Soak test"
    about = (
        f"{report.target}, callers of {report.scenario}; {report.silence_ms} ms of silence end a turn. "
        "{time}, {processor}, {cores} cores, {memory_gib} GiB, {system}, Python {python}.".format(
            **report.machine
        )
    )
    body = [_answer(report), _client(report), _steps(report)]
    if report.kind == "ramp":
        body.append(
            _figure(
                plots.latency(report),
                "Each point is one try of a number of talks. The wait includes the silence that ends a turn.",
            )
        )
    if report.drifts:
        body.append(_drifts(report))
    if report.breakdown:
        held = report.answer is not None and report.answer.sessions
        whose = "the number of the answer talked" if held else "any number talked"
        caption = _BREAKDOWN.format(whose=whose)
        body += ["<h2>Where each turn's time went</h2>", _figure(plots.breakdown(report), caption)]
        body.append(_stages(report))
    if report.timeline is not None:
        body += ["<h2>One talk</h2>", _figure(plots.timeline(report.timeline), _TIMELINE)]
    body += [
        "<h2>The machine meanwhile</h2>",
        _figure(plots.processes(report), _SHADED),
    ]
    if any(sample.waiting for sample in report.samples):
        body.append(_figure(plots.queues(report), f"From /metrics, once a second. {_SHADED}"))
    body.append(_processes(report))
    return _PAGE.substitute(title=title, about=escape(about), body="\n".join(part for part in body if part))


_SHADED = "Shaded: the stretches that count, with the number of talks; between them the number changes."
_BREAKDOWN = (
    "Every turn that was completed while {whose}, from the server's traces. A turn is submitted before the "
    "silence that ends it is over, so not all of this is waited for."
)
_TIMELINE = (
    "Green: speech. Triangles: first text; strokes: each piece of sound as it came; blue: what was heard; "
    "red: a gap; a cross: silence after an interruption. Grey: each stage from its first input to its last "
    "output; stroke: its first output."
)


def _answer(report: Report) -> str:
    if report.answer is None:
        return ""
    answer = report.answer
    if not answer.sessions:
        return '<p class="answer bad">Not even the smallest number of talks that was tried held.</p>'
    note = f'<br><span class="soft">{escape(answer.note)}</span>' if answer.note else ""
    return (
        f'<p class="answer"><strong>{answer.sessions} talks at once</strong> without an underrun, with p95 '
        f"of end of speech → first audio within {report.first_audio_limit_s:g} s{note}</p>"
    )


def _client(report: Report) -> str:
    found = dict.fromkeys(f"{step.sessions} talks: {step.client}" for step in report.steps if step.client)
    if not found:
        return '<p class="good">The callers kept their pace throughout.</p>'
    return f'<p class="bad">The callers were the bottleneck. {escape("; ".join(found))}.</p>'


def _steps(report: Report) -> str:
    """A row for each figure, a column for each try."""
    columns = [_step(step) for step in report.steps]
    header = ("", *(f"{step.sessions} talks" for step in report.steps))
    rows = [(name, *(column[name] for column in columns)) for name in columns[0]] if columns else []
    return f'<div class="wide">{_table(header, rows)}</div>{_against(report)}{_STEP_NOTE}'


_STEP_NOTE = (
    '<p class="soft">First text and first audio count from the end of speech, “work” from the end of the '
    "silence that ends the turn, an interruption from its first packet. CPU is that of all processes but "
    "the callers.</p>"
)


def _step(step: StepFigures) -> dict[str, str]:
    """Name of each figure → how it is written."""
    return {
        "turns with sound": f"{step.first_audio.n}",
        "how turns ended": _counts(step.outcomes),
        "first audio p50 / p95 / p99, ms": _three(step.first_audio),
        "first text p50 / p95 / p99, ms": _three(step.first_text),
        "work p50 / p95 / p99, ms": _three(step.work),
        "turns with an underrun": f"{step.turns_with_underrun}",
        "underrun p50 / p95 / p99, ms": _three(step.underrun),
        "longest gap between pieces p50 / p95 / p99, ms": _three(step.gap),
        "real-time factor p50 / p95 / p99": _three(step.real_time_factor, 1, ".2f"),
        "interruptions": f"{step.silence.n}",
        "interruption → silence p50 / p95 / p99, ms": _three(step.silence),
        "interruption → last sound sent p50 / p95 / p99, ms": _three(step.still_sent),
        "talks begun": f"{step.connect.n}",
        "dialled → greeted p50 / p95 / p99, ms": _three(step.connect),
        "resumed talks": f"{step.resume.n}",
        "dialled again → resumed p50 / p95 / p99, ms": _three(step.resume),
        "answered before the end of the question": f"{step.early}",
        "turns that failed": f"{sum(step.outcomes.get(outcome, 0) for outcome in FAULTS)}",
        "errors outside of turns": _counts(step.errors) or "0",
        "CPU of a turn, s": "–" if step.cpu_s_per_turn is None else f"{step.cpu_s_per_turn:.2f}",
        "callers' packets late p50 / p95 / p99, ms": _three(step.late, 1000, ".1f"),
    }


def _against(report: Report) -> str:
    """Why each number that did not hold did not."""
    lines = [
        f"<li>{step.sessions} talks: {escape('; '.join(step.why_not))}</li>"
        for step in report.steps
        if step.why_not
    ]
    return f"<p>What speaks against a number:</p><ul>{''.join(lines)}</ul>" if lines else ""


def _stages(report: Report) -> str:
    header = ("talks", "stage", "first output p50", "p95", "p99", "in model calls p50", "p95", "p99")
    rows = [
        (
            f"{step.sessions}",
            name,
            *(_ms(value) for value in (stage.first_out.p50, stage.first_out.p95, stage.first_out.p99)),
            *(_ms(value) for value in (stage.busy.p50, stage.busy.p95, stage.busy.p99)),
        )
        for step in report.steps
        for name, stage in step.stages.items()
    ]
    return _folded("All stages at all numbers", _table(header, rows))


def _processes(report: Report) -> str:
    header = ("talks", "process", "CPU p50", "p95", "memory p50", "p99")
    rows = [
        (
            f"{step.sessions}",
            name,
            *(f"{value:.0f} %" for value in (cpu.p50, cpu.p95) if value is not None),
            *(f"{v:.0f} MB" for v in (step.memory_mb[name].p50, step.memory_mb[name].p99) if v is not None),
        )
        for step in report.steps
        for name, cpu in step.cpu.items()
    ]
    return _folded("All processes at all numbers", _table(header, rows))


def _drifts(report: Report) -> str:
    header = ("figure", "level", "change over the run", "noise", "scatter", "")
    rows = [
        (
            drift.name,
            f"{drift.level:.1f} {drift.unit}",
            f"{drift.change:+.2f} {drift.unit}",
            f"± {drift.margin:.2f}",
            f"{drift.scatter:.2f}",
            drift.verdict,
        )
        for drift in report.drifts
    ]
    figures = "".join(_figure(plots.drift(drift), "") for drift in report.drifts)
    return f"<h2>Drift</h2>{_table(header, rows)}{_DRIFT_NOTE}{figures}"


_DRIFT_NOTE = (
    '<p class="soft">A straight line through each figure. “Noise” is how much the line rises or falls over '
    "the run where nothing drifts: in 95 % of such runs all figures stay within it. That neighbouring points "
    "are alike is reckoned with.</p>"
)


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _table(header: Row, rows: Iterable[Row]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _folded(summary: str, content: str) -> str:
    return f'<details><summary>{escape(summary)}</summary><div class="wide">{content}</div></details>'


def _three(spread: Spread, scale: float = 1000, form: str = ",.0f") -> str:
    values = (spread.p50, spread.p95, spread.p99)
    return " / ".join(f"{scale * value:{form}}" for value in values if value is not None) or "–"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1000:,.0f} ms"
