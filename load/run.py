"""The runs behind the commands: the ramp, the soak, locust's own page."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import gevent

from load import figures, report, scenario
from load.ramp import Limits, Search
from load.report import Answer, Report
from load.trial import SETTLE_S, Target, Trial, clock, scripts, trial
from voice_app.bench.report import machine

STEP_S = 30.0
"""How long a number of talks is held."""
LEAST_TURNS = 20
"""A number is held longer until there were so many: of fewer, the 95th percentile is the slowest."""
BUDGET_S = 420.0
"""No new number is tried after so much time: the whole of `make load` stays under ten minutes."""
SETTLE_SHARE = 0.2
"""Of a soak: caches and allocators fill up first."""
TTL_SHARE = 0.5
"""Of that time: how long a soak's server keeps an ended talk."""
LEAST_TTL_S = 10
"""A caller whose connection is cut calls again within a second."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What every run is told."""

    scenario: Path = scenario.PEOPLE
    target: Target = field(default_factory=Target)
    limits: Limits = field(default_factory=Limits)
    say: Callable[[str], None] = print


def ramp(plan: Plan, start: int, most: int, step_s: float = STEP_S, budget_s: float = BUDGET_S) -> Report:
    """Find the largest number of talks that holds."""
    people = scenario.read(plan.scenario)
    cast = scripts(people, plan.scenario.parent)
    search = Search(start, most, plan.limits)
    windows: list[figures.Window] = []
    plan.say(f"▸ starting {plan.target.name}")
    with trial(plan.target, cast) as running:
        until = clock() + budget_s
        while (number := search.next()) is not None and (not windows or clock() < until):
            window = running.hold(number, step_s, least_turns=LEAST_TURNS)
            windows.append(window)
            step = figures.step(running.evidence(), window, plan.limits)
            search.steps.append(step)
            plan.say(_line(step.sessions, figures.spread(step.first_audio_s), step.why_not(plan.limits)))
        _let_traces_come(running)
        evidence, origin = running.evidence(), running.origin
    best = [window for window in windows if window.sessions == search.best] or windows
    return Report(
        kind="ramp",
        machine=machine(),
        target=plan.target.name,
        scenario=plan.scenario.name,
        silence_ms=people.silence_ms,
        first_audio_limit_s=plan.limits.first_audio_s,
        settle_s=SETTLE_S,
        answer=_answer(search),
        steps=[figures.step_figures(evidence, window, plan.limits, origin) for window in windows],
        turns=[turn for window in windows for turn in figures.turn_figures(evidence, window, origin)],
        samples=report.samples_since(evidence, origin),
        breakdown=report.breakdown(evidence, best),
        timeline=report.timeline(evidence, best[-1], origin),
    )


def soak(plan: Plan, sessions: int, minutes: float) -> Report:
    """Hold one number of talks, and look for drift."""
    people = scenario.read(plan.scenario)
    cast = scripts(people, plan.scenario.parent)
    plan.say(f"▸ starting {plan.target.name}")
    settle_s = max(SETTLE_S, SETTLE_SHARE * minutes * 60)
    # What ended talks leave in the store is then as much at every moment that counts.
    target = replace(plan.target, talk_ttl_s=max(LEAST_TTL_S, round(TTL_SHARE * settle_s)))
    with trial(target, cast) as running:
        plan.say(f"▸ {sessions} talks for {minutes:g} minutes; the first {settle_s:.0f} s do not count")
        window = running.hold(sessions, minutes * 60 - settle_s, settle_s)
        _let_traces_come(running)
        evidence, origin = running.evidence(), running.origin
    return Report(
        kind="soak",
        machine=machine(),
        target=plan.target.name,
        scenario=plan.scenario.name,
        silence_ms=people.silence_ms,
        first_audio_limit_s=plan.limits.first_audio_s,
        settle_s=settle_s,
        answer=None,
        steps=[figures.step_figures(evidence, window, plan.limits, origin)],
        turns=figures.turn_figures(evidence, window, origin),
        samples=report.samples_since(evidence, origin),
        breakdown=report.breakdown(evidence, [window]),
        timeline=report.timeline(evidence, window, origin),
        drifts=report.drifts(evidence, window, origin),
    )


def locust_page(plan: Plan, host: str, port: int) -> None:
    """locust's own web page over the scenario's callers, until interrupted."""
    people = scenario.read(plan.scenario)
    plan.say(f"▸ starting {plan.target.name}")
    with trial(plan.target, scripts(people, plan.scenario.parent)) as running:
        # The page reads locust's own options from the command line, which has ours.
        sys.argv = sys.argv[:1]
        web = running.runner.environment.create_web_ui(host, port)
        plan.say(f"▸ http://{host}:{port}: choose how many, and start; Ctrl-C ends it")
        if web.greenlet is not None:
            web.greenlet.join()


def _let_traces_come(running: Trial) -> None:
    running.runner.quit()
    gevent.sleep(2.0)


def _line(sessions: int, first_audio: figures.Spread, why_not: list[str]) -> str:
    audio = "no sound"
    if first_audio.p50 is not None and first_audio.p95 is not None:
        audio = f"first audio p50 {first_audio.p50:.2f} s, p95 {first_audio.p95:.2f} s"
    verdict = "holds" if not why_not else "; ".join(why_not)
    return f"  {sessions:3} talks: {first_audio.n} turns, {audio}: {verdict}"


def _answer(search: Search) -> Answer:
    best = search.best
    first_failed = min((s.sessions for s in search.steps if s.why_not(search.limits)), default=None)
    notes: list[str] = []
    if not search.confirmed:
        notes.append(f"tried for fewer than {search.limits.turns} turns")
    if first_failed is None:
        notes.append("no number failed: the true one may be larger")
    elif any(s.client for s in search.steps if s.sessions == first_failed):
        notes.append(f"the callers were the bottleneck at {first_failed}: the true number may be larger")
    elif first_failed - best > 1:
        notes.append(f"numbers between {best} and {first_failed} were not tried")
    return Answer(best, search.confirmed, "; ".join(notes))
