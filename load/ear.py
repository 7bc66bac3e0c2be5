"""What one caller hears: the server's events become turns with their times. Pure, with time passed in.

The caller tells when it begins and ends to speak (`begin`, `end`), when each packet left (`sent`), and what
the server said (`hear`). A turn is closed, and given to `keep`, when its answer was heard to the end, was
interrupted, failed, or did not come in time.
"""

from collections.abc import Callable

import msgspec

from load.listener import Listener
from load.turns import Outcome, Turn
from voice_app.bench.callers import PACKET_S, RATE

PATIENCE_S = 20.0
"""From the end of speech to the first sound, and from one sound to the next."""
BYTES_A_SECOND = RATE * 2
"""Of the sound that comes."""


class Response(msgspec.Struct):
    """Of `response.created` and `response.done`."""

    id: str = ""
    status: str = ""
    status_details: dict[str, msgspec.Raw] | None = None


class Resume(msgspec.Struct):
    token: str = ""
    resumed: bool = False


class Extensions(msgspec.Struct):
    resume: Resume | bool | None = None


class ServerSession(msgspec.Struct):
    id: str = ""
    extensions: Extensions | None = None


class ErrorDetail(msgspec.Struct):
    code: str | None = None
    message: str = ""


class ServerEvent(msgspec.Struct):
    """Of every event, what is looked at."""

    type: str
    event_id: str = ""
    response_id: str = ""
    delta: str = ""
    audio_end_ms: int = 0
    response: Response | None = None
    session: ServerSession | None = None
    error: ErrorDetail | None = None


decode = msgspec.json.Decoder(ServerEvent).decode
"""Text of one event → `ServerEvent`."""


