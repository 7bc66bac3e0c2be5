"""One talk, without I/O: what the client and the pipeline say goes in, what is to be done comes out.

Its driver calls `start` once, then `receive`, `event`, `failed` and `tick` as things happen, and after each
carries out `take()`. `deadline()` says when `tick` is due. Time (`now`) is in seconds of a clock that only
goes forward.
"""

from collections.abc import Callable, Iterable
from typing import Any

from voice_app import messages as m
from voice_app.errors import VoiceAppError
from voice_app.server.protocol import client_events as client
from voice_app.server.protocol import config as cfg
from voice_app.server.protocol import server_events as events
from voice_app.server.protocol.errors import INVALID_REQUEST, ProtocolError
from voice_app.server.protocol.items import ItemReference
from voice_app.server.session import turns
from voice_app.server.session.actions import Action, Cancel, Close, Send
from voice_app.server.session.conversation import (
    Conversation,
    Item,
    MessageItem,
    Recording,
    Spoken,
    duplicate,
)
from voice_app.server.session.hearing import Hearing
from voice_app.server.session.item_wire import decode_base64, from_wire, to_wire
from voice_app.server.session.microphone import Microphone
from voice_app.server.session.replies import Replies, item_events
from voice_app.server.session.spec import response_spec
from voice_app.server.session.vad import WebRtcDetector
from voice_app.server.session.words import is_back_channel
from voice_app.server.settings import TalkSettings

TRUNCATE_SLACK_MS = 250
"""Real clients count up to so much more than there was; beyond, it is an error."""
PROMPT_ITEMS = 128
"""Most items of the conversation in a prompt, unless `truncation` is disabled; the models cut by tokens."""
PROMPT_KEEP = 0.8
"""Share of them that stays when the oldest leave."""


def webrtc_microphone(config: cfg.AudioInput) -> Microphone:
    """A microphone whose frames WebRTC's detector judges."""
    return Microphone(config, WebRtcDetector)


