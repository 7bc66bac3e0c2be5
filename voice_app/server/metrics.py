"""What the server measures, as Prometheus reads it. Buckets are narrow around the goals: first audio 150 ms
after the end of a turn, an interruption within 40 ms of its first sound."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from voice_app.pipeline import graph
from voice_app.pipeline.client import PipelineStatus, WorkerState
from voice_app.server.admission import Admission
from voice_app.server.session.actions import Measure, Tally

LATENCY = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0)
SHORT = (0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.1, 0.2, 0.4, 0.6, 1.0, 2.0)

_MEASURES = {
    Measure.FIRST_TEXT: ("first_text_seconds", "End of the user's turn to the first word sent", LATENCY),
    Measure.FIRST_AUDIO: ("first_audio_seconds", "End of the user's turn to the first sound sent", LATENCY),
    Measure.INTERRUPTION: ("interruption_seconds", "First speech over a reply to the reply's end", SHORT),
    Measure.GAP: ("audio_gap_seconds", "Waits of a listener within one reply (underruns)", SHORT),
}
_TALLIES = {
    Tally.SPECULATION: ("speculations", "Turns begun before they were surely over", "outcome"),
    Tally.RESPONSE: ("responses", "Responses that ended", "status"),
    Tally.OVERLAP: ("overlaps", "Speech over a reply", "outcome"),
    Tally.ERROR: ("errors", "Errors that clients were told", "code"),
}


class _StageFill:
    """The pipeline's fill at the moment it is asked for."""

    def __init__(self, status: Callable[[], PipelineStatus]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        turns = GaugeMetricFamily("voice_app_pipeline_turns", "Turns in the pipeline")
        turns.add_metric([], status.turns)
        yield turns
        ready = GaugeMetricFamily(
            "voice_app_stage_workers", "Workers that take turns, of each stage", labels=["stage"]
        )
        for stage in graph.STAGES:
            there = [worker for worker in status.workers.values() if stage in worker.stages]
            ready.add_metric([stage], sum(worker.state is WorkerState.READY for worker in there))
        yield ready
        for name, what in (
            ("waiting", "Requests that wait in a stage"),
            ("running", "Requests that a stage works on"),
            ("pages_used", "KV cache pages in use"),
            ("pages_total", "KV cache pages"),
        ):
            family = GaugeMetricFamily(f"voice_app_stage_{name}", what, labels=["stage"])
            for stage, load in status.stages.items():
                counts = {
                    "waiting": load.waiting,
                    "running": load.running,
                    "pages_used": load.pages_used,
                    "pages_total": load.pages_total,
                }
                family.add_metric([stage], counts[name])
            yield family


class Metrics:
    """Of one server. `status` and `admission` are asked when the metrics are read."""

    def __init__(self, status: Callable[[], PipelineStatus], admission: Admission) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_StageFill(status))
        talks = Gauge("voice_app_talks", "Talks in progress", registry=self._registry)
        talks.set_function(lambda: admission.talks)
        waiting = Gauge("voice_app_talks_waiting", "Clients that wait", registry=self._registry)
        waiting.set_function(lambda: admission.waiting)
        self.refused = Counter(
            "voice_app_refused", "Clients that were not let in", ["reason"], registry=self._registry
        )
        self._histograms = {
            measure: Histogram(f"voice_app_{name}", what, buckets=buckets, registry=self._registry)
            for measure, (name, what, buckets) in _MEASURES.items()
        }
        self._counters = {
            tally: Counter(f"voice_app_{name}", what, [label], registry=self._registry)
            for tally, (name, what, label) in _TALLIES.items()
        }

    def observe(self, measure: Measure, seconds: float) -> None:
        self._histograms[measure].observe(seconds)

    def count(self, tally: Tally, label: str) -> None:
        self._counters[tally].labels(label).inc()

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)
