"""One turn in the pipeline, and what the client is told of it.

Until it has begun (a speculation) its events wait; then they go out at once, its audio at the pace of the
listener's ear.
"""

from typing import Any

from voice_app import messages as m
from voice_app.errors import InputError, VoiceAppError
from voice_app.server.protocol import server_events as events
from voice_app.server.protocol.errors import INVALID_REQUEST, SERVER_ERROR
from voice_app.server.session.actions import Count, DropAudio, Measure, Observe, Send, SendBinary, Tally
from voice_app.server.session.context import Context
from voice_app.server.session.conversation import MessageItem, Recording
from voice_app.server.session.response import Response, ResponseSpec
from voice_app.server.session.voice import Voice

HELD_EVENTS = 64
"""Most events of a speculation that wait here; more stay in the pipeline."""
QUEUED_S = 4.0
"""Most seconds of audio that wait here for the listener's ear; more stay in the pipeline."""


class Job:
    """`unsaid`: what it says if the user's sound holds no words: the rest of the reply that the sound cut
    off."""

    def __init__(self, turn: m.TurnId, spec: ResponseSpec, context: Context, unsaid: str = "") -> None:
        self.turn = turn
        self.spec = spec
        self.response: Response | None = None
        self.voice: Voice | None = None
        self.made = False
        """The pipeline has made all of it."""
        self.wordless = False
        """The user's sound that it answers turned out to hold no words."""
        self.heard_item: str | None = None
        """The user's item whose words it tells."""
        self._context = context
        self._unsaid = unsaid
        self._text_done = False
        self._held: list[m.TurnEvent] = []
        self._finish_reason = "stop"
        self._asked_at = 0.0
        self._spoke_until = 0.0
        self._told: set[Measure] = set()

    @property
    def room(self) -> bool:
        """Whether another event may be taken from the pipeline."""
        return len(self._held) < HELD_EVENTS and (self.voice is None or self.voice.queued_s < QUEUED_S)

    @property
    def all_sent(self) -> bool:
        """The response can end."""
        return self.made and (self.voice is None or self.voice.drained)

    def sounds(self, now: float) -> bool:
        """There is something of it that the listener has not heard yet."""
        return self.voice is not None and (self.voice.held or self.voice.clock.ahead_s(now) > 1e-6)

    @property
    def unheard(self) -> str:
        """Of one that was interrupted: what can be said of it later. An answer of which nothing was heard is
        made anew where its end is not known."""
        spoken = self.response.spoken if self.response else None
        if spoken is not None and (spoken.heard or self._text_done):
            return spoken.unheard
        return self._unsaid if self.wordless else ""

    @property
    def unanswered(self) -> bool:
        """Of one that was interrupted: it was to answer something, of which the user has heard nothing, and
        its end is not known."""
        response = self.response
        if response is None or self._text_done or self.wordless:
            return False
        if not response.items:
            return True
        spoken = response.spoken
        return len(response.items) == 1 and spoken is not None and not spoken.heard

    # -------------------------------------------------------------------------------------- what goes out

    def begin(self, heard_item: str | None, now: float, spoke_until: float | None) -> None:
        """It is the answer to `heard_item`: the client is told. `spoke_until`: when the user's speech ended,
        None where the client asked."""
        self._asked_at, self.heard_item = now, heard_item
        self._spoke_until = now if spoke_until is None else spoke_until
        context = self._context
        self.response = Response(self.spec, context.conversation_id, context.new_id, context.conversation.add)
        if self.spec.spoken:
            self.voice = Voice(self.spec.audio_format, context.settings.lead_s)
        self._note("created", now)
        context.send(self.response.created())
        held, self._held = self._held, []
        for event in held:
            self._apply(event, self.response, now)

    def take(self, event: m.TurnEvent, now: float) -> None:
        """The pipeline made something."""
        if self.response is None:
            self._held.append(event)
        else:
            self._apply(event, self.response, now)

    def _apply(self, event: m.TurnEvent, response: Response, now: float) -> None:
        match event:
            case m.Transcript(text):
                heard(self._context, self.heard_item, text)
                self.wordless = not text
            case m.TextDelta(text, token_ids):
                response.output_tokens += len(token_ids)
                if text:
                    self._measure(Measure.FIRST_TEXT, now)
                    self._context.send(response.text(text))
            case m.ToolCall(name, arguments):
                self._context.send(response.tool_call(name, arguments))
            case m.AudioChunk():
                self._take_audio(event, response)
            case m.TextDone(finish_reason, usage):
                self._finish_reason, response.usage, self._text_done = finish_reason, usage, True
            case m.AudioDone():
                if self.voice is not None:
                    self.voice.finish()
            case m.TurnDone():
                self.made = True
                if self.voice is not None:
                    self.voice.finish()

    def _take_audio(self, chunk: m.AudioChunk, response: Response) -> None:
        if self.voice is None:
            return
        self.voice.feed(chunk)
        marks = [(mark.chars, mark.sample / chunk.sample_rate) for mark in chunk.marks]
        self._context.send(response.spoken_until(marks))

    def pump(self, now: float) -> None:
        """Send the audio that the listener's ear is ready for."""
        if self.response is None or self.voice is None or self._context.congested:
            return
        pieces = self.voice.take(now)
        if pieces:
            self._measure(Measure.FIRST_AUDIO, now)
            if self.voice.gap_s > 0:
                self._context.act(Observe(Measure.GAP, self.voice.gap_s))
        for piece in pieces:
            self._send_piece(self.response, piece)
        if self.response.spoken is not None:
            self.response.spoken.sent_s = self.voice.clock.sent_s

    def _send_piece(self, response: Response, piece: bytes) -> None:
        self._context.send(response.open_answer())
        if self.spec.binary:
            self._context.act(SendBinary(response.binary_audio(piece), response.id))
        else:
            self._context.act(Send(response.audio(piece), response.id))

    def _measure(self, measure: Measure, now: float) -> None:
        if measure not in self._told:
            self._told.add(measure)
            self._context.act(Observe(measure, now - self._asked_at))
            self._note(measure, now)

    def _note(self, moment: str, now: float) -> None:
        if self.response is not None:
            self.response.timing[f"{moment}_ms"] = round((now - self._spoke_until) * 1000)

    # ----------------------------------------------------------------------------------------- how it ends

    def complete(self, now: float) -> None:
        """All of it was made and sent."""
        self._note("done", now)
        if self._finish_reason == "length":
            self._finish("incomplete", {"reason": "max_output_tokens"})
        else:
            self._finish("completed")

    def fail(self, error: VoiceAppError) -> None:
        """The pipeline lost or refused it. What was sent is heard to its end."""
        self._stop_sending()
        kind = INVALID_REQUEST if isinstance(error, InputError) else SERVER_ERROR
        self._finish("failed", {"error": {"type": kind, "code": error.code, "message": error.message}})

    def cancel(self) -> None:
        """The client wants no more of it. What was sent may still be heard: how much is the client's to say
        (`conversation.item.truncate`)."""
        self._stop_sending()
        self._finish("cancelled", {"reason": "client_cancelled"})

    def interrupt(self, now: float) -> None:
        """The user took the floor: the item keeps what was heard."""
        heard_s = self.voice.stop(now) if self.voice else 0.0
        response = self.response
        if response is None:
            return
        self._context.act(DropAudio(response.id))
        if response.spoken is not None:
            response.spoken.cut_s = heard_s
        if response.status == "in_progress":
            self._note("done", now)
            self._finish("cancelled", {"reason": "turn_detected"})
        message = response.message
        if response.spoken is not None and message is not None and message.id in self._context.conversation:
            self._context.conversation.touch(message.id)
            self._context.send([events.item_truncated(message.id, 0, round(heard_s * 1000))])

    def _stop_sending(self) -> None:
        if self.response is None:
            return
        self._context.act(DropAudio(self.response.id))
        if self.voice is not None and self.response.spoken is not None:
            self.voice.drop()
            self.response.spoken.cut_s = self.voice.clock.sent_s

    def _finish(self, status: str, details: dict[str, Any] | None = None) -> None:
        if self.response is None:
            return
        if self._resumed(self.response):
            self._context.act(Count(Tally.OVERLAP, "resumed"))
        self._context.send(self.response.finish(status, details))
        for item in self.response.items:
            self._context.conversation.touch(item.id)
        self._context.act(Count(Tally.RESPONSE, status))

    def _resumed(self, response: Response) -> bool:
        """It says the rest of an earlier reply. What was speech though no word of it can be believed is told
        as no words too, but asked for again."""
        said = response.spoken.text.strip() if response.spoken else ""
        return self.wordless and said != "" and self._unsaid.startswith(said)


def heard(context: Context, item_id: str | None, text: str) -> None:
    """The user's item `item_id` turned out to say `text`."""
    item = context.conversation.get(item_id) if item_id else None
    if not isinstance(item, MessageItem):
        return
    for part in item.content:
        if isinstance(part, Recording) and part.transcript is None:
            part.transcript = text
            context.conversation.touch(item.id)
            if context.transcripts:
                context.send(_transcription(item.id, part, text))


def _transcription(item_id: str, part: Recording, text: str) -> list[events.Event]:
    seconds = 0.0 if part.samples is None else len(part.samples) / 16_000
    told = [events.transcription_completed(item_id, text, seconds)]
    return [events.transcription_delta(item_id, text), *told] if text else told
