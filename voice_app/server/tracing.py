"""OpenTelemetry: each turn of the pipeline as a trace with a span for each stage, so that one turn can be
looked at as a picture. Needs the extra `otel`; `OTEL_EXPORTER_OTLP_ENDPOINT` says where traces go."""

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import set_span_in_context

from voice_app.messages import StageTiming, TurnId


class TurnTracer:
    """`processor` None: traces go to the endpoint of the environment, in the background."""

    def __init__(self, processor: SpanProcessor | None = None) -> None:
        self._provider = TracerProvider(resource=Resource.create({"service.name": "voice-app"}))
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("voice_app")

    def turn(self, turn: TurnId, submitted_ns: int, stages: dict[str, StageTiming]) -> None:
        """A turn is done: `submitted_ns` is the wall clock at its start, times of stages count from there."""

        def at(ms: float) -> int:
            return submitted_ns + round(ms * 1e6)

        names: dict[str, str | int] = {
            "voice_app.session": turn.session,
            "voice_app.turn": turn.turn,
            "voice_app.generation": turn.generation,
        }
        root = self._tracer.start_span("turn", start_time=submitted_ns, attributes=names)
        context = set_span_in_context(root)
        for stage, timing in stages.items():
            span = self._tracer.start_span(
                stage, context, start_time=at(timing.first_in_ms), attributes={"busy_ms": timing.busy_ms}
            )
            span.add_event("first output", timestamp=at(timing.first_out_ms))
            span.end(at(timing.last_out_ms))
        root.end(at(max((timing.last_out_ms for timing in stages.values()), default=0.0)))

    def close(self) -> None:
        """Send what waits."""
        self._provider.shutdown()
