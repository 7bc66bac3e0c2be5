"""One talk, without I/O: what the client and the pipeline say goes in, what is to be done comes out.

Its driver calls `start` once, then `receive`, `event`, `failed` and `tick` as things happen, and after each
carries out `take()`. `deadline()` says when `tick` is due. Time (`now`) is in seconds of a clock that only
goes forward.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from voice_app import messages as m
from voice_app.errors import VoiceAppError
from voice_app.server import sound
from voice_app.server.limits import Bucket
from voice_app.server.occupancy import Occupancy
from voice_app.server.protocol import client_events as client
from voice_app.server.protocol import config as cfg
from voice_app.server.protocol import server_events as events
from voice_app.server.protocol.errors import INVALID_REQUEST, ProtocolError
from voice_app.server.protocol.items import ItemReference
from voice_app.server.session import camera
from voice_app.server.session.actions import Action, Cancel, Close, Count, Tally
from voice_app.server.session.context import Context
from voice_app.server.session.conversation import Conversation, Item, MessageItem, Spoken, duplicate
from voice_app.server.session.effective import check_voice, default_config, effective, shown_extensions
from voice_app.server.session.floor import Floor
from voice_app.server.session.item_wire import decode_base64, from_wire, item_events, to_wire
from voice_app.server.session.microphone import Microphone
from voice_app.server.session.spec import response_spec
from voice_app.server.session.vad import WebRtcDetector
from voice_app.server.settings import TalkSettings
from voice_app.server.store.records import Changes, StoredTalk, encode_item


def webrtc_microphone(config: cfg.AudioInput) -> Microphone:
    """A microphone whose frames WebRTC's detector judges."""
    return Microphone(config, WebRtcDetector)


