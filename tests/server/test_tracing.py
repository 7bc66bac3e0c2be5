"""A turn as a trace."""

from fake_pipeline import FakePipeline, written
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from running_server import server
from wire_client import wire_client

from voice_app import messages as m
from voice_app.server.hub import make_hub
from voice_app.server.settings import ServerSettings
from voice_app.server.tracing import TurnTracer

STAGES = {
    "preprocessing": m.StageTiming(1.0, 2.0, 3.0, 1.5),
    "thinker": m.StageTiming(3.5, 10.0, 40.0, 30.0),
}


async def test_a_turn_is_a_trace_with_a_span_for_each_stage():
    spans = InMemorySpanExporter()
    tracer = TurnTracer(SimpleSpanProcessor(spans))
    pipeline = FakePipeline(lambda request: [*written("Yes.")[:-1], m.TurnDone(STAGES)])
    hub = make_hub(pipeline, ServerSettings())
    hub.tracer = tracer
    async with server(pipeline, hub=hub) as port, wire_client(port) as client:
        await client.update(output_modalities=["text"])
        await client.say("Is it?")
        await client.send("response.create")
        await client.until("response.done")
        session = client.events[0]["session"]["id"]
    found = {span.name: span for span in spans.get_finished_spans()}
    assert set(found) == {"turn", "preprocessing", "thinker"}
    turn, thinker = found["turn"], found["thinker"]
    assert thinker.parent
    assert turn.context
    assert thinker.parent.span_id == turn.context.span_id
    assert turn.start_time
    assert thinker.start_time
    assert thinker.end_time
    assert (thinker.start_time - turn.start_time, thinker.end_time - turn.start_time) == (
        3_500_000,
        40_000_000,
    )
    assert turn.attributes
    assert turn.attributes["voice_app.session"] == session
    assert thinker.attributes == {"busy_ms": 30.0}
    tracer.close()
