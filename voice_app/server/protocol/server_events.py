"""What the server may send: one function an event. `event_id` is added when it is sent.

No value is null: a key without a value is left out (client libraries refuse nulls in items and parts).
"""

from typing import Any

Event = dict[str, Any]


def _event(kind: str, **fields: Any) -> Event:
    return {"type": kind, **{key: value for key, value in fields.items() if value is not None}}


def error(kind: str, code: str, message: str, param: str | None = None, event_id: str | None = None) -> Event:
    """`event_id`: of the client's event that was at fault."""
    detail = {"type": kind, "code": code, "message": message, "param": param, "event_id": event_id}
    return {"type": "error", "error": {key: value for key, value in detail.items() if value is not None}}


def session_created(session: Event) -> Event:
    return _event("session.created", session=session)


def session_updated(session: Event) -> Event:
    return _event("session.updated", session=session)


def buffer_committed(item_id: str, previous_item_id: str | None) -> Event:
    return _event("input_audio_buffer.committed", item_id=item_id, previous_item_id=previous_item_id)


def buffer_cleared() -> Event:
    return _event("input_audio_buffer.cleared")


def speech_started(item_id: str, audio_start_ms: int) -> Event:
    return _event("input_audio_buffer.speech_started", item_id=item_id, audio_start_ms=audio_start_ms)


def speech_stopped(item_id: str, audio_end_ms: int) -> Event:
    return _event("input_audio_buffer.speech_stopped", item_id=item_id, audio_end_ms=audio_end_ms)


def timeout_triggered(item_id: str, audio_start_ms: int, audio_end_ms: int) -> Event:
    return _event(
        "input_audio_buffer.timeout_triggered",
        item_id=item_id,
        audio_start_ms=audio_start_ms,
        audio_end_ms=audio_end_ms,
    )


def item_added(item: Event, previous_item_id: str | None) -> Event:
    return _event("conversation.item.added", item=item, previous_item_id=previous_item_id)


def item_done(item: Event, previous_item_id: str | None) -> Event:
    return _event("conversation.item.done", item=item, previous_item_id=previous_item_id)


def item_retrieved(item: Event) -> Event:
    return _event("conversation.item.retrieved", item=item)


def item_deleted(item_id: str) -> Event:
    return _event("conversation.item.deleted", item_id=item_id)


def item_truncated(item_id: str, content_index: int, audio_end_ms: int) -> Event:
    return _event(
        "conversation.item.truncated",
        item_id=item_id,
        content_index=content_index,
        audio_end_ms=audio_end_ms,
    )


def transcription_delta(item_id: str, delta: str) -> Event:
    return _event(
        "conversation.item.input_audio_transcription.delta", item_id=item_id, content_index=0, delta=delta
    )


def transcription_completed(item_id: str, transcript: str, seconds: float) -> Event:
    return _event(
        "conversation.item.input_audio_transcription.completed",
        item_id=item_id,
        content_index=0,
        transcript=transcript,
        usage={"type": "duration", "seconds": seconds},
    )


def transcription_failed(item_id: str, code: str, message: str) -> Event:
    return _event(
        "conversation.item.input_audio_transcription.failed",
        item_id=item_id,
        content_index=0,
        error={"type": "server_error", "code": code, "message": message},
    )


def response_created(response: Event) -> Event:
    return _event("response.created", response=response)


def rate_limits(limit: int, remaining: int, reset_seconds: float) -> Event:
    """Of responses ("requests") a minute."""
    entry = {"name": "requests", "limit": limit, "remaining": remaining, "reset_seconds": reset_seconds}
    return _event("rate_limits.updated", rate_limits=[entry])


def response_done(response: Event) -> Event:
    return _event("response.done", response=response)


def output_item_added(response_id: str, output_index: int, item: Event) -> Event:
    return _event("response.output_item.added", response_id=response_id, output_index=output_index, item=item)


def output_item_done(response_id: str, output_index: int, item: Event) -> Event:
    return _event("response.output_item.done", response_id=response_id, output_index=output_index, item=item)


def in_part(kind: str, response_id: str, item_id: str, output_index: int, **fields: Any) -> Event:
    """An event about the one content part of an output item (`response.content_part.*`,
    `response.output_text.*`, `response.output_audio.*`, `response.output_audio_transcript.*`)."""
    return _event(
        f"response.{kind}",
        response_id=response_id,
        item_id=item_id,
        output_index=output_index,
        content_index=0,
        **fields,
    )


def arguments_delta(response_id: str, item_id: str, output_index: int, call_id: str, delta: str) -> Event:
    return _event(
        "response.function_call_arguments.delta",
        response_id=response_id,
        item_id=item_id,
        output_index=output_index,
        call_id=call_id,
        delta=delta,
    )


def arguments_done(
    response_id: str, item_id: str, output_index: int, call_id: str, name: str, arguments: str
) -> Event:
    return _event(
        "response.function_call_arguments.done",
        response_id=response_id,
        item_id=item_id,
        output_index=output_index,
        call_id=call_id,
        name=name,
        arguments=arguments,
    )
