"""Simulated time: things that happen later, and processors that are shared."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from math import inf

Action = Callable[[], None]
EDGE_S = 1e-9


class Clock:
    """`now` in seconds. What is due at the same time happens in the order it was asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Action]] = []
        self._number = count()

    def __call__(self) -> float:
        return self.now

    def after(self, seconds: float, action: Action) -> None:
        """`action` in so many seconds."""
        heapq.heappush(self._due, (self.now + seconds, next(self._number), action))

    def run(self, until: float) -> None:
        """Let time pass up to `until`, or until nothing is left to happen."""
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heapq.heappop(self._due)
            action()


@dataclass(frozen=True, slots=True)
class Pace:
    """How many times as long work takes than it should, in steps of `step_s` seconds, over and over again: a
    machine that others use too is not equally fast from one second to the next."""

    steps: tuple[float, ...] = (1.0,)
    step_s: float = inf

    def from_share(self, share: float) -> "Pace":
        """The same, begun when so much of its steps (0 to 1) had passed."""
        first = round(share * len(self.steps)) % len(self.steps)
        return Pace((*self.steps[first:], *self.steps[:first]), self.step_s)

    def at(self, now: float) -> float:
        return self.steps[int(now / self.step_s) % len(self.steps)]

    def changes_after(self, now: float) -> float:
        """Seconds from `now` until the next step begins."""
        return inf if self.step_s == inf else (int(now / self.step_s) + 1) * self.step_s - now


@dataclass(slots=True)
class _Job:
    left: float
    crowded: float
    then: Action


class Processor:
    """`cores` that all jobs share evenly, none faster than one core. While more than one job is at work, each
    takes `crowded` times as long, by what it is: cores share the memory's bandwidth and the caches. All of
    them keep the same `pace`."""

    def __init__(self, clock: Clock, cores: float, pace: Pace | None = None) -> None:
        self.cores = cores
        self._pace = pace or Pace()
        self._slow = self._pace.at(clock.now)
        self.busy_s = 0.0
        """Core seconds spent so far."""
        self._clock = clock
        self._free = cores
        self._jobs: dict[int, _Job] = {}
        self._since = 0.0
        self._number = count()
        self._round = 0

    def work(self, seconds: float, then: Action, crowded: float = 1.0) -> None:
        """A job of so many seconds of one core alone; `then` happens when it is done."""
        self._pass()
        self._jobs[next(self._number)] = _Job(seconds, crowded, then)
        self._plan()

    def give_away(self, cores: float) -> None:
        """From now on so much goes to what has no jobs here."""
        self._pass()
        self._free = max(0.01, self.cores - cores)
        self._plan()

    def _rate(self, job: _Job) -> float:
        """Seconds of its work that are done in a second."""
        share = min(1.0, self._free / len(self._jobs)) / self._slow
        return share / job.crowded if len(self._jobs) > 1 else share

    def _pass(self) -> None:
        """Take off what was done since the jobs last changed."""
        passed = self._clock.now - self._since
        self.busy_s += passed * (min(len(self._jobs), self._free) + self.cores - self._free)
        for job in self._jobs.values():
            job.left -= passed * self._rate(job)
        self._since = self._clock.now

    def _plan(self) -> None:
        """Wake up when the next job is done or the pace changes, unless the jobs change before."""
        self._round += 1
        if self._jobs:
            plan, now = self._round, self._clock.now
            # A hair beyond the step's edge: rounding must not find the step before it again.
            self._slow = self._pace.at(now + EDGE_S)
            done = min(job.left / self._rate(job) for job in self._jobs.values())
            wait = min(max(0.0, done), self._pace.changes_after(now + EDGE_S) + EDGE_S)
            self._clock.after(wait, lambda: self._finish(plan))

    def _finish(self, plan: int) -> None:
        if plan != self._round:
            return
        self._pass()
        done = [number for number, job in self._jobs.items() if job.left <= 1e-9]
        actions = [self._jobs.pop(number).then for number in done]
        self._plan()
        for action in actions:
            action()