class Session:
    """`new_id(prefix)` gives unique ids. `unix_time`: the wall clock at `now`, for `expires_at`. `stored`:
    the talk that is taken up again. `occupancy`: what all talks of the server share; None: this is the
    only one."""

    def __init__(
        self,
        session_id: str,
        settings: TalkSettings,
        new_id: Callable[[str], str],
        *,
        now: float,
        unix_time: float,
        config: cfg.Config | None = None,
        stored: StoredTalk | None = None,
        occupancy: Occupancy | None = None,
        make_microphone: Callable[[cfg.AudioInput], Microphone] = webrtc_microphone,
    ) -> None:
        self.id = session_id
        self.config = effective(config or default_config(settings), settings)
        self.conversation = Conversation(settings.audio_kept_s)
        self.resumption: dict[str, Any] | None = None
        """What a client needs to take the talk up again later; shown where it asked for that."""
        self.heard_ms = 0
        self.occupancy = Occupancy() if occupancy is None else occupancy
        """What is in the pipeline: the driver keeps it."""
        self._settings = settings
        self._new_id = new_id
        self._expires_unix = int(unix_time + settings.session_s)
        self._expires_at = now + settings.session_s
        self._closing = False
        self._config_changed = True
        self._image_bytes = Bucket(settings.image_bytes_per_minute / 60, settings.image_bytes_per_minute)
        self._pictures = Bucket(camera.PICTURES_PER_S, camera.PICTURES_BURST)
        if stored is not None:
            self._restore(stored)
        self._context = Context(
            session_id, new_id("conv"), settings, new_id, self.conversation, self.occupancy
        )
        self._context.transcripts = self.config.audio.input.transcription is not None
        if settings.responses_per_minute is not None:
            per_minute = settings.responses_per_minute
            self._context.allowance = Bucket(per_minute / 60, per_minute)
        self._floor = Floor(self._context, self.config, make_microphone(self.config.audio.input))
        self._bytes_per_ms = sound.bytes_per_ms(self.config.audio.input.format)

    def _restore(self, stored: StoredTalk) -> None:
        if stored.config:
            self.config = effective(cfg.Config.model_validate(stored.config), self._settings)
        for item in stored.items:
            self.conversation.add(item)
        self.conversation.changed.clear()
        self._config_changed = False

    # ---------------------------------------------------------------------------------- for the driver

    def start(self) -> None:
        self._send(events.session_created(self._wire()))

    def replay_items(self) -> None:
        """Tell a client that comes back what was said, where it cannot be told what it missed."""
        previous = None
        for item in self.conversation:
            self._send(*item_events(item, previous))
            previous = item.id

    def take(self) -> list[Action]:
        """What is to be done, in this order: cancelled work goes before everything else."""
        if not self._context.actions:
            return []
        made = self._context.actions.copy()
        self._context.actions.clear()
        return sorted(made, key=lambda action: not isinstance(action, Cancel))

    def changes(self, *, media: bool) -> Changes | None:
        """What of the talk is to be stored, since the last time; `media`: with sound and pictures."""
        changed = self.conversation.changed
        if not (changed or self._config_changed):
            return None
        found = {item_id: self.conversation.get(item_id) for item_id in changed}
        made = Changes(
            {item_id: encode_item(item, media=media) if item else None for item_id, item in found.items()},
            [item.id for item in self.conversation] if changed else None,
            msgspec.json.encode(self.config.model_dump()) if self._config_changed else None,
        )
        changed.clear()
        self._config_changed = False
        return made

    def everything(self, *, media: bool) -> Changes:
        """All of the talk that is to be stored."""
        return Changes(
            {item.id: encode_item(item, media=media) for item in self.conversation},
            [item.id for item in self.conversation],
            msgspec.json.encode(self.config.model_dump()),
        )

    @property
    def congested(self) -> bool:
        """The client does not keep up with what it is sent."""
        return self._context.congested

    @congested.setter
    def congested(self, value: bool) -> None:
        self._context.congested = value

    @property
    def in_pipeline(self) -> set[m.TurnId]:
        """The turns of this talk that are being worked on."""
        return self._floor.in_pipeline

    def room(self, turn: m.TurnId) -> bool:
        """Whether another event of `turn` may be taken from the pipeline."""
        return self._floor.replies.room(turn)

    def deadline(self, now: float) -> float:
        return min(self._expires_at, self._floor.deadline(now) or self._expires_at)

    def tick(self, now: float) -> None:
        """Time has passed."""
        if now >= self._expires_at:
            self._expires_at = float("inf")
            self.end(ProtocolError("session_expired", "Your session hit its maximum duration."), 1001)
            return
        self._floor.tick(now)
        self._settle(now)

    def receive(self, data: str | bytes, now: float) -> None:
        """A message of the client. What is wrong with it is answered with an `error` event."""
        event_id = None
        try:
            if isinstance(data, bytes) and self.config.extensions.binary_audio:
                self._hear(data, now)
            else:
                event = client.parse(data)
                event_id = event.event_id
                self._dispatch(event, now)
        except ProtocolError as error:
            error.event_id = error.event_id or event_id
            self.error(error)
        self._settle(now)

    def event(self, turn: m.TurnId, event: m.TurnEvent, now: float) -> None:
        """The pipeline made something."""
        self._floor.event(turn, event, now)
        self._settle(now)

    def judged(self, pause: int, probability: float, now: float) -> None:
        """The answer to `AskTurnEnd`."""
        self._floor.judged(pause, probability, now)
        self._settle(now)

    def failed(self, turn: m.TurnId, error: VoiceAppError, now: float) -> None:
        """The pipeline lost a turn."""
        self._floor.failed(turn, error)
        self._settle(now)

    def finish_up(self, now: float) -> None:
        """Let the turn in progress end, then close: the server restarts."""
        self._closing = True
        self._settle(now)

    def end(self, error: ProtocolError, code: int) -> None:
        """Tell the client why, and close."""
        self.error(error)
        self._context.act(Close(code, error.message))

    def close(self, now: float) -> None:
        """The connection is gone."""
        self._floor.stop(now)

    def error(self, error: ProtocolError) -> None:
        """Tell the client what it did wrong, or what was refused."""
        self._context.act(Count(Tally.ERROR, error.code))
        self._send(events.error(INVALID_REQUEST, error.code, error.message, error.param, error.event_id))

    def _settle(self, now: float) -> None:
        self._floor.settle(now)
        if self._closing and self._floor.quiet:
            self._closing = False
            self._context.act(Close(1012, "the server restarts"))

    # ------------------------------------------------------------------------------------ client events

    def _dispatch(self, event: client.ClientEvent | client.Sound, now: float) -> None:
        match event:
            case client.Sound():
                self._hear(event.audio, now)
            case client.AudioAppend():
                self._hear(decode_base64(event.audio, "audio"), now)
            case client.AudioCommit():
                self._floor.commit(now)
            case client.AudioClear():
                self._floor.clear(now)
                self._send(events.buffer_cleared())
            case client.OutputAudioClear():
                raise ProtocolError(
                    "invalid_value",
                    "output_audio_buffer.clear is for WebRTC only: on a WebSocket, stop playing and send "
                    "conversation.item.truncate.",
                    param="type",
                )
            case client.ImageAppend():
                self._see(event.image, event.event_id or "", now)
            case client.ImageClear():
                self._floor.camera.clear()
            case client.SessionUpdate():
                self._update(event.session, now)
            case client.ItemCreate():
                self._create_item(event, now)
            case client.ItemRetrieve():
                item = self.conversation.known(event.item_id, "retrieve")
                self._send(events.item_retrieved(to_wire(item, audio=self.config.audio.input.format)))
            case client.ItemDelete():
                self.conversation.known(event.item_id, "delete")
                self.conversation.delete(event.item_id)
                self._floor.forget(event.item_id)
                self._send(events.item_deleted(event.item_id))
            case client.ItemTruncate():
                self._truncate(event, now)
            case client.ResponseCreate():
                self._create_response(event.response or client.ResponseParams(), now)
            case client.ResponseCancel():
                self._cancel(event.response_id)

    def _hear(self, data: bytes, now: float) -> None:
        self.heard_ms += len(data) // self._bytes_per_ms
        self._floor.hear(data, now)

    def _see(self, image: str, name: str, now: float) -> None:
        if not self.config.extensions.camera:
            raise ProtocolError(
                "invalid_value",
                "input_image_buffer.* is an extension: switch it on with session.extensions.camera.",
                param="type",
            )
        self._floor.see(self._look(now)(decode_base64(image, "image"), "image", name))

    def _look(self, now: float) -> camera.Look:
        """Looks at pictures, as long as the client may show more of them."""

        def look(data: bytes, param: str, name: str = "") -> camera.Frame:
            if not self._image_bytes.take(len(data), now):
                limit = self._settings.image_bytes_per_minute
                raise ProtocolError(
                    "rate_limit_exceeded", f"More than {limit} bytes of pictures in a minute.", param=param
                )
            if not self._pictures.take(1, now):
                raise ProtocolError(
                    "rate_limit_exceeded",
                    f"More than {camera.PICTURES_PER_S} pictures a second.",
                    param=param,
                )
            return camera.look(data, param, name)

        return look

    def _update(self, patch: dict[str, Any], now: float) -> None:
        updated = cfg.update(self.config, patch, voice_frozen=self._voice_frozen)
        if updated.audio.output != self.config.audio.output:
            check_voice(updated.audio.output.voice_name, self._settings)
        self.config = effective(updated, self._settings)
        self._config_changed = True
        self._context.transcripts = self.config.audio.input.transcription is not None
        self._floor.configure(self.config, now)
        self._bytes_per_ms = sound.bytes_per_ms(self.config.audio.input.format)
        self._send(events.session_updated(self._wire()))

    @property
    def _voice_frozen(self) -> bool:
        return any(
            isinstance(part, Spoken) and part.sent_s > 0
            for item in self.conversation
            if isinstance(item, MessageItem)
            for part in item.content
        )

    def _create_item(self, event: client.ItemCreate, now: float) -> None:
        item = from_wire(event.item, self._new_id, self.config.audio.input.format, self._look(now))
        if item.id == self._floor.user_item:
            raise duplicate(item.id)  # Promised to the user's next turn.
        previous = self.conversation.add(item, event.previous_item_id)
        self._send(*item_events(item, previous))

    def _truncate(self, event: client.ItemTruncate, now: float) -> None:
        end_ms = self.conversation.truncate(event.item_id, event.content_index, event.audio_end_ms)
        self._floor.replies.truncated(event.item_id, now)
        self._send(events.item_truncated(event.item_id, 0, end_ms))

    # ------------------------------------------------------------------------------------------ responses

    def _create_response(self, params: client.ResponseParams, now: float) -> None:
        if self.config.type == "transcription":
            raise ProtocolError("invalid_value", "A transcription session gives no responses.", param="type")
        spec = response_spec(self.config, params)
        if params.audio is not None and params.audio.output is not None and params.audio.output.voice:
            check_voice(spec.voice, self._settings, "response.audio.output.voice")
        active = self._floor.replies.active
        if spec.in_conversation and active is not None:
            raise ProtocolError(
                "conversation_already_has_active_response",
                f"Conversation already has an active response in progress: {active.id}. "
                "Wait until the response is finished before creating a new one.",
            )
        items = self._input(params, now)
        if not self._floor.may_answer(now):
            raise ProtocolError("rate_limit_exceeded", "Too many responses a minute.")
        asked = items[-1].id if items else None
        if spec.in_conversation:
            self._floor.asked(asked)
        self._floor.replies.reply(items, spec, asked, now)

    def _input(self, params: client.ResponseParams, now: float) -> list[Item]:
        """The items that a response answers: the conversation's, or those that it names."""
        if params.input is None:
            return self._floor.recent()
        audio = self.config.audio.input.format
        return [
            self._referred(entry.id, f"response.input[{index}].id")
            if isinstance(entry, ItemReference)
            else from_wire(entry, self._new_id, audio, self._look(now))
            for index, entry in enumerate(params.input)
        ]

    def _referred(self, item_id: str, param: str) -> Item:
        item = self.conversation.get(item_id)
        if item is None:
            raise ProtocolError("invalid_value", f"Item with id '{item_id}' does not exist.", param=param)
        return item

    def _cancel(self, response_id: str | None) -> None:
        replies = self._floor.replies
        response = replies.active if response_id is None else replies.by_id(response_id)
        if response is None:
            which = "no active response" if response_id is None else f"no active response '{response_id}'"
            raise ProtocolError("response_cancel_not_active", f"Cancellation failed: {which} found.")
        replies.cancel(response)

    # ----------------------------------------------------------------------------------------- sending

    def _send(self, *made: events.Event) -> None:
        self._context.send(made)

    def _wire(self) -> dict[str, Any]:
        shown = {
            "id": self.id,
            "object": "realtime.session",
            **self.config.to_wire(),
            "expires_at": self._expires_unix,
        }
        if extensions := shown_extensions(self.config, self._settings, self.resumption):
            shown["extensions"] = extensions
        return shown