class Session:
    """`new_id(prefix)` gives unique ids. `unix_time`: the wall clock at `now`, for `expires_at`."""

    def __init__(
        self,
        session_id: str,
        settings: TalkSettings,
        new_id: Callable[[str], str],
        *,
        now: float,
        unix_time: float,
        make_microphone: Callable[[cfg.AudioInput], Microphone] = webrtc_microphone,
    ) -> None:
        self.id = session_id
        self.config = cfg.Config(model=settings.model, instructions=settings.instructions)
        self.conversation = Conversation(settings.audio_kept_s)
        self._settings = settings
        self._new_id = new_id
        self._expires_unix = int(unix_time + settings.session_s)
        self._expires_at = now + settings.session_s
        self._actions: list[Action] = []
        self._hearing = Hearing(make_microphone(self.config.audio.input), self._rules())
        self._replies = Replies(
            session_id, self.conversation, new_id("conv"), new_id, self._actions.append, settings.lead_s
        )
        self._replies.transcripts = False
        self._floor_taken = False
        self._user_item = new_id("item")
        """The id that the user's next turn will have."""
        self._reply_due: str | None = None
        """A turn of the user (its item) that is answered when the reply in progress is done."""

    # ---------------------------------------------------------------------------------- for the driver

    def start(self) -> None:
        self._send(events.session_created(self._wire()))

    def take(self) -> list[Action]:
        """What is to be done, in this order: cancelled work goes before everything else."""
        made = self._actions.copy()
        self._actions.clear()
        return sorted(made, key=lambda action: not isinstance(action, Cancel))

    @property
    def congested(self) -> bool:
        """The client does not keep up with what it is sent."""
        return self._replies.congested

    @congested.setter
    def congested(self, value: bool) -> None:
        self._replies.congested = value

    def room(self, turn: m.TurnId) -> bool:
        """Whether another event of `turn` may be taken from the pipeline."""
        return self._replies.room(turn)

    def deadline(self, now: float) -> float:
        times = (self._hearing.deadline(), self._replies.deadline(now), self._expires_at)
        return min(time for time in times if time is not None)

    def tick(self, now: float) -> None:
        """Time has passed."""
        if now >= self._expires_at:
            self._expires_at = float("inf")
            self._error(ProtocolError("session_expired", "Your session hit its maximum duration."))
            self._actions.append(Close(1001, "session expired"))
            return
        self._replies.pump(now)
        self._turn_actions(self._hearing.tick(now), now)
        self._settle(now)

    def receive(self, data: str | bytes, now: float) -> None:
        """A message of the client. What is wrong with it is answered with an `error` event."""
        event_id = None
        try:
            event = client.parse(data)
            event_id = event.event_id
            self._dispatch(event, now)
        except ProtocolError as error:
            error.event_id = error.event_id or event_id
            self._error(error)
        self._settle(now)

    def event(self, turn: m.TurnId, event: m.TurnEvent, now: float) -> None:
        """The pipeline made something."""
        if isinstance(event, m.Transcript) and self._replies.is_speculation(turn):
            answerable = self._replies.almost_over(now)
            back_channel = is_back_channel(event.text, answerable=answerable)
            self._turn_actions(self._hearing.words(back_channel=back_channel, now=now), now)
        self._replies.event(turn, event, now)
        self._settle(now)

    def failed(self, turn: m.TurnId, error: VoiceAppError, now: float) -> None:
        """The pipeline lost a turn."""
        self._replies.failed(turn, error)
        self._settle(now)

    def close(self) -> None:
        """The connection is gone."""
        self._replies.stop_all()

    # ------------------------------------------------------------------------------------ client events

    def _dispatch(self, event: client.ClientEvent, now: float) -> None:
        match event:
            case client.AudioAppend():
                data = decode_base64(event.audio, "audio")
                self._turn_actions(self._hearing.append(data, now), now)
            case client.AudioCommit():
                samples, actions = self._hearing.commit(now)
                self._turn_actions(actions, now)
                self._commit(samples)
            case client.AudioClear():
                self._turn_actions(self._hearing.clear(now), now)
                self._send(events.buffer_cleared())
            case client.OutputAudioClear():
                raise ProtocolError(
                    "invalid_value",
                    "output_audio_buffer.clear is for WebRTC only: on a WebSocket, stop playing and send "
                    "conversation.item.truncate.",
                    param="type",
                )
            case client.SessionUpdate():
                self._update(event.session, now)
            case client.ItemCreate():
                self._create_item(event)
            case client.ItemRetrieve():
                item = self._item(event.item_id, "retrieve")
                self._send(events.item_retrieved(to_wire(item, audio=self.config.audio.input.format)))
            case client.ItemDelete():
                self._item(event.item_id, "delete")
                self.conversation.delete(event.item_id)
                self._send(events.item_deleted(event.item_id))
            case client.ItemTruncate():
                self._truncate(event, now)
            case client.ResponseCreate():
                self._create_response(event.response or client.ResponseParams())
            case client.ResponseCancel():
                self._cancel(event.response_id)

    def _update(self, patch: dict[str, Any], now: float) -> None:
        updated = cfg.update(self.config, patch, voice_frozen=self._replies.spoke)
        detection = updated.audio.input.turn_detection
        if isinstance(detection, cfg.SemanticVad):
            # Shown in session.updated: no end-of-turn model is at work here.
            fallback = cfg.ServerVad(
                create_response=detection.create_response, interrupt_response=detection.interrupt_response
            )
            heard = updated.audio.input.model_copy(update={"turn_detection": fallback})
            updated = updated.model_copy(update={"audio": updated.audio.model_copy(update={"input": heard})})
        self.config = updated
        self._turn_actions(self._hearing.configure(updated.audio.input, self._rules(), now), now)
        self._replies.transcripts = updated.audio.input.transcription is not None
        self._send(events.session_updated(self._wire()))

    def _create_item(self, event: client.ItemCreate) -> None:
        item = from_wire(event.item, self._new_id, self.config.audio.input.format)
        if item.id == self._user_item:
            raise duplicate(item.id)  # Promised to the user's next turn.
        previous = self.conversation.add(item, event.previous_item_id)
        self._send(*item_events(item, previous))

    def _item(self, item_id: str, verb: str) -> Item:
        item = self.conversation.get(item_id)
        if item is None:
            raise ProtocolError(
                f"item_{verb}_invalid_item_id",
                f"Error {verb[:-1]}ing item: the item with id '{item_id}' does not exist.",
                param="item_id",
            )
        return item

    def _truncate(self, event: client.ItemTruncate, now: float) -> None:
        item = self._item(event.item_id, "truncate")
        part = item.content[0] if isinstance(item, MessageItem) and item.content else None
        if not isinstance(part, Spoken):
            raise ProtocolError(
                "unsupported_content_type",
                "Only model output audio messages can be truncated.",
                param="item_id",
            )
        if event.content_index != 0:
            raise ProtocolError(
                "invalid_value",
                f"Invalid value for 'content_index': item '{item.id}' has one content part, 0.",
                param="content_index",
            )
        length_ms = round(part.sent_s * 1000)
        if event.audio_end_ms > length_ms + TRUNCATE_SLACK_MS:
            raise ProtocolError(
                "invalid_value",
                f"Audio content of {length_ms}ms is already shorter than {event.audio_end_ms}ms",
                param="audio_end_ms",
            )
        end_ms = min(event.audio_end_ms, length_ms)
        part.cut_s = end_ms / 1000
        self._replies.truncated(item.id, now)
        self._send(events.item_truncated(item.id, 0, end_ms))

    def _create_response(self, params: client.ResponseParams) -> None:
        spec = response_spec(self.config, params)
        if spec.in_conversation and self._replies.active is not None:
            raise ProtocolError(
                "conversation_already_has_active_response",
                f"Conversation already has an active response in progress: {self._replies.active.id}. "
                "Wait until the response is finished before creating a new one.",
            )
        self._reply_due = None if spec.in_conversation else self._reply_due
        items = self._input(params)
        self._replies.reply(items, spec, items[-1].id if items else None)

    def _input(self, params: client.ResponseParams) -> list[Item]:
        """The items that a response answers: the conversation's, or those that it names."""
        if params.input is None:
            return self._recent()
        return [
            self._referred(entry.id, f"response.input[{index}].id")
            if isinstance(entry, ItemReference)
            else from_wire(entry, self._new_id, self.config.audio.input.format)
            for index, entry in enumerate(params.input)
        ]

    def _recent(self) -> list[Item]:
        truncation = self.config.truncation
        if truncation == "disabled":
            return list(self.conversation)
        keep = truncation.retention_ratio if isinstance(truncation, cfg.RetentionRatio) else PROMPT_KEEP
        return self.conversation.recent(PROMPT_ITEMS, keep)

    def _referred(self, item_id: str, param: str) -> Item:
        item = self.conversation.get(item_id)
        if item is None:
            raise ProtocolError("invalid_value", f"Item with id '{item_id}' does not exist.", param=param)
        return item

    def _cancel(self, response_id: str | None) -> None:
        response = self._replies.active if response_id is None else self._replies.by_id(response_id)
        if response is None:
            which = "no active response" if response_id is None else f"no active response '{response_id}'"
            raise ProtocolError("response_cancel_not_active", f"Cancellation failed: {which} found.")
        self._replies.cancel(response)

    # ------------------------------------------------------------------------------------------- turns

    def _turn_actions(self, actions: Iterable[turns.Action], now: float) -> None:
        for action in actions:
            self._turn_action(action, now)

    def _turn_action(self, action: turns.Action, now: float) -> None:
        match action:
            case turns.SpeechStarted(start_ms):
                self._send(events.speech_started(self._user_item, start_ms))
            case turns.Interrupt():
                self._replies.interrupt(now)
                self._reply_due = None
                self._settle(now)
            case turns.Hold():
                self._replies.hold()
            case turns.Release():
                self._replies.release(now)
            case turns.Speculate(start_ms, end_ms):
                self._speculate(start_ms, end_ms)
            case turns.DropSpeculation():
                self._replies.drop_speculation()
            case turns.SpeechStopped(start_ms, end_ms):
                self._send(events.speech_stopped(self._user_item, end_ms))
                self._answer(self._commit(self._hearing.cut(start_ms, end_ms)), now)
            case turns.IdleTimeout(start_ms, end_ms):
                self._send(events.timeout_triggered(self._user_item, start_ms, end_ms))
                self._answer(self._commit(self._hearing.cut(start_ms, end_ms)), now)

    def _speculate(self, start_ms: int, end_ms: int) -> None:
        detection = self.config.audio.input.turn_detection
        if detection is None or not detection.create_response:
            return
        heard = MessageItem(self._user_item, "user", [Recording(self._hearing.cut(start_ms, end_ms))])
        self._replies.speculate([*self._recent(), heard], response_spec(self.config), self._user_item)

    def _commit(self, samples: Any) -> str:
        """The user's turn becomes an item; gives its id."""
        item = MessageItem(self._user_item, "user", [Recording(samples)])
        self._user_item = self._new_id("item")
        previous = self.conversation.add(item)
        self._send(events.buffer_committed(item.id, previous), *item_events(item, previous))
        return item.id

    def _answer(self, item_id: str, now: float) -> None:
        detection = self.config.audio.input.turn_detection
        if detection is None or not detection.create_response:
            return
        if self._replies.active is not None:
            self._reply_due = item_id
        elif not self._replies.promote(item_id, now):
            self._replies.reply(self._recent(), response_spec(self.config), item_id)
        self._settle(now)

    def _settle(self, now: float) -> None:
        """Tell the turn machine when the floor changes hands, and answer what waited for that."""
        if self._reply_due is not None and self._replies.active is None:
            due, self._reply_due = self._reply_due, None
            if not self._replies.promote(due, now):
                self._replies.reply(self._recent(), response_spec(self.config), due)
        taken = self._replies.floor_taken
        if taken != self._floor_taken:
            self._floor_taken = taken
            change = self._hearing.reply_started if taken else self._hearing.reply_ended
            self._turn_actions(change(now), now)

    def _rules(self) -> turns.Rules:
        detection = self.config.audio.input.turn_detection
        talk = self._settings
        if not isinstance(detection, cfg.ServerVad):
            return turns.Rules()
        return turns.Rules(
            prefix_ms=detection.prefix_padding_ms,
            silence_ms=detection.silence_duration_ms,
            speculate_ms=talk.speculate_ms if detection.create_response else None,
            interrupt=detection.interrupt_response,
            interrupt_ms=talk.interrupt_ms,
            judge_words=talk.transcribes and talk.speculate_ms is not None and detection.create_response,
            idle_ms=detection.idle_timeout_ms,
        )

    # ----------------------------------------------------------------------------------------- sending

    def _send(self, *made: events.Event) -> None:
        self._actions.extend(Send(event) for event in made)

    def _error(self, error: ProtocolError) -> None:
        self._send(events.error(INVALID_REQUEST, error.code, error.message, error.param, error.event_id))

    def _wire(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "realtime.session",
            **self.config.to_wire(),
            "expires_at": self._expires_unix,
        }
