"""A whole talk in virtual time: a client with a microphone and a loudspeaker, the session under test, and a
pipeline that answers from a script. Every event is checked. Half an hour takes well under a second."""

import base64
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np
from conformance import Checker, Event
from fake_pipeline import spoken, written

from voice_app import messages as m
from voice_app.errors import VoiceAppError
from voice_app.server.occupancy import Occupancy
from voice_app.server.protocol.config import AudioInput
from voice_app.server.session.actions import (
    Action,
    AskTurnEnd,
    Cancel,
    Close,
    Count,
    DropAudio,
    HoldAudio,
    Observe,
    ReleaseAudio,
    Send,
    SendBinary,
    Submit,
)
from voice_app.server.session.microphone import Microphone
from voice_app.server.session.session import Session
from voice_app.server.settings import TalkSettings

PACKET_MS = 20
LOUD = 8_000


class LoudnessDetector:
    """Takes loud frames for speech: a test says with the level who speaks."""

    overhang_ms = 0

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def is_speech(self, frame: bytes) -> bool:
        return int(np.abs(np.frombuffer(frame, "<i2").astype(np.int32)).mean()) > LOUD // 4


def _packet(level: int) -> str:
    square = np.where(np.arange(24 * PACKET_MS) % 24 < 12, level, -level)
    return base64.b64encode(square.astype("<i2").tobytes()).decode()


SPEECH, SILENCE = _packet(LOUD), _packet(0)
LONG = "one two three four five six seven eight nine ten eleven twelve"

Script = Iterable[m.TurnEvent | VoiceAppError]
Answer = Callable[[m.TurnRequest], Script]