class _Answer:
    """One response of the server."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.listener = Listener()
        self.complete = False


class Ear:
    """`counted` False: this caller's waits are its own fault. A talk that is taken up again keeps its ear."""

    def __init__(self, person: str, talk: int, keep: Callable[[Turn], None], *, counted: bool = True) -> None:
        self._person = person
        self._talk = talk
        self._keep = keep
        self._counted = counted
        self.session = ""
        self.resume_token = ""
        self.resumed = False
        self.last_event_id = ""
        self.greeted: float | None = None
        """When this connection's `session.created` came."""
        self.faults: list[tuple[float, str]] = []
        """When what was wrong outside of turns: codes of `error` events, answers to nothing."""
        self._asked: Turn | None = None
        """The newest question; answered or not."""
        self._answers: dict[str, _Answer] = {}
        """Those whose turn is still open."""
        self._sent_at: list[float] = []
        self._patient_since = 0.0
        self._given_up = 0
        """Questions that were not waited for any longer, or whose first half was answered: their answers may
        still come."""

    # ------------------------------------------------------------------------------------ the caller's side

    def begin(self, recording: str, now: float) -> None:
        """The first packet of a question is about to leave."""
        for answer in self._answers.values():
            if answer.turn.interrupted is None:
                answer.turn.interrupted = now
        if self._asked is not None and not self._is_being_answered(self._asked):
            self._close(self._asked, Outcome.UNANSWERED, now, "the caller asked something else")
        self._asked = Turn(
            person=self._person,
            talk=self._talk,
            session=self.session,
            recording=recording,
            counted=self._counted,
            speech_began=now,
        )

    def end(self, now: float) -> None:
        """The last packet with speech has left."""
        if self._asked is not None:
            self._asked.speech_ended = self._patient_since = now

    def sent(self, now: float) -> None:
        """A packet, of speech or of silence, has left."""
        self._sent_at.append(now)

    def heard_out(self, now: float) -> bool:
        """Whether the newest question's turn is over; closes turns whose time has come."""
        for answer in list(self._answers.values()):
            self._look_at(answer, now)
        asked = self._asked
        if asked is not None and asked.speech_ended is not None and now > self._patient_since + PATIENCE_S:
            self._close(asked, Outcome.UNANSWERED, now)
        return self._asked is None

    def playing_s(self, now: float) -> float:
        """For how many seconds the answer to the newest question has been heard; 0: it is not being heard."""
        for answer in self._answers.values():
            if answer.turn is self._asked and answer.listener.plays(now):
                return answer.listener.heard_s(now)
        return 0.0

    def waits_s(self, now: float) -> float:
        """For how long the newest question has been over without a sound of its answer; 0: it has one."""
        asked = self._asked
        if not self._counted or asked is None or asked.speech_ended is None or asked.chunks:
            return 0.0
        return now - asked.speech_ended

    def leave(self, now: float, outcome: Outcome = Outcome.LEFT, detail: str = "") -> None:
        """The connection is gone, and with it what was open; packets are counted anew."""
        open_turns = [answer.turn for answer in self._answers.values()]
        if self._asked is not None and all(turn is not self._asked for turn in open_turns):
            open_turns.append(self._asked)
        for turn in open_turns:
            self._close(turn, outcome, now, detail)
        self._sent_at.clear()
        self.greeted = None

    # ------------------------------------------------------------------------------------ the server's side

    def hear(self, event: ServerEvent, now: float) -> None:
        """What the server said."""
        if event.event_id:
            self.last_event_id = event.event_id
        match event.type:
            case "response.output_audio.delta":
                self._sound(event.response_id, _seconds(event.delta), now)
            case "response.output_audio_transcript.delta" | "response.output_text.delta":
                answer = self._answers.get(event.response_id)
                if answer is not None and answer.turn.first_text is None:
                    answer.turn.first_text = now
            case "input_audio_buffer.speech_started":
                self._fall_silent(now)
            case "input_audio_buffer.speech_stopped":
                self._silence_ended(event.audio_end_ms)
            case "response.created" if event.response is not None:
                self._created(event.response.id, now)
            case "response.done" if event.response is not None:
                self._done(event.response, now)
            case "session.created" if event.session is not None:
                self._greet(event.session, now)
            case "error":
                self.faults.append((now, (event.error and event.error.code) or "error"))

    def _greet(self, session: ServerSession, now: float) -> None:
        self.greeted = now
        self.session = session.id
        resume = session.extensions.resume if session.extensions is not None else None
        if isinstance(resume, Resume):
            self.resume_token, self.resumed = resume.token, resume.resumed

    def _created(self, response: str, now: float) -> None:
        asked = self._asked
        if asked is None and self._given_up:
            self._given_up -= 1
        elif asked is None:
            self.faults.append((now, "an answer to nothing"))
        if asked is None:
            return
        for key in [key for key, answer in self._answers.items() if answer.turn is asked]:
            # The server took the end of the turn back, and answers again.
            del self._answers[key]
        if asked.speech_ended is None or asked.first_text is not None:
            asked.early = True
        asked.first_text = asked.first_audio = asked.last_audio = asked.interrupted = None
        asked.underruns, asked.chunks, asked.audio_s = [], [], 0.0
        self._answers[response] = _Answer(asked)

    def _sound(self, response: str, seconds: float, now: float) -> None:
        answer = self._answers.get(response)
        if answer is None or not seconds:
            return
        turn = answer.turn
        self._patient_since = now
        if turn.interrupted is not None:
            turn.last_audio_after = now
            if turn.silent is not None:
                return
        answer.listener.hear(seconds, now)
        if turn.first_audio is None:
            turn.first_audio = now
        turn.last_audio = now
        turn.audio_s = answer.listener.sound_s
        turn.chunks.append((now, seconds))
        if turn.interrupted is None:
            # Speech over an answer holds its sound on purpose.
            turn.underruns = list(answer.listener.underruns)

    def _silence_ended(self, audio_end_ms: int) -> None:
        packet = round(audio_end_ms / 1000 / PACKET_S) - 1
        asked = self._asked
        if asked is not None and asked.speech_ended is not None and 0 <= packet < len(self._sent_at):
            at = self._sent_at[packet]
            asked.silence_ended = at if at >= asked.speech_ended else None

    def _fall_silent(self, now: float) -> None:
        """A client stops playing when the server hears its user."""
        for answer in self._answers.values():
            turn = answer.turn
            if turn is self._asked and turn.speech_ended is None:
                continue
            silent_at = answer.listener.silence(now)
            if turn.interrupted is not None and turn.silent is None:
                turn.silent = max(silent_at, turn.interrupted)

    def _done(self, response: Response, now: float) -> None:
        answer = self._answers.get(response.id)
        if answer is None:
            return
        turn = answer.turn
        match response.status:
            case "failed":
                self._close(turn, Outcome.FAILED, now, _code(response))
            case "cancelled" if turn.interrupted is not None:
                if turn.silent is None:
                    turn.silent = max(answer.listener.silence(now), turn.interrupted)
                self._close(turn, Outcome.INTERRUPTED, now)
            case "cancelled" if turn.early:
                # The rest of the question cut it off; the whole question will be answered.
                del self._answers[response.id]
            case "cancelled":
                self._close(turn, Outcome.CUT_OFF, now)
            case _ if turn.speech_ended is None and not turn.chunks:
                # Half a question, taken for no speech; the rest of it will be answered.
                del self._answers[response.id]
            case _:
                answer.complete = True
                if not turn.chunks:
                    wordless = turn.first_text is None
                    self._close(turn, Outcome.WORDLESS if wordless else Outcome.SOUNDLESS, now)

    # -------------------------------------------------------------------------------------------- closing

    def _look_at(self, answer: _Answer, now: float) -> None:
        """Close the turn of an answer that is over for the ear."""
        turn, dry_at = answer.turn, answer.listener.dry_at()
        if not answer.complete or dry_at > now:
            return
        if turn.interrupted is None:
            self._close(turn, Outcome.HEARD, dry_at)
        else:
            turn.silent = turn.silent or max(dry_at, turn.interrupted)
            self._close(turn, Outcome.INTERRUPTED, turn.silent)

    def _is_being_answered(self, turn: Turn) -> bool:
        return any(answer.turn is turn for answer in self._answers.values())

    def _close(self, turn: Turn, outcome: Outcome, at: float, detail: str = "") -> None:
        turn.ended, turn.outcome, turn.detail = at, outcome, detail
        self._answers = {key: answer for key, answer in self._answers.items() if answer.turn is not turn}
        if self._asked is turn:
            self._asked = None
        self._given_up += outcome is Outcome.UNANSWERED or turn.early
        self._keep(turn)


def _seconds(delta: str) -> float:
    """Seconds of sound in base64 of 16-bit samples."""
    return (len(delta) * 3 // 4 - delta.count("=", -2)) / BYTES_A_SECOND


def _code(response: Response) -> str:
    details = response.status_details or {}
    try:
        error = msgspec.json.decode(details["error"], type=ErrorDetail)
    except (KeyError, msgspec.DecodeError):
        return ""
    return error.code or error.message
