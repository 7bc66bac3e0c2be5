"""A run: a server, locust with its callers, and the watch over both."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import gevent
import psutil

from load import caller  # First: it patches the process for gevent.  # isort: skip
from locust.env import Environment
from locust.runners import LocalRunner

from load.caller import clock
from load.cast import Cast
from load.figures import Evidence, Window
from load.mouth import Script
from load.recordings import picture_events, subjects
from load.scenario import Scenario
from load.traces import Traces, collector
from load.watch import Watch
from voice_app.bench.servers import Surroundings, free_server, pack_server
from voice_app.errors import ConfigError

SETTLE_S = 8.0
"""After the number of talks has changed, before anything counts."""
SPAWN_S = 2.0
"""In which the callers of a number dial."""
LONGEST = 3
LOOK_EVERY_S = 1.0
SERVER_NICENESS = 5
"""The callers share the machine with the server and go first, so that their clock is right. What they use,
the server lacks."""
REALTIME = "/v1/realtime"


@dataclass(frozen=True, slots=True)
class Target:
    """Which server is called: one of our own with the local pack, or with a pipeline that costs nothing
    (`null_pipeline`), or one that runs already (`url`: ws://HOST:PORT/v1/realtime). Of our own: `log`;
    `talk_ttl_s`, for which the local pack's server keeps ended talks (None: its default)."""

    null_pipeline: bool = False
    url: str | None = None
    log: Path | None = None
    max_talks: int = 64
    talk_ttl_s: int | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        parts = urlsplit(self.url or "ws://x/")
        if parts.scheme not in ("ws", "wss") or not parts.hostname:
            raise ConfigError(f"--url {self.url}: must be like ws://127.0.0.1:8000{REALTIME}", param="url")

    @property
    def name(self) -> str:
        if self.url:
            return self.url
        return "a pipeline that costs nothing" if self.null_pipeline else "the local pack"


@dataclass(slots=True)
class Trial:
    """Callers against a server that is up. `origin`: our clock at the run's first moment."""

    runner: LocalRunner
    scene: caller.Scene
    watch: Watch
    traces: Traces
    origin: float = field(default_factory=clock)
    wall_offset: float = field(default_factory=lambda: time.time() - clock())

    def hold(self, sessions: int, seconds: float, settle_s: float = SETTLE_S, least_turns: int = 0) -> Window:
        """Let so many talk; gives the window that counts, which is longer, up to `LONGEST` times, where there
        were not so many turns yet."""
        self.runner.start(sessions, spawn_rate=max(1.0, sessions / SPAWN_S))
        gevent.sleep(settle_s)
        begin = clock()
        gevent.sleep(seconds)
        while self._turns_since(begin) < least_turns and clock() < begin + LONGEST * seconds:
            gevent.sleep(LOOK_EVERY_S)
        end = clock()
        return Window(sessions, begin, end, [ear.waits_s(end) for ear in self.scene.ears])

    def _turns_since(self, begin: float) -> int:
        """Turns with a sound that ended."""
        turns = self.scene.record.turns
        return sum(turn.counted and bool(turn.chunks) and (turn.ended or 0) >= begin for turn in turns)

    def evidence(self) -> Evidence:
        """All that was seen so far."""
        return Evidence(
            self.scene.record, self.scene.pacing, self.watch.samples, self.traces.turns, self.wall_offset
        )


def scripts(scenario: Scenario, folder: Path) -> dict[str, Script]:
    """What each kind of caller says and shows; files are seen from `folder`. Raises ConfigError."""
    return {
        name: Script(
            person,
            subjects(person.speech, folder),
            picture_events(person.pictures, folder),
            scenario.silence_ms,
        )
        for name, person in scenario.people.items()
    }


@contextlib.contextmanager
def trial(target: Target, cast: dict[str, Script]) -> Iterator[Trial]:
    """A server that is up, callers that have not dialled yet, and a watch that runs. All end with it."""
    traces = Traces()
    with collector(traces) as environment, _server(target, environment) as (url, process):
        scene = caller.Scene(url, Cast(cast))
        environment_of_users = Environment(user_classes=[caller.caller_class(scene)], host=url)
        runner = environment_of_users.create_local_runner()
        watch = Watch(http_of(url), process, clock)
        watching = gevent.spawn(_keep_looking, watch)
        try:
            yield Trial(runner, scene, watch, traces)
        finally:
            runner.quit()
            watching.kill()
            # The server's last traces.
            gevent.sleep(0)


def http_of(url: str) -> str:
    """ws://HOST:PORT/… → http://HOST:PORT."""
    parts = urlsplit(url)
    return f"{'https' if parts.scheme == 'wss' else 'http'}://{parts.netloc}"


@contextlib.contextmanager
def _server(target: Target, environment: dict[str, str]) -> Iterator[tuple[str, psutil.Process | None]]:
    """Gives the endpoint's URL, and the process if it is ours."""
    if target.url:
        yield target.url, None
        return
    surroundings = Surroundings(environment, target.log, SERVER_NICENESS)
    options = ["--max-talks", str(target.max_talks)]
    if target.talk_ttl_s is not None:
        options += ["--talk-ttl", str(target.talk_ttl_s)]
    starting = free_server(surroundings) if target.null_pipeline else pack_server(options, surroundings)
    with starting as (port, process):
        yield f"ws://127.0.0.1:{port}{REALTIME}", process


def _keep_looking(watch: Watch) -> None:
    while True:
        watch.look()
        gevent.sleep(LOOK_EVERY_S)
