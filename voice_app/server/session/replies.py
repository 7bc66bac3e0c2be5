"""Turns under way in the pipeline, and what of them the client is told and when.

A job is one turn: a speculation, whose events wait until the user's turn is really over, or a reply, whose
events go out at once (its audio at the pace of the listener's ear).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from voice_app import messages as m
from voice_app.errors import VoiceAppError
from voice_app.server.protocol import server_events as events
from voice_app.server.protocol.errors import SERVER_ERROR
from voice_app.server.protocol.server_events import Event
from voice_app.server.session import prompt
from voice_app.server.session.actions import Action, Cancel, DropAudio, Send, Submit
from voice_app.server.session.conversation import Conversation, Item, MessageItem, Recording
from voice_app.server.session.item_wire import to_wire
from voice_app.server.session.response import Response, ResponseSpec
from voice_app.server.session.voice import Voice

HELD_EVENTS = 64
"""Most events of a speculation that wait here; more stay in the pipeline."""
QUEUED_S = 4.0
"""Most seconds of audio that wait here for the listener's ear; more stay in the pipeline."""


@dataclass(slots=True)
class Job:
    """One turn in the pipeline. `heard_item`: the user's item whose words it tells."""

    turn: m.TurnId
    spec: ResponseSpec
    heard_item: str | None = None
    response: Response | None = None
    voice: Voice | None = None
    held: list[m.TurnEvent] = field(default_factory=list)
    finish_reason: str = "stop"
    made: bool = False
    """The pipeline has made all of it."""


