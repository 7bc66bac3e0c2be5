"""Real crowds who call the server: locust's users over WebSockets, who speak in real time.

Importing this module patches the process for gevent (locust does)."""

from collections.abc import Sequence
from statistics import mean

from load import scenario
from load.question_shapes import SCENARIO
from load.real_run import Crowd, Held, RealTurn
from load.run import LEAST_TURNS
from load.trial import Target, scripts, trial
from load.turns import Turn
from load.watch import Sample


def run(people: Sequence[int], seconds: float) -> tuple[list[Crowd], int]:
    """Ever more people, each number held for so long, the smallest longer; and the silence in ms
    that ends their turns."""
    cast = scenario.read(SCENARIO)
    held: list[Held] = []
    with trial(Target(max_talks=max(people)), scripts(cast, SCENARIO.parent)) as running:
        origin = running.origin
        for count in sorted(people):
            window = running.hold(count, seconds, least_turns=LEAST_TURNS)
            cores = _cores([s for s in running.watch.samples if window.begin <= s.at < window.end])
            held.append(Held(count, window.begin - origin, window.end - origin, cores))
            used = ", ".join(f"{name} {share:.2f}" for name, share in cores.items())
            print(f"… {count} at once; cores: {used}", flush=True)
        turns = [turn for t in running.scene.record.turns if (turn := _turn(t, origin)) is not None]
    return [Crowd(held, turns)], cast.silence_ms


def _cores(samples: Sequence[Sample]) -> dict[str, float]:
    names = dict.fromkeys(name for sample in samples for name in sample.processes)
    return {name: mean(_percent(samples, name)) / 100 for name in names}


def _percent(samples: Sequence[Sample], name: str) -> list[float]:
    return [sample.processes[name].cpu for sample in samples if name in sample.processes]


def _turn(turn: Turn, origin: float) -> RealTurn | None:
    """None: without an answer that was heard, or with one that came before the question was over."""
    if turn.first_audio_s is None or turn.ended is None or turn.early:
        return None
    return RealTurn(
        turn.talk,
        turn.recording,
        turn.speech_began - origin,
        turn.ended - origin,
        turn.first_audio_s,
        len(turn.underruns),
    )