class VirtualTalk:
    """`first_s`: from a request to its first event; `each_s`: between events. `occupancy`: what other talks
    of the same server have in the pipeline."""

    def __init__(
        self,
        answer: Answer,
        settings: TalkSettings | None = None,
        *,
        first_s: float = 0.15,
        each_s: float = 0.02,
        check: bool = True,
        occupancy: Occupancy | None = None,
        make_microphone: Callable[[AudioInput], Microphone] = lambda c: Microphone(c, LoudnessDetector),
        session_id: str = "sess_1",
    ) -> None:
        self.now = 1_000.0
        self.checker = Checker()
        self.check = check
        self.log: list[tuple[float, Event]] = []
        self.requests: list[tuple[float, m.TurnRequest]] = []
        self.cancelled: list[m.TurnId] = []
        self.closed: Close | None = None
        self.asked: list[tuple[float, int]] = []
        """When it was asked whether a turn sounds complete, and in which pause."""
        self.judge: float | None = None
        """What the model says then; None: nothing."""
        self._verdicts: list[tuple[float, int]] = []
        self.actions: list[tuple[float, Action]] = []
        self._answer = answer
        self._first_s, self._each_s = first_s, each_s
        self._queue: list[tuple[float, int, m.TurnId, m.TurnEvent | VoiceAppError]] = []
        self._order = itertools.count()
        self._ids = itertools.count()
        self._event_ids = itertools.count()
        self.session = Session(
            session_id,
            settings or TalkSettings(),
            lambda prefix: f"{prefix}_{next(self._ids)}",
            now=self.now,
            unix_time=1.7e9,
            occupancy=occupancy,
            make_microphone=make_microphone,
        )
        self.session.start()
        self._act()

    # ------------------------------------------------------------------------------------- the client does

    def send(self, kind: str, **fields: Any) -> None:
        self.send_raw({"type": kind, **fields})

    def send_raw(self, event: object) -> None:
        self.session.receive(msgspec.json.encode(event), self.now)
        self._act()

    def update(self, **session: Any) -> None:
        self.send("session.update", session={"type": "realtime", **session})

    def speak(self, seconds: float) -> None:
        """The user speaks, and the packets come in real time."""
        self._stream(SPEECH, seconds)

    def silence(self, seconds: float) -> None:
        """The microphone hears nothing."""
        self._stream(SILENCE, seconds)

    def _stream(self, packet: str, seconds: float) -> None:
        for _ in range(round(seconds * 1000 / PACKET_MS)):
            self.wait(PACKET_MS / 1000)
            self.send("input_audio_buffer.append", audio=packet)

    def say(self, text: str) -> None:
        """A typed message."""
        content = [{"type": "input_text", "text": text}]
        self.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})

    def wait(self, seconds: float) -> None:
        """Time passes; no packet comes."""
        end = self.now + seconds
        while True:
            due = self.session.deadline(self.now)
            ready = min(self._next_ready(), self._verdicts[0][0] if self._verdicts else float("inf"))
            when = min(due, ready)
            if when > end + 1e-9:
                break
            self.now = max(self.now, when)
            if ready <= due:
                self._deliver()
            else:
                self.session.tick(self.now)
                self._act()
        self.now = end

    # ----------------------------------------------------------------------------------- the pipeline does

    def _next_ready(self) -> float:
        """When the session will take the next event; events of one turn come in order."""
        first: dict[m.TurnId, float] = {}
        for at, _, turn, _ in self._queue:
            if turn not in first:
                first[turn] = at
        return min(
            (max(at, self.now) for turn, at in first.items() if self.session.room(turn)), default=float("inf")
        )

    def _deliver(self) -> None:
        if self._verdicts and self._verdicts[0][0] <= self.now:
            _, pause = self._verdicts.pop(0)
            if self.judge is not None:
                self.session.judged(pause, self.judge, self.now)
                self._act()
            return
        position = next(i for i, entry in enumerate(self._queue) if self.session.room(entry[2]))
        _, _, turn, event = self._queue.pop(position)
        if isinstance(event, m.TurnDone):
            self.session.occupancy.done(turn)
        if isinstance(event, VoiceAppError):
            self.session.occupancy.leave(turn, self.now)
            self.session.failed(turn, event, self.now)
        else:
            self.session.event(turn, event, self.now)
        self._act()

    def _act(self) -> None:
        for action in self.session.take():
            self.actions.append((self.now, action))
            match action:
                case Send(event):
                    event["event_id"] = f"event_{next(self._event_ids)}"
                    self.log.append((self.now, event))
                    if self.check:
                        self.checker.feed(event)
                case Submit(request):
                    self.requests.append((self.now, request))
                    self.session.occupancy.enter(request.turn)
                    at = self.now + self._first_s
                    for event in self._answer(request):
                        self._queue.append((at, next(self._order), request.turn, event))
                        at += self._each_s
                    self._queue.sort(key=lambda entry: entry[:2])
                case Cancel(turn):
                    self.cancelled.append(turn)
                    self.session.occupancy.leave(turn, self.now)
                    self._queue = [entry for entry in self._queue if entry[2] != turn]
                case AskTurnEnd(_, pause):
                    self.asked.append((self.now, pause))
                    self._verdicts.append((self.now + 0.05, pause))
                case HoldAudio() | ReleaseAudio() | DropAudio() | SendBinary() | Observe() | Count():
                    pass
                case Close():
                    self.closed = action

    # ----------------------------------------------------------------------------------- what was told

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for _, event in self.log]

    def events(self, kind: str) -> list[Event]:
        return [event for _, event in self.log if event["type"] == kind]

    def last(self, kind: str) -> Event:
        return self.events(kind)[-1]

    def error(self) -> dict[str, Any]:
        """What the last event says, which must be an error."""
        assert self.kinds[-1] == "error", self.log[-1]
        return self.log[-1][1]["error"]

    def times(self, kind: str) -> list[float]:
        return [at for at, event in self.log if event["type"] == kind]

    def clear(self) -> None:
        """Forget what was told so far (the checker does not)."""
        self.log.clear()

    def history(self) -> list[tuple[str, str]]:
        """Role and text of the last request's messages; speech as "<speech>"."""
        return [
            (message.role, " ".join(_text(part) for part in message.parts))
            for message in self.requests[-1][1].messages
        ]


def _text(part: m.Part) -> str:
    match part:
        case m.TextPart(text):
            return text
        case m.AudioPart():
            return "<speech>"
        case m.ImagePart():
            return "<picture>"
        case m.ToolCallPart():
            return f"{part.name}({part.arguments})"
        case m.ToolResultPart():
            return part.output


def answering(text: str = LONG, heard: str | None = "tell me something"):
    """Every spoken request is answered with `text`, a word each 0.3 s of sound."""

    def answer(request: m.TurnRequest):
        return spoken(text, heard=heard) if request.speech else written(text)

    return answer


def talk(text: str = LONG, settings: TalkSettings | None = None, **kwargs) -> VirtualTalk:
    return VirtualTalk(answering(text), settings, **kwargs)
