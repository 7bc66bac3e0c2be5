"""Real crowds who call the server: locust's users over WebSockets, who speak in real time.

Importing this module patches the process for gevent (locust does)."""

from collections.abc import Callable, Sequence
from statistics import mean

import msgspec

from load import scenario
from load.mouth import Script
from load.question_shapes import SCENARIO
from load.real_run import Crowd, Held, RealTurn
from load.run import LEAST_TURNS
from load.trial import Target, scripts, trial
from load.turns import Turn
from load.watch import Sample


def run(people: Sequence[int], seconds: float, pace: Callable[[], float]) -> tuple[list[Crowd], int]:
    """Each number of people with a server of their own, held for so long, the smallest longer; and the
    silence in ms that ends their turns. `pace` is asked while nobody talks: before and after each of them."""
    cast = scenario.read(SCENARIO)
    crowds: list[Crowd] = []
    before = pace()
    for count in sorted(people):
        crowd = _crowd(count, seconds, scripts(cast, SCENARIO.parent))
        after = pace()
        crowds.append(msgspec.structs.replace(crowd, pace=(before + after) / 2))
        before = after
        used = ", ".join(f"{name} {share:.2f}" for name, share in crowd.held[0].cores.items())
        print(f"… {count} at once; pace {crowds[-1].pace:.2f}; cores: {used}", flush=True)
    return crowds, cast.silence_ms


def _crowd(people: int, seconds: float, said: dict[str, Script]) -> Crowd:
    with trial(Target(max_talks=people), said) as running:
        origin = running.origin
        window = running.hold(people, seconds, least_turns=LEAST_TURNS)
        cores = _cores([s for s in running.watch.samples if window.begin <= s.at < window.end])
        turns = [turn for t in running.scene.record.turns if (turn := _turn(t, origin)) is not None]
    return Crowd([Held(people, window.begin - origin, window.end - origin, cores)], turns)


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