class Replies:
    """`lead_s`: how far ahead of the ear audio is sent. Time is passed in."""

    def __init__(
        self,
        session_id: str,
        conversation: Conversation,
        conversation_id: str,
        new_id: Callable[[str], str],
        act: Callable[[Action], None],
        lead_s: float,
    ) -> None:
        self._session_id = session_id
        self._conversation = conversation
        self._conversation_id = conversation_id
        self._new_id = new_id
        self._act = act
        self._lead_s = lead_s
        self._jobs: dict[m.TurnId, Job] = {}
        self._speculation: Job | None = None
        self._speculated: m.TurnId | None = None
        self._playing: Job | None = None
        self.transcripts = True
        """The client wants to be told what the user was heard to say."""
        self.spoke = False
        """The client has been sent the assistant's voice."""
        self.congested = False
        """The client does not keep up: no more audio is made for it until it does."""

    # ---------------------------------------------------------------------------------------- what is

    @property
    def active(self) -> Response | None:
        """The response in progress that belongs to the conversation."""
        for job in self._jobs.values():
            if job.response is not None and job.response.spec.in_conversation:
                return job.response
        return None

    @property
    def floor_taken(self) -> bool:
        """A reply is being made or heard."""
        return self.active is not None or self._playing is not None

    def almost_over(self, now: float, within_s: float = 2.0) -> bool:
        """The reply's words are all there and the listener has nearly heard them."""
        job = self._playing
        return job is None or (job.made and job.voice is not None and self._left_s(job.voice, now) < within_s)

    @staticmethod
    def _left_s(voice: Voice, now: float) -> float:
        return voice.queued_s + voice.clock.ahead_s(now)

    def is_speculation(self, turn: m.TurnId) -> bool:
        """Whether the client knows nothing of `turn` yet."""
        return self._speculation is not None and self._speculation.turn == turn

    def room(self, turn: m.TurnId) -> bool:
        """Whether another event of `turn` may be taken from the pipeline."""
        job = self._jobs.get(turn)
        if job is None:
            return True
        return len(job.held) < HELD_EVENTS and (job.voice is None or job.voice.queued_s < QUEUED_S)

    def deadline(self, now: float) -> float | None:
        """When `tick` should be called."""
        times = [
            at
            for job in self._jobs.values()
            if job.voice is not None and not self.congested and (at := job.voice.next_at(now)) is not None
        ]
        playing = self._playing
        if (
            playing is not None
            and playing.turn not in self._jobs
            and playing.voice
            and not playing.voice.held
        ):
            times.append(playing.voice.clock.ends_at())
        return min(times, default=None)

    # ----------------------------------------------------------------------------------- what is begun

    def speculate(self, items: Iterable[Item], spec: ResponseSpec, turn: str) -> None:
        """Start the work on the turn named `turn`, which may not be over; each time that this is done again
        raises its generation."""
        self.drop_speculation()
        again = self._speculated is not None and self._speculated.turn == turn
        generation = self._speculated.generation + 1 if again and self._speculated else 0
        self._speculated = m.TurnId(self._session_id, turn, generation)
        self._speculation = self._submit(items, spec, self._speculated)

    def drop_speculation(self) -> bool:
        """Forget it; whether there was one."""
        job, self._speculation = self._speculation, None
        if job is not None:
            self._stop(job)
        return job is not None

    def promote(self, heard_item: str, now: float) -> bool:
        """The speculation on the turn named `heard_item` becomes the reply to it; False if there is none."""
        job = self._speculation
        if job is None or job.turn.turn != heard_item:
            return False
        self._speculation = None
        job.heard_item = heard_item
        self._begin(job)
        held, job.held = job.held, []
        for event in held:
            self._apply(job, event, now)
        self.pump(now)
        return True

    def reply(self, items: Iterable[Item], spec: ResponseSpec, heard_item: str | None) -> Response:
        """Answer `items`; `heard_item`: the last of them, whose words the pipeline may tell."""
        job = self._submit(items, spec, m.TurnId(self._session_id, self._new_id("turn")))
        job.heard_item = heard_item
        return self._begin(job)

    def _submit(self, items: Iterable[Item], spec: ResponseSpec, turn: m.TurnId) -> Job:
        job = Job(turn, spec)
        self._jobs[job.turn] = job
        self._act(Submit(prompt.request(job.turn, items, spec)))
        return job

    def _begin(self, job: Job) -> Response:
        add = self._conversation.add
        job.response = Response(job.spec, self._conversation_id, self._new_id, add)
        if job.spec.spoken:
            job.voice = Voice(job.spec.audio_format, self._lead_s)
        if job.spec.in_conversation:
            # An earlier reply that still plays is now history.
            self._playing = job if job.spec.spoken else None
        self._send(job.response.created())
        return job.response

    # ------------------------------------------------------------------------- what the pipeline says

    def event(self, turn: m.TurnId, event: m.TurnEvent, now: float) -> None:
        """The pipeline made something; of a turn that is gone it is dropped."""
        job = self._jobs.get(turn)
        if job is None:
            return
        if job.response is None:
            job.held.append(event)
        else:
            self._apply(job, event, now)

    def failed(self, turn: m.TurnId, error: VoiceAppError) -> None:
        """The pipeline lost the turn."""
        job = self._jobs.pop(turn, None)
        if job is None:
            return
        if job is self._speculation:
            self._speculation = None
            return
        if job.response is None:
            return
        if job.voice is not None and job.response.spoken is not None:
            job.voice.drop()
            job.response.spoken.cut_s = job.voice.clock.sent_s
        reason = {"type": SERVER_ERROR, "code": error.code, "message": error.message}
        self._finish(job, "failed", {"error": reason})

    def _apply(self, job: Job, event: m.TurnEvent, now: float) -> None:
        response = job.response
        if response is None:
            return
        match event:
            case m.Transcript(text):
                self._heard(job, text)
            case m.TextDelta(text, token_ids):
                response.output_tokens += len(token_ids)
                if text:
                    self._send(response.text(text))
            case m.ToolCall(name, arguments):
                self._send(response.tool_call(name, arguments))
            case m.AudioChunk():
                self._audio(job, event, now)
            case m.TextDone(finish_reason, usage):
                job.finish_reason, response.usage = finish_reason, usage
            case m.AudioDone():
                if job.voice is not None:
                    job.voice.finish()
            case m.TurnDone():
                job.made = True
                if job.voice is not None:
                    job.voice.finish()
        self.pump(now)

    def _heard(self, job: Job, text: str) -> None:
        item = self._conversation.get(job.heard_item) if job.heard_item else None
        if not isinstance(item, MessageItem):
            return
        for part in item.content:
            if isinstance(part, Recording) and part.transcript is None:
                part.transcript = text
                seconds = 0.0 if part.samples is None else len(part.samples) / 16_000
                if self.transcripts:
                    if text:
                        self._send([events.transcription_delta(item.id, text)])
                    self._send([events.transcription_completed(item.id, text, seconds)])

    def _audio(self, job: Job, chunk: m.AudioChunk, now: float) -> None:
        if job.voice is None or job.response is None:
            return
        job.voice.feed(chunk)
        self._send(job.response.open_answer())
        spoken = job.response.spoken
        if spoken is not None:
            spoken.marks.extend((mark.chars, mark.sample / chunk.sample_rate) for mark in chunk.marks)

    # ------------------------------------------------------------------------------- what goes out when

    def pump(self, now: float) -> None:
        """Send the audio that the listener's ear is ready for; end the responses that are all sent, and the
        reply that has been heard to its end."""
        for job in list(self._jobs.values()):
            if job.response is None:
                continue
            if job.voice is not None and not self.congested:
                self._send_audio(job.response, job.voice, now)
            if job.made:
                self._end(job)
        playing = self._playing
        if playing is not None and playing.turn not in self._jobs and not self._sounds(playing, now):
            self._playing = None

    @staticmethod
    def _sounds(job: Job, now: float) -> bool:
        return job.voice is not None and (job.voice.held or job.voice.clock.ahead_s(now) > 1e-6)

    def _send_audio(self, response: Response, voice: Voice, now: float) -> None:
        for piece in voice.take(now):
            self.spoke = True
            for event in response.audio(piece):
                audio = event["type"] == "response.output_audio.delta"
                self._act(Send(event, response.id if audio else None))
        if response.spoken is not None:
            response.spoken.sent_s = voice.clock.sent_s

    def _end(self, job: Job) -> None:
        if job.voice is not None and not job.voice.drained:
            return
        if job.finish_reason == "length":
            self._finish(job, "incomplete", {"reason": "max_output_tokens"})
        else:
            self._finish(job, "completed", None)

    def _finish(self, job: Job, status: str, details: dict[str, Any] | None) -> None:
        self._jobs.pop(job.turn, None)
        if job.response is not None:
            self._send(job.response.finish(status, details))

    # --------------------------------------------------------------------------- what is stopped or held

    def hold(self) -> None:
        """Send no more audio for now."""
        if self._playing is not None and self._playing.voice is not None:
            self._playing.voice.held = True

    def release(self, now: float) -> None:
        """Go on where it was held."""
        if self._playing is not None and self._playing.voice is not None:
            self._playing.voice.held = False
        self.pump(now)

    def interrupt(self, now: float) -> bool:
        """The user took the floor: the reply's work and audio end here, and its item keeps what was heard.
        Whether anything was being made or heard."""
        job = self._playing or self._find(self.active)
        if job is None:
            return False
        self._stop(job)
        heard_s = job.voice.stop(now) if job.voice else 0.0
        response = job.response
        if response is None:
            return True
        self._act(DropAudio(response.id))
        if response.spoken is not None:
            response.spoken.cut_s = heard_s
        if response.status == "in_progress":
            self._send(response.finish("cancelled", {"reason": "turn_detected"}))
        message = response.message
        if response.spoken is not None and message is not None and message.id in self._conversation:
            self._send([events.item_truncated(message.id, 0, round(heard_s * 1000))])
        return True

    def cancel(self, response: Response) -> None:
        """The client wants no more of it. What was sent may still be heard: how much is the client's to say
        (`conversation.item.truncate`)."""
        job = self._find(response)
        if job is None:
            return
        self._stop(job)
        self._act(DropAudio(response.id))
        if job.voice is not None and response.spoken is not None:
            job.voice.drop()
            response.spoken.cut_s = job.voice.clock.sent_s
        self._send(response.finish("cancelled", {"reason": "client_cancelled"}))

    def truncated(self, item_id: str, now: float) -> None:
        """The client plays no more of this item."""
        job = self._playing
        if job is None or job.turn in self._jobs or job.response is None or job.response.message is None:
            return
        if job.response.message.id == item_id and job.voice is not None:
            job.voice.stop(now)
            self._playing = None

    def _find(self, response: Response | None) -> Job | None:
        if response is None:
            return None
        return next((job for job in self._jobs.values() if job.response is response), None)

    def by_id(self, response_id: str) -> Response | None:
        """The response in progress of that id."""
        return next(
            (j.response for j in self._jobs.values() if j.response and j.response.id == response_id), None
        )

    def _stop(self, job: Job) -> None:
        if job is self._playing:
            self._playing = None
        running = self._jobs.pop(job.turn, None)
        if running is not None and not job.made:
            self._act(Cancel(job.turn))

    def stop_all(self) -> None:
        """The connection is gone: no work goes on for nobody."""
        for job in list(self._jobs.values()):
            self._stop(job)
        self._speculation = self._playing = None

    def _send(self, made: Iterable[Event]) -> None:
        for event in made:
            self._act(Send(event))


def item_events(item: Item, previous_item_id: str | None) -> list[Event]:
    """An item that is complete as it is added."""
    shown = to_wire(item)
    return [events.item_added(shown, previous_item_id), events.item_done(shown, previous_item_id)]
