"""Simulated time: things that happen later, and processors that are shared."""

import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


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


class Processor:
    """`cores` that all jobs share evenly, none faster than one core. With more than one job at work each
    takes `crowded` times as long: cores share the memory's bandwidth."""

    def __init__(self, clock: Clock, cores: float, crowded: float = 1.0) -> None:
        self.busy_s = 0.0
        """Core seconds spent so far."""
        self._clock = clock
        self._cores = cores
        self._crowded = crowded
        self._jobs: dict[int, tuple[float, Action]] = {}
        """Work left and what follows it."""
        self._since = 0.0
        self._number = count()
        self._round = 0

    def rate(self) -> float:
        """Seconds of work that each job does in a second."""
        jobs = len(self._jobs)
        if jobs < 2:
            return 1.0
        return min(1.0, self._cores / jobs) / self._crowded

    def work(self, seconds: float, then: Action) -> None:
        """A job of so many seconds of one core; `then` happens when it is done."""
        self._pass()
        self._jobs[next(self._number)] = (seconds, then)
        self._plan()

    def _pass(self) -> None:
        """Take off what was done since the jobs last changed."""
        done = (self._clock.now - self._since) * self.rate()
        self.busy_s += (self._clock.now - self._since) * min(len(self._jobs), self._cores)
        self._jobs = {job: (left - done, then) for job, (left, then) in self._jobs.items()}
        self._since = self._clock.now

    def _plan(self) -> None:
        """Wake up when the next job is done, unless the jobs change before."""
        self._round += 1
        if self._jobs:
            least = min(left for left, _ in self._jobs.values())
            plan = self._round
            self._clock.after(max(0.0, least) / self.rate(), lambda: self._finish(plan))

    def _finish(self, plan: int) -> None:
        if plan != self._round:
            return
        self._pass()
        done = [job for job, (left, _) in self._jobs.items() if left <= 1e-9]
        actions = [self._jobs.pop(job)[1] for job in done]
        self._plan()
        for action in actions:
            action()
