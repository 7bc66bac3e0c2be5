"""Who has the floor: joins what is heard with what is answered.

The turn machine says what happens to the user's turn; here that becomes items, requests and cancellations.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from voice_app import messages as m
from voice_app.errors import VoiceAppError
from voice_app.server.protocol import config as cfg
from voice_app.server.protocol import server_events as events
from voice_app.server.protocol.errors import INVALID_REQUEST
from voice_app.server.session import turns
from voice_app.server.session.actions import AskTurnEnd, Count, Measure, Observe, Tally
from voice_app.server.session.camera import Camera, Frame
from voice_app.server.session.context import Context
from voice_app.server.session.conversation import Content, Item, MessageItem, Picture, Recording
from voice_app.server.session.early_sight import EarlySight
from voice_app.server.session.hearing import Hearing
from voice_app.server.session.item_wire import item_events
from voice_app.server.session.job import Job
from voice_app.server.session.microphone import Microphone
from voice_app.server.session.replies import Replies
from voice_app.server.session.spec import response_spec
from voice_app.server.session.transcripts import Transcripts
from voice_app.server.session.words import is_back_channel
from voice_app.server.settings import TalkSettings

COMPLETE = 0.5
"""A turn that is so likely complete sounds complete (smart-turn's own threshold)."""
SOUNDS_S = 8
"""Seconds of a turn that are judged."""
EAGERNESS = {"high": (250, 2_000), "medium": (400, 4_000), "auto": (400, 4_000), "low": (700, 8_000)}
"""semantic_vad: ms of silence that end a turn which sounds complete, and any turn (the protocol's maxima)."""
PROMPT_ITEMS = 128
"""Most items of the conversation in a prompt, unless `truncation` is disabled."""
PROMPT_KEEP = 0.8
"""Share of them that stays when the oldest leave."""


@dataclass(frozen=True, slots=True)
class _CutOff:
    """`reply` answers a turn of the user that cut off `before`, which had answered `question` with nothing
    that was heard."""

    reply: Job
    before: Job
    question: str


class Floor:
    """Every method carries out what follows from it before it returns."""

    def __init__(self, context: Context, config: cfg.Config, microphone: Microphone) -> None:
        self.replies = Replies(context)
        self.camera = Camera()
        self._transcripts = Transcripts(context)
        self._early = EarlySight(context)
        self._looked: list[Frame] = []
        self._context = context
        self._config = config
        self._hearing = Hearing(microphone, turn_rules(config, context.settings), self._others_idle)
        self._taken = False
        self._held_at = 0.0
        self._pause = 0
        self._seen: list[Frame] | None = None
        """What the work that was started early on the user's turn looks at."""
        self.user_item = context.new_id("item")
        """The id that the user's next turn will have."""
        self._spoke_until: float | None = None
        """When the speech of the user's last turn ended."""
        self._due: str | None = None
        """A turn of the user (its item) that is answered when the reply in progress is done."""
        self._cut_off: Job | None = None
        """The reply that the user's present turn interrupted."""
        self._unanswered: _CutOff | None = None
        """A question that is answered anew if what interrupted its answer holds no words."""
        self._anew: str | None = None
        """The last question (its item) for which that was done."""

    @property
    def in_pipeline(self) -> set[m.TurnId]:
        """What is in the pipeline."""
        return self.replies.turns | self._transcripts.turns | self._early.turns

    def _others_idle(self, now: float) -> bool:
        return self._context.occupancy.idle(now, self._context.session_id)

    @property
    def quiet(self) -> bool:
        """Nobody speaks and nothing waits to be answered."""
        return self._hearing.quiet and not self.replies.floor_taken and self._due is None

    def configure(self, config: cfg.Config, now: float) -> None:
        """The session's configuration changed."""
        self._config = config
        rules = turn_rules(config, self._context.settings)
        self._do(self._hearing.configure(config.audio.input, rules, now), now)

    def deadline(self, now: float) -> float | None:
        """When `tick` should be called."""
        due = self._hearing.deadline(now)
        for other in (self.replies.deadline(now), self._transcripts.deadline()):
            if other is not None and (due is None or other < due):
                due = other
        return due

    def tick(self, now: float) -> None:
        """Time has passed."""
        self.replies.pump(now)
        self._transcripts.tick(now)
        self._do(self._hearing.tick(now), now)
        self.settle(now)

    # ------------------------------------------------------------------------------------ the user's side

    def hear(self, data: bytes, now: float) -> None:
        """More sound of the client."""
        self._do(self._hearing.append(data, now), now)

    def commit(self, now: float) -> None:
        """The client ends the turn. Raises ProtocolError."""
        samples, actions = self._hearing.commit(now)
        self._do(actions, now)
        self._cut_off = None
        item = self._commit(samples)
        self._transcripts.want(item, now)

    def clear(self, now: float) -> None:
        """The client wants the sound so far forgotten."""
        self._do(self._hearing.clear(now), now)

    def forget(self, item_id: str) -> None:
        """The client deleted an item: of a reply that was cut off, nothing more is said."""
        response = self._cut_off.response if self._cut_off else None
        if response is not None and response.message is not None and response.message.id == item_id:
            self._cut_off = self._seen = None
            self.replies.drop_speculation()

    def see(self, frame: Frame) -> None:
        """A camera frame of the client."""
        if self.camera.see(frame):
            self._look_early()

    def _look_early(self) -> None:
        """Let the frames so far be encoded, if the user is speaking and nothing is being encoded yet."""
        frames = self.camera.frames()
        wanted = frames and frames != self._looked and self._config.type == "realtime"
        if wanted and not self._early.turns and self._hearing.in_turn:
            self._looked = frames
            seen = MessageItem(self.user_item, "user", _pictures(frames))
            self._early.look([*self.recent(), seen], response_spec(self._config))

    def _do(self, actions: Iterable[turns.Action], now: float) -> None:
        for action in actions:
            self._do_one(action, now)

    def _do_one(self, action: turns.Action, now: float) -> None:
        match action:
            case turns.SpeechStarted(start_ms):
                self._cut_off = None
                self._context.send([events.speech_started(self.user_item, start_ms)])
                self._look_early()
            case turns.Interrupt():
                self._due = None
                self._cut_off = self.replies.interrupt(now)
                self._context.act(Observe(Measure.INTERRUPTION, now - self._held_at))
                self._context.act(Count(Tally.OVERLAP, "interruption"))
                self.settle(now)
            case turns.Hold():
                self.replies.hold()
                self._held_at = now
            case turns.Release():
                self.replies.release(now)
                self._context.act(Count(Tally.OVERLAP, "passed"))
            case turns.Speculate(start_ms, end_ms):
                self._speculate(start_ms, end_ms)
            case turns.AskComplete(start_ms, end_ms):
                self._pause += 1
                recent = self._hearing.cut(max(start_ms, end_ms - SOUNDS_S * 1000), end_ms)
                self._context.act(AskTurnEnd(recent.astype(np.float32) / 32768.0, self._pause))
            case turns.DropSpeculation():
                self._seen = None
                self.replies.drop_speculation()
            case turns.SpeechStopped(start_ms, end_ms, silence_ms):
                self._spoke_until = now - silence_ms / 1000
                self._context.send([events.speech_stopped(self.user_item, end_ms)])
                self._end_turn(start_ms, end_ms, now)
            case turns.IdleTimeout(start_ms, end_ms):
                self._spoke_until = None
                self._context.send([events.timeout_triggered(self.user_item, start_ms, end_ms)])
                self._end_silence(start_ms, end_ms, now)

    def _speculate(self, start_ms: int, end_ms: int) -> None:
        if self._answers_turns:
            self._seen = self.camera.frames()
            content = self._content(self._hearing.cut(start_ms, end_ms))
            heard = MessageItem(self.user_item, "user", content)
            items = [*self.recent(), heard]
            self.replies.speculate(items, response_spec(self._config), self.user_item, self._unsaid)

    @property
    def _unsaid(self) -> str:
        """What the user has not heard of the reply that the present turn interrupted. The client may still
        say (`conversation.item.truncate`) how much it played: that is counted, as far as it came by now."""
        return self._cut_off.unheard if self._cut_off is not None and self._resumes else ""

    @property
    def _resumes(self) -> bool:
        """A reply that a sound without words interrupted is taken up again."""
        return self._context.settings.resumes and self._context.settings.transcribes

    @property
    def _answers_turns(self) -> bool:
        detection = self._config.audio.input.turn_detection
        return detection is not None and detection.create_response and self._config.type == "realtime"

    def _end_turn(self, start_ms: int, end_ms: int, now: float) -> None:
        item = self._commit(self._hearing.cut(start_ms, end_ms))
        if not self._answers_turns:
            self._transcripts.want(item, now)
        elif self.replies.active is not None:
            self._due = item.id
        else:
            self._unanswered = self._if_wordless(self._answer(item.id, now))
        self._cut_off = None

    def _if_wordless(self, reply: Job | None) -> _CutOff | None:
        """What is to be done if the turn that `reply` answers proves to hold no words."""
        before = self._cut_off
        if reply is None or before is None or not (self._resumes and before.unanswered):
            return None
        question = before.heard_item
        return None if question in (None, self._anew) else _CutOff(reply, before, question)

    def _answer_anew(self, now: float) -> None:
        """If a sound without words cut off an answer before any of it was heard, begin it again, once."""
        cut = self._unanswered
        response = cut.reply.response if cut else None
        if cut is None or response is None or response.status == "in_progress":
            return
        self._unanswered = None
        nothing = cut.reply.wordless and response.status == "completed" and not response.items
        free = self.replies.active is None and not self._hearing.in_turn and self._answers_turns
        if nothing and free and cut.question in self._context.conversation and self.may_answer(now):
            self._anew = cut.question
            items = [item for item in self.recent() if item.id != cut.reply.heard_item]
            self.replies.reply(items, cut.before.spec, cut.question, now, self._spoke_until)
            self._context.act(Count(Tally.OVERLAP, "answered_anew"))

    def _end_silence(self, start_ms: int, end_ms: int, now: float) -> None:
        """Nobody spoke: the model is asked to speak first, not what it makes of the silence."""
        item = self._commit(self._hearing.cut(start_ms, end_ms), words="")
        if self._answers_turns:
            self._answer(item.id, now)

    def _content(self, samples: np.ndarray, words: str | None = None) -> list[Content]:
        """What the user's turn holds: what was seen, then what was said."""
        seen = self.camera.frames() if self._seen is None else self._seen
        return [*_pictures(seen), Recording(samples, words)]

    def _commit(self, samples: np.ndarray, words: str | None = None) -> MessageItem:
        """The user's turn becomes an item; `words`: what was said, where that is known."""
        item = MessageItem(self.user_item, "user", self._content(samples, words))
        self._seen = None
        self.camera.clear()
        self.user_item = self._context.new_id("item")
        previous = self._context.conversation.add(item)
        self._context.send([events.buffer_committed(item.id, previous), *item_events(item, previous)])
        return item

    # ------------------------------------------------------------------------------- the assistant's side

    def recent(self) -> list[Item]:
        """The items that an answer takes into account."""
        truncation, tokens, keep = self._config.truncation, self._context.settings.prompt_tokens, PROMPT_KEEP
        if truncation == "disabled":
            return list(self._context.conversation)
        if isinstance(truncation, cfg.RetentionRatio):
            keep = truncation.retention_ratio
            limit = truncation.token_limits.post_instructions if truncation.token_limits else None
            tokens = min(tokens, tokens if limit is None else limit)
        return self._context.conversation.recent(PROMPT_ITEMS, tokens, keep)

    def may_answer(self, now: float) -> bool:
        """Whether another response is within what the client may ask for; it is counted."""
        allowance = self._context.allowance
        return allowance is None or allowance.take(1, now)

    def _answer(self, item_id: str, now: float) -> Job | None:
        """Gives the answer, if the client may have one."""
        self._due = None
        if not self.may_answer(now):
            self.replies.drop_speculation()
            self._context.send([too_many_responses()])
            return None
        reply = self.replies.promote(item_id, now, self._spoke_until)
        if reply is None:
            spec = response_spec(self._config)
            reply = self.replies.reply(self.recent(), spec, item_id, now, self._spoke_until, self._unsaid)
        return reply

    def asked(self, item_id: str | None) -> None:
        """The client asks for a response itself, which will tell the words of `item_id`."""
        self._due = self._unanswered = None
        self._transcripts.unwant(item_id)

    def event(self, turn: m.TurnId, event: m.TurnEvent, now: float) -> None:
        """The pipeline made something."""
        if self._transcripts.event(turn, event):
            return
        if self._early.event(turn, event):
            self._look_early()
            return
        if isinstance(event, m.Transcript) and self.replies.is_speculation(turn):
            back_channel = is_back_channel(event.text, answerable=self.replies.almost_over(now))
            self._do(self._hearing.words(back_channel=back_channel, now=now), now)
        self.replies.event(turn, event, now)

    def failed(self, turn: m.TurnId, error: VoiceAppError) -> None:
        """The pipeline lost a turn."""
        if not (self._transcripts.failed(turn, error) or self._early.failed(turn)):
            self.replies.failed(turn, error)

    def stop(self, now: float) -> None:
        """The connection is gone."""
        self._due = self._unanswered = None
        self.replies.stop_all(now)
        self._transcripts.stop()
        self._early.stop()

    def judged(self, pause: int, probability: float, now: float) -> None:
        """How likely the turn is complete, as far as it was heard in `pause`."""
        if pause == self._pause:
            complete = probability >= COMPLETE
            self._do(self._hearing.sounds_complete(complete=complete, now=now), now)
            self.settle(now)

    def settle(self, now: float) -> None:
        """Tell the turn machine when the floor changes hands, and answer what waited for that."""
        self._answer_anew(now)
        if self._due is not None and self.replies.active is None:
            self._answer(self._due, now)
        taken = self.replies.floor_taken
        if taken != self._taken:
            self._taken = taken
            change = self._hearing.reply_started if taken else self._hearing.reply_ended
            self._do(change(now), now)


def _pictures(frames: Iterable[Frame]) -> list[Content]:
    return [Picture(frame.data, frame.media_type, frame=frame.name) for frame in frames]


def too_many_responses() -> events.Event:
    """The client asks for more than its key allows."""
    return events.error(INVALID_REQUEST, "rate_limit_exceeded", "Too many responses a minute.")


def turn_rules(config: cfg.Config, talk: TalkSettings) -> turns.Rules:
    """How turns are told apart in a session of this configuration."""
    detection = config.audio.input.turn_detection
    if detection is None:
        return turns.Rules()
    answers = detection.create_response and config.type == "realtime"
    speculate_ms = talk.speculate_ms if answers else None
    rules = turns.Rules(
        speculate_ms=speculate_ms,
        early_ms=talk.early_ms,
        onset_ms=talk.onset_ms,
        interrupt=detection.interrupt_response,
        interrupt_ms=talk.interrupt_ms,
        judge_words=talk.transcribes and speculate_ms is not None,
    )
    if isinstance(detection, cfg.SemanticVad):
        sure_ms, longest_ms = EAGERNESS[detection.eagerness]
        return replace(rules, silence_ms=longest_ms, sure_ms=sure_ms)
    return replace(
        rules,
        prefix_ms=detection.prefix_padding_ms,
        silence_ms=detection.silence_duration_ms,
        idle_ms=detection.idle_timeout_ms,
    )
