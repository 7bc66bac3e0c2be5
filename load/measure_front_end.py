"""What a talk takes beside the models, in the server and in the callers: over a pipeline that costs nothing.

    python -m load.measure_front_end

Prints one line of JSON: `Around`'s fields that are told here. A process of its own, because the callers patch
theirs for gevent.
"""

import json
import sys
from collections.abc import Sequence

from load import scenario
from load.question_shapes import SCENARIO, heard, pool, recording
from load.simulation.listening import Then, steps
from load.trial import Target, scripts, trial
from load.turns import Turn
from load.watch import CLIENT
from voice_app.bench.report import median
from voice_app.server.session.turns import Rules

TALKS = 8
SECONDS = 20.0


def main() -> int:
    """Measure and print."""
    people = scenario.read(SCENARIO)
    with trial(Target(null_pipeline=True), scripts(people, SCENARIO.parent)) as running:
        window = running.hold(TALKS, SECONDS)
        evidence = running.evidence()
    samples = [s.processes for s in evidence.samples if window.begin <= s.at < window.end]
    cores = {
        field: median([processes[name].cpu for processes in samples if name in processes]) / 100 / TALKS
        for field, name in (("server_cores", "server"), ("callers_cores", CLIENT))
    }
    print(json.dumps({**cores, "reply_s": median(_replies_s(evidence.record.turns, people.silence_ms))}))
    return 0


def _replies_s(turns: Sequence[Turn], silence_ms: int) -> list[float]:
    """From the packet that ends a turn to its first sound."""
    rules = Rules(silence_ms=silence_ms)
    over = {
        recording(question): max(at for at, then in steps(heard(question), rules) if then is Then.ANSWER)
        for question in pool()
    }
    return [
        turn.first_audio_s - over[turn.recording]
        for turn in turns
        if turn.first_audio_s is not None and not turn.early
    ]


if __name__ == "__main__":
    sys.exit(main())
