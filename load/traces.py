"""Where each turn's time went in the server: a collector of its OpenTelemetry traces."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from gevent.pywsgi import WSGIServer
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

FLUSH_MS = 1000
"""How long the server may keep a trace to itself."""


class StageSpan(msgspec.Struct, frozen=True):
    """Seconds since the turn was submitted; `busy_s`: in model calls."""

    first_in: float
    first_out: float
    last_out: float
    busy_s: float


class TurnTrace(msgspec.Struct):
    """One turn: when it was submitted (the wall clock, seconds) and its stages by name."""

    session: str
    turn: str
    submitted: float
    stages: dict[str, StageSpan] = {}


class Traces:
    """`turns`: every turn whose root span has come."""

    def __init__(self) -> None:
        self.turns: list[TurnTrace] = []
        self._stages: dict[bytes, dict[str, Span]] = {}

    def take(self, request: ExportTraceServiceRequest) -> None:
        """Spans of a turn may be spread over requests; its root comes last."""
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    if span.parent_span_id:
                        self._stages.setdefault(span.trace_id, {})[span.name] = span
                    else:
                        self.turns.append(_turn(span, self._stages.pop(span.trace_id, {})))


def _turn(root: Span, stages: dict[str, Span]) -> TurnTrace:
    begin = root.start_time_unix_nano
    names = {attribute.key: attribute.value.string_value for attribute in root.attributes}

    def since(nanoseconds: int) -> float:
        return (nanoseconds - begin) / 1e9

    return TurnTrace(
        names.get("voice_app.session", ""),
        names.get("voice_app.turn", ""),
        begin / 1e9,
        {
            name: StageSpan(
                since(span.start_time_unix_nano),
                since(span.events[0].time_unix_nano) if span.events else since(span.end_time_unix_nano),
                since(span.end_time_unix_nano),
                next((a.value.double_value / 1000 for a in span.attributes if a.key == "busy_ms"), 0.0),
            )
            for name, span in stages.items()
        },
    )


@contextlib.contextmanager
def collector(traces: Traces) -> Iterator[dict[str, str]]:
    """Collects, on a free port of this machine, until it is left. Gives the environment of a server that
    sends its traces here."""

    def receive(
        environ: dict[str, Any], start: Callable[[str, list[tuple[str, str]]], object]
    ) -> Iterable[bytes]:
        body = environ["wsgi.input"].read()
        try:
            traces.take(ExportTraceServiceRequest.FromString(body))
        except DecodeError:
            start("400 Bad Request", [])
        else:
            start("200 OK", [("Content-Type", "application/x-protobuf")])
        return [b""]

    server = WSGIServer(("127.0.0.1", 0), receive, log=None)
    server.start()
    try:
        yield {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            "OTEL_BSP_SCHEDULE_DELAY": str(FLUSH_MS),
        }
    finally:
        server.stop()
